"""msllm: train large language models with MindSpore on Ascend NPUs, rehearsed on a laptop."""

__version__ = "0.1.0"
