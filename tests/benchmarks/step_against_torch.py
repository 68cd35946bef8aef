"""Our training step against PyTorch's, in turns in one run: `msllm bench step` and torch_llama.py on the same model.

    python tests/benchmarks/step_against_torch.py --torch-python /tmp/torch/bin/python [--config YAML] [--rounds 3]

Prints both rates of each round and the median of their ratios: ours divided by PyTorch's, above 1 where we are faster. How to
make the environment with torch is said in torch_llama.py.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def ours(config: Path, steps: int) -> dict:
    """The JSON of `msllm bench step`."""
    command = [sys.executable, "-c", "from msllm.cli import main; main()", "bench", "step", "--json"]
    command += ["--config", str(config), "--steps", str(steps)]
    environment = {**os.environ, "GLOG_v": "3"}
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def torchs(python: str, config: Path, steps: int) -> dict:
    """The JSON of torch_llama.py for the same model, batch and sequence."""
    from msllm.config.load import load_run_config
    from msllm.registry import MODEL_CONFIGS

    run = load_run_config([config], None, [], MODEL_CONFIGS).config
    command = [python, str(Path(__file__).with_name("torch_llama.py")), "--config", "-"]
    command += ["--batch", str(run.training.global_batch_size), "--seq", str(run.data.seq_length)]
    command += ["--steps", str(steps), "--threads", str(os.cpu_count())]
    model = json.dumps(run.to_dict()["model"])
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, input=model).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--torch-python", required=True, metavar="PATH", help="an interpreter that has torch")
    parser.add_argument("--config", type=Path, default=ROOT / "models/llama/configs/llama_tiny.yaml")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    ratios = []
    for number in range(options.rounds):
        left = ours(options.config, options.steps)["tokens_per_second"]
        right = torchs(options.torch_python, options.config, options.steps)["tokens_per_s"]
        ratios.append(left / right)
        print(
            f"round {number + 1}: msllm {left:,.0f} tokens/s, PyTorch {right:,.0f} tokens/s, ratio {left / right:.2f}"
        )
    print(f"median ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
