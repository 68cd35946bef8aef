#!/usr/bin/env bash
# Start the ranks of one server with msrun, after the checks of msllm launch.
#   bash scripts/msrun_single.sh --config CONFIG.yaml --parallel STRATEGY.yaml --output RUN [--dry-run] [options of msllm launch]
# Logs: RUN/launch/msrun/worker_<rank>.log. `msllm launch` with the same options also watches the ranks and starts them again.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

case ${1:-} in
    ''|-h|--help) sed -n '2,4s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
esac
become_msrun "$@"
