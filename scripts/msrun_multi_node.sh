#!/usr/bin/env bash
# Start the ranks of one server of several with msrun, after the checks of msllm launch. Run it on every server.
#   bash scripts/msrun_multi_node.sh NODES NODE_RANK MASTER_ADDR --config CONFIG.yaml --parallel STRATEGY.yaml --output RUN [--dry-run]
# NODE_RANK counts from 0; MASTER_ADDR is the address of node 0. RUN is the same folder on all servers (shared storage).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

case ${1:-} in
    ''|-h|--help) sed -n '2,4s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
esac
[ $# -ge 3 ] || fail "needs NODES NODE_RANK MASTER_ADDR before the options; see --help"
place=(--nodes "$1" --node-rank "$2" --master-addr "$3")
shift 3
become_msrun "${place[@]}" "$@"
