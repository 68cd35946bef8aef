"""`msllm launch` whose ranks run a few lines in the place of `msllm train`, for tests of what happens around ranks.

A rank makes steps until RUN/finish appears. Files of the run's folder tell it otherwise: fail_<rank>: end with an error;
hang_<rank>: make no more steps;
complain_<rank>: write an error and go on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

STEP_SECONDS = 0.05


def rank() -> int:
    from msllm.parallel import progress

    run = Path(sys.argv[sys.argv.index("--output") + 1])
    if os.environ.get("MS_ROLE") == "MS_SCHED":
        time.sleep(600)
    number, step = int(os.environ.get("RANK_ID", 0)), 0
    subprocess.Popen(["sleep", "600"], start_new_session=True)  # what a library may leave behind
    print(f"rank {number} runs with resume {sys.argv[sys.argv.index('--resume') + 1]}", flush=True)
    while not (run / "finish").exists():
        if (run / f"fail_{number}").exists():
            print(f"error: disk of rank {number} is full", flush=True)
            return 1
        if (run / f"complain_{number}").exists():
            print("Traceback (most recent call last):", flush=True)
        if not (run / f"hang_{number}").exists():
            step += 1
            progress.tell(
                progress.STEP, step=step, train_steps=1000, step_seconds=STEP_SECONDS, own_seconds=0.01 * number
            )
        (run / f"at_{number}").write_text(str(step))
        time.sleep(STEP_SECONDS)
    return 0


def main() -> None:
    if "--stub-rank" in sys.argv:
        try:
            sys.exit(rank())
        except KeyboardInterrupt:
            sys.exit(130)
    from msllm import cli
    from msllm.launch import hosts, preflight

    here = (sys.executable, str(Path(__file__).absolute()))
    preflight.rank_command = lambda: (*here, "--stub-rank")
    hosts.msllm_command = lambda: here
    cli.main()


if __name__ == "__main__":
    main()
