#!/usr/bin/env bash
#SBATCH --job-name=msllm
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=192
#SBATCH --signal=TERM@300
# An example for Slurm: one launcher a node, which starts the ranks of its cards. Change the lines above for your cluster.
#   sbatch scripts/slurm_launch.sh --config CONFIG.yaml --parallel STRATEGY.yaml --output /shared/RUN
#   bash scripts/slurm_launch.sh --dry-run --config ...     what would be run
# 300 s before the time is up Slurm sends SIGTERM: the ranks save and stop; the same line with --resume auto goes on.
set -euo pipefail

case ${1:-} in
    ''|-h|--help) sed -n '7,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
esac
# Slurm runs a copy of this file, so that the project's folder is that of sbatch, not of the file.
ROOT=${MSLLM_ROOT:-${SLURM_SUBMIT_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}}
MSLLM=$ROOT/.venv/bin/msllm
nodes=${SLURM_JOB_NUM_NODES:-2}
master=$(scontrol show hostnames "${SLURM_JOB_NODELIST:-}" 2>/dev/null | head -n 1) || true
common=(--nodes "$nodes" --master-addr "${master:-node0}" --max-restarts 3 --save-on-stop)

if [ "${1:-}" = --dry-run ]; then
    shift
    for ((node = 0; node < nodes; node++)); do
        printf '+ srun, node %d:' "$node"; printf ' %q' "$MSLLM" launch "${common[@]}" --node-rank "$node" "$@"; printf '\n'
    done
    exit 0
fi
export MSLLM
# SLURM_NODEID is known on the node only, so that a shell there reads it.
# shellcheck disable=SC2016
exec srun --ntasks-per-node=1 --kill-on-bad-exit=0 bash -c 'exec "$MSLLM" launch --node-rank "$SLURM_NODEID" "$@"' launch "${common[@]}" "$@"
