# Sourced by the scripts beside it: the project's folder, its Python, its environment.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$ROOT/.venv
BIN=$VENV/bin

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Print a command, and run it unless this is a dry run.
run() {
    printf '+'; printf ' %q' "$@"; printf '\n'
    [ "${DRY_RUN:-0}" = 1 ] || "$@"
}

# The first interpreter of 3.10 to 3.12 that really runs and can make an environment. A name on the PATH is no proof: pyenv
# puts one there for every version that it knows of, and it fails when called.
find_python() {
    local candidate seen="" version
    for candidate in ${PYTHON:-} python3.10 python3.11 python3.12 python3 python "$HOME"/.pyenv/versions/3.1[012].*/bin/python3; do
        version=$("$candidate" -c 'import sys, venv, ensurepip; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
        case $version in
            3.10|3.11|3.12) echo "$candidate"; return 0 ;;
            *) seen="$seen $candidate=$version" ;;
        esac
    done
    fail "no Python 3.10, 3.11 or 3.12 with the venv module was found${seen:+ (found:$seen)}. MindSpore 2.9.0 has no wheel for" \
        "3.13 or newer. Install one (Debian and Ubuntu: apt-get install python3.11 python3.11-venv; openEuler: dnf install" \
        "python3.11), or name it: PYTHON=/path/to/python3.11 bash $0"
}

# Make .venv with the msllm command where it is missing or was made from other requirements.
setup_environment() {
    local python wanted stamp=$VENV/.msllm-requirements
    [ "$(uname -s)" = Linux ] || fail "MindSpore 2.9.0 for CPU and Ascend runs on Linux; this is $(uname -s)"
    wanted=$(cksum <"$ROOT/setup.cfg")
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && "$BIN/msllm" --version >/dev/null 2>&1; then
        return 0
    fi
    say "making the environment $VENV (downloads about 600 MB once)"
    if ! "$BIN/python" -c 'import pip' >/dev/null 2>&1; then
        python=$(find_python) || exit 1
        run "$python" -m venv --clear "$VENV"
    fi
    run "$BIN/python" -m pip install --quiet --upgrade 'pip>=24' 'setuptools>=68'
    run "$BIN/python" -m pip install --quiet --editable "$ROOT[dev]"
    if [ "${DRY_RUN:-0}" != 1 ]; then
        "$BIN/msllm" --version >/dev/null || fail "the msllm command does not start; remove $VENV and try again"
        echo "$wanted" >"$stamp"
    fi
}

# A TCP port that nothing listens on now.
free_port() {
    [ "${DRY_RUN:-0}" = 1 ] && { echo 8118; return; }
    "$BIN/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Check a job with `msllm launch --dry-run` and become the msrun that starts it: for who wants msrun itself.
# Arguments are those of `msllm launch`; --dry-run prints the line.
become_msrun() {
    local arguments=() argument plan line
    for argument in "$@"; do
        if [ "$argument" = --dry-run ]; then DRY_RUN=1; else arguments+=("$argument"); fi
    done
    export PATH=$BIN:$PATH   # msrun starts its workers with the `python` of the PATH
    plan=$("$BIN/msllm" launch "${arguments[@]}" --dry-run --json) || exit $?
    line=$("$BIN/python" -c 'import json, shlex, sys
[node] = json.load(sys.stdin)["nodes"]
if not node["msrun"]: sys.exit("error: msrun does not start this job: one rank needs only msllm train; a rank table alone, scripts/ranktable_launch.sh")
print(shlex.join(["env", *(f"{n}={v}" for n, v in node["environment"].items()), *node["msrun"]]))' <<<"$plan") || exit 2
    printf '+ %s\n' "$line"
    [ "${DRY_RUN:-0}" = 1 ] || eval "exec $line"
}
