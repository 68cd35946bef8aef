#!/usr/bin/env bash
# Start the ranks of this server by a rank table alone, without a scheduler (Ascend). Run it on every server.
#   bash scripts/ranktable_launch.sh RANK_TABLE.json --config CONFIG.yaml --parallel STRATEGY.yaml --output RUN [--dry-run]
#        [--nodes N --node-rank K --master-addr ADDRESS] [options of msllm launch]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

case ${1:-} in
    ''|-h|--help) sed -n '2,4s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
esac
table=$1
shift
exec "$BIN/msllm" launch --start rank-table --rank-table "$table" "$@"
