"""The yardstick of `msllm bench step`: one training step of the same Llama in PyTorch eager, in float32 on CPU.

Runs in an environment of its own, which needs nothing but torch:

    python -m venv /tmp/torch && /tmp/torch/bin/pip install torch==2.13.0 'numpy<2'
    echo '{"vocab_size": 4096, "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 6,
           "num_attention_heads": 4, "num_key_value_heads": 2}' > model.json
    /tmp/torch/bin/python tests/benchmarks/torch_llama.py --config model.json --batch 8 --seq 128 --steps 20 --threads 2

`--config` holds the fields of our `model:` section as JSON (`-`: standard input). A step is what ours is: forward, mean
cross entropy, backward, clipping by the global norm of 1, AdamW. PyTorch's fast paths are on: fused attention, fused
RMSNorm, fused AdamW. Standard output holds one JSON object:
    tokens_per_s   batch * seq / median time of a step, after the warm-up
    step_s         that median, with min_s and max_s beside it
    parts_s        medians of forward, backward, optimizer (clipping and update)
    loss_first, loss_last, parameters, threads, torch
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def field(config: dict, name: str, default):
    """A field of the model section, `default` where it is absent or null."""
    value = config.get(name)
    return default if value is None else value


class Attention(nn.Module):
    """Grouped-query attention with rotary positions. x: (B, S, H); cos, sin: (S, D)."""

    def __init__(self, config: dict, head_dim: int):
        super().__init__()
        hidden, heads = config["hidden_size"], config["num_attention_heads"]
        kv_heads = field(config, "num_key_value_heads", heads)
        self.head_dim, self.grouped = head_dim, kv_heads != heads
        self.q_proj = nn.Linear(hidden, heads * head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, kv_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(heads * head_dim, hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = (
            linear(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for linear in (self.q_proj, self.k_proj, self.v_proj)
        )
        out = F.scaled_dot_product_attention(
            turn(q, cos, sin), turn(k, cos, sin), v, is_causal=True, enable_gqa=self.grouped
        )
        return self.o_proj(out.transpose(1, 2).flatten(2))


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions on x (B, N, S, D); the first half of sin is negated."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((second, first), dim=-1) * sin


class Layer(nn.Module):
    """One decoder layer. x: (B, S, H)."""

    def __init__(self, config: dict, head_dim: int):
        super().__init__()
        hidden, inner, eps = config["hidden_size"], config["intermediate_size"], field(config, "rms_norm_eps", 1e-5)
        self.input_layernorm = nn.RMSNorm(hidden, eps)
        self.self_attn = Attention(config, head_dim)
        self.post_attention_layernorm = nn.RMSNorm(hidden, eps)
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        y = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))


class Llama(nn.Module):
    """Logits (B, S, V) of input_ids (B, S). Rotary scaling is left out: it costs nothing in a step."""

    def __init__(self, config: dict, length: int):
        super().__init__()
        hidden, vocab = config["hidden_size"], config["vocab_size"]
        head_dim = field(config, "head_dim", hidden // config["num_attention_heads"])
        self.embed_tokens = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList(Layer(config, head_dim) for _ in range(config["num_hidden_layers"]))
        self.norm = nn.RMSNorm(hidden, field(config, "rms_norm_eps", 1e-5))
        self.lm_head = nn.Linear(hidden, vocab, bias=False)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)
        if field(config, "tie_word_embeddings", False):
            self.lm_head.weight = self.embed_tokens.weight
        frequencies = 1.0 / field(config, "rope_theta", 10000.0) ** (torch.arange(0, head_dim, 2) / head_dim)
        angles = torch.outer(torch.arange(length), frequencies)
        self.register_buffer("cos", torch.cat((angles.cos(), angles.cos()), dim=-1))
        self.register_buffer("sin", torch.cat((-angles.sin(), angles.sin()), dim=-1))

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.lm_head(self.norm(x))


def adamw(model: nn.Module) -> torch.optim.AdamW:
    """AdamW without weight decay on norms, fused."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    norms = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": norms, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)


def measure(config: dict, batch: int, length: int, steps: int, warmup: int) -> dict:
    """Train `warmup + steps` steps on random tokens; times of the last `steps`."""
    model = Llama(config, length)
    optimizer = adamw(model)
    times, losses = [], []
    for _ in range(warmup + steps):
        rows = torch.randint(config["vocab_size"], (batch, length + 1))
        marks = [time.perf_counter()]
        logits = model(rows[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        marks.append(time.perf_counter())
        optimizer.zero_grad()
        loss.backward()
        marks.append(time.perf_counter())
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        marks.append(time.perf_counter())
        times.append([after - before for before, after in itertools.pairwise(marks)])
        losses.append(loss.item())
    times = times[warmup:]
    whole = [sum(parts) for parts in times]
    medians = [statistics.median(part) for part in zip(*times)]
    return {
        "tokens_per_s": batch * length / statistics.median(whole),
        "step_s": statistics.median(whole),
        "min_s": min(whole),
        "max_s": max(whole),
        "parts_s": dict(zip(("forward", "backward", "optimizer"), medians)),
        "loss_first": losses[0],
        "loss_last": losses[-1],
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def main() -> None:
    """Read the arguments, measure, print one JSON object."""
    parser = argparse.ArgumentParser(description="Training step of a Llama in PyTorch eager, float32, CPU.")
    parser.add_argument("--config", required=True, help="JSON file with the fields of our model section; - for stdin")
    parser.add_argument("--batch", type=int, default=8, help="samples of a step")
    parser.add_argument("--seq", type=int, default=128, help="tokens of a sample")
    parser.add_argument("--steps", type=int, default=20, help="steps that are timed")
    parser.add_argument("--warmup", type=int, default=3, help="steps before them")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of one operator")
    args = parser.parse_args()
    if args.config == "-":
        config = json.load(sys.stdin)
    else:
        with open(args.config, encoding="utf-8") as file:
            config = json.load(file)
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    result = measure(config, args.batch, args.seq, args.steps, args.warmup)
    print(json.dumps(result | {"threads": args.threads, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
