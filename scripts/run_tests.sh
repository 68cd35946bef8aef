#!/usr/bin/env bash
# Makes the environment where it is missing and runs the tests. Arguments go on to pytest.
#   bash scripts/run_tests.sh                  all tests but those that need NPUs or are marked extended
#   bash scripts/run_tests.sh -m extended      the rehearsals of eight ranks and of combinations
#   bash scripts/run_tests.sh tests/unit -x    some of them
#   bash scripts/run_tests.sh --setup-only     only make .venv, with the msllm command
#   bash scripts/run_tests.sh --dry-run        print the commands
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

setup_only=0
arguments=()
for argument in "$@"; do
    case $argument in
        --setup-only) setup_only=1 ;;
        --dry-run) DRY_RUN=1 ;;
        -h|--help) sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
        *) arguments+=("$argument") ;;
    esac
done

setup_environment
[ "$setup_only" = 1 ] && exit 0
cd "$ROOT"
# msrun starts its workers with the `python` of the PATH.
export PATH=$BIN:$PATH
# MindSpore's warnings go to stderr by the hundred; failures show their own text.
export GLOG_v=${GLOG_v:-3}
# All of them in two processes, as much of the time is waiting for ranks; a few are quicker in one.
[ ${#arguments[@]} = 0 ] && arguments=(-n 2 --dist worksteal)
run "$BIN/python" -m pytest -m 'not device and not extended' "${arguments[@]}"
