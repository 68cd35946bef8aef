#!/usr/bin/env bash
# From raw text to a trained, resumed and talking model on this machine: about 5 minutes on 2 cores after the install.
#   bash scripts/quickstart.sh [--output DIR] [--dry-run]
# Gathers the sources of Python's library, trains a tokenizer, converts to MindRecord, trains a 5.5M-parameter Llama with
# msrun on 2 CPU processes, kills it on purpose, resumes it, evaluates it and lets it write. A second run reuses what is there.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

OUT=$ROOT/quickstart
while [ $# -gt 0 ]; do
    case $1 in
        --dry-run) DRY_RUN=1 ;;
        --output) [ $# -ge 2 ] || fail "--output needs a folder"; OUT=$2; shift ;;
        -h|--help) sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
        *) fail "unknown argument $1; see --help" ;;
    esac
    shift
done
RUN=$OUT/run
CONFIG=$ROOT/models/llama/configs/llama_tiny.yaml
STRATEGY=$ROOT/parallel_configs/tiny_dp2.yaml
SEQ_LENGTH=128
VOCAB_SIZE=1024
STEPS=220
SAVE_STEPS=100

setup_environment
export PATH=$BIN:$PATH       # msrun starts its workers with the `python` of the PATH
export GLOG_v=${GLOG_v:-3}   # errors only; MindSpore warns by the hundred while its processes find each other
[ "${DRY_RUN:-0}" = 1 ] || mkdir -p "$OUT"

last_checkpoint() { printf '%s/checkpoints/step_%08d' "$RUN" "$1"; }

# Start the training in the background: $1 is the value of --resume. Sets MSRUN to the process.
start_training() {
    local command=(msrun --worker_num 2 --local_worker_num 2 --master_port "$(free_port)" --log_dir "$OUT/msrun" --join True
        "$BIN/msllm" train --config "$CONFIG" --parallel "$STRATEGY" --output "$RUN" --resume "$1"
        --set "data.train_dataset=$OUT/data/train" --set "data.eval_dataset=$OUT/data/validation"
        --set training.eval_batches=16 --set "training.train_steps=$STEPS" --set training.log_steps=20
        --set "checkpoint.save_steps=$SAVE_STEPS")
    printf '+'; printf ' %q' "${command[@]}"; printf '\n'
    [ "${DRY_RUN:-0}" = 1 ] && return 0
    "${command[@]}" >"$OUT/msrun.out" 2>&1 &
    MSRUN=$!
}

# Show the log of rank 0 until the training process ends.
follow() { tail -n "$1" -F --pid="$MSRUN" "$RUN/logs/rank_0.log" 2>/dev/null & TAIL=$!; }

train_to_the_end() {
    start_training "$1"
    [ "${DRY_RUN:-0}" = 1 ] && return 0
    follow "$2"
    wait "$MSRUN" || { tail -n 20 "$OUT"/msrun/worker_*.log >&2; fail "the training failed; its logs are in $OUT/msrun"; }
    wait "$TAIL" 2>/dev/null || true
}

# kill -9 for msrun and all that it started, as a power cut would.
kill_training() {
    local children
    children=$(pgrep -P "$MSRUN" || true)
    # shellcheck disable=SC2086
    kill -9 "$MSRUN" $children 2>/dev/null || true
    wait "$MSRUN" 2>/dev/null || true
}
trap '[ -n "${MSRUN:-}" ] && kill_training' EXIT INT TERM

say "1/6 a corpus that every machine has: Python's own library"
if [ -f "$OUT/corpus/train.jsonl" ] && [ -f "$OUT/corpus/validation.jsonl" ]; then echo "reusing $OUT/corpus"; else
    run "$BIN/python" "$ROOT/scripts/python_corpus.py" --output "$OUT/corpus" --megabytes 5
fi

say "2/6 a SentencePiece tokenizer of $VOCAB_SIZE tokens"
if [ -f "$OUT/tokenizer.model" ]; then echo "reusing $OUT/tokenizer.model"; else
    run "$BIN/msllm" data train-tokenizer --input "$OUT/corpus/train.jsonl" --vocab-size "$VOCAB_SIZE" --output "$OUT/tokenizer.model"
fi

say "3/6 text to MindRecord"
for part in train validation; do
    run "$BIN/msllm" data convert --input "$OUT/corpus/$part.jsonl" --tokenizer "$OUT/tokenizer.model" \
        --seq-length "$SEQ_LENGTH" --shards 2 --workers 2 --output "$OUT/data/$part"
done

say "4/6 training on 2 processes, data parallel: $STEPS steps"
if [ -f "$(last_checkpoint "$STEPS")/COMPLETE" ]; then echo "reusing $RUN"
elif [ -d "$RUN/checkpoints" ]; then
    train_to_the_end auto 0
else
    rm -rf "$RUN"
    start_training no
    if [ "${DRY_RUN:-0}" != 1 ]; then
        follow +1
        until [ -f "$(last_checkpoint "$SAVE_STEPS")/COMPLETE" ]; do
            kill -0 "$MSRUN" 2>/dev/null || { tail -n 20 "$OUT"/msrun/worker_*.log >&2; fail "the training failed; its logs are in $OUT/msrun"; }
            sleep 0.5
        done
        sleep 3
        kill_training
    fi
    say "killed on purpose (kill -9) after step $SAVE_STEPS; the same command with --resume auto goes on"
    train_to_the_end auto 0
fi
MSRUN=

say "5/6 perplexity on held-out text"
run "$BIN/msllm" evaluate --checkpoint "$RUN" --dataset "$OUT/data/validation" --max-batches 16

say "6/6 what it writes"
run "$BIN/msllm" generate --checkpoint "$RUN" --prompt "    def __init__(self" --max-new-tokens 90 --temperature 0.6
[ "${DRY_RUN:-0}" = 1 ] && exit 0

say "where everything is"
"$BIN/python" - "$RUN/metrics.jsonl" "$VOCAB_SIZE" <<'PYTHON'
import json, math, sys
losses = [r["loss"] for r in map(json.loads, open(sys.argv[1])) if r["kind"] == "train"]
first, last, even = losses[0], sum(losses[-10:]) / 10, math.log(int(sys.argv[2]))
print(f"loss     {first:.2f} -> {last:.2f} nats a token: {100 * last / even:.0f}% of guessing evenly, ln(vocabulary) = {even:.2f}")
sys.exit(0 if last < 0.6 * even else "error: the loss did not fall under 60% of ln(vocabulary)")
PYTHON
cat <<END
corpus   $OUT/corpus
data     $OUT/data/train, $OUT/data/validation   (msllm data inspect, msllm data verify)
run      $RUN: config.yaml, metrics.jsonl, checkpoints/, logs/
curves   $BIN/python -m tensorboard.main --logdir $RUN/tensorboard   (after pip install tensorboard)
next     $BIN/msllm generate --checkpoint $RUN --prompt "import "
END
