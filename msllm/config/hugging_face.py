"""What a model says about its Hugging Face form: the table of its weights and the fields of config.json.

Plain data and NumPy, no MindSpore. A model fills it in `models/<name>/weights.py`; `msllm/checkpoint/hf.py` reads and
writes folders with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from msllm.config.sections import ModelConfig
from msllm.errors import InputError, Problem

if TYPE_CHECKING:
    import numpy as np

Config = TypeVar("Config", bound=ModelConfig)


@dataclass(frozen=True)
class HfTensor:
    """One tensor of a Hugging Face checkpoint and the parameters of ours that it holds.

    Ours are linear weights as (out, in). `transposed`: Hugging Face has (in, out), as GPT-2's Conv1D. More than one
    name: theirs is ours put together along `out`, in equal parts (GPT-2's c_attn is query, key and value).
    """

    hf_name: str
    hf_shape: tuple[int, ...]
    names: tuple[str, ...]
    transposed: bool = False

    def from_hf(self, array: np.ndarray) -> dict[str, np.ndarray]:
        """Our parameters, by name, as C-contiguous arrays."""
        import numpy as np

        parts = np.split(array.T if self.transposed else array, len(self.names))
        return {name: np.ascontiguousarray(part) for name, part in zip(self.names, parts, strict=True)}

    def to_hf(self, weights: Mapping[str, np.ndarray]) -> np.ndarray:
        """Their tensor, C-contiguous, from our parameters by name."""
        import numpy as np

        parts = [weights[name] for name in self.names]
        array = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return np.ascontiguousarray(array.T if self.transposed else array)


@dataclass(frozen=True)
class WeightMap:
    """All tensors of a model's Hugging Face checkpoint."""

    tensors: tuple[HfTensor, ...]
    """In the order of the network; each must be there."""
    base_prefix: str
    """Start of the names below the head ("model."); checkpoints of the bare network leave it out."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """Name of a tensor that some files hold a second time -> the tensor that it must equal (tied heads)."""
    buffers: tuple[str, ...] = ()
    """Patterns of tensors that are no weights and that old files hold: rotary frequencies, attention masks."""

    def from_hf(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Our parameters from a complete set of theirs."""
        return {name: part for t in self.tensors for name, part in t.from_hf(arrays[t.hf_name]).items()}

    def to_hf(self, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Their tensors from a complete set of our parameters."""
        return {tensor.hf_name: tensor.to_hf(weights) for tensor in self.tensors}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each of our parameters."""
        return {name: shape for tensor in self.tensors for name, shape in _shapes(tensor)}

    def is_buffer(self, hf_name: str) -> bool:
        """Whether a tensor of this name is no weight."""
        return any(re.fullmatch(pattern, hf_name) for pattern in self.buffers)


def _shapes(tensor: HfTensor) -> Iterator[tuple[str, tuple[int, ...]]]:
    out, *rest = reversed(tensor.hf_shape) if tensor.transposed else tensor.hf_shape
    for name in tensor.names:
        yield name, (out // len(tensor.names), *rest)


@dataclass(frozen=True)
class HfFields:
    """How the fields of a config.json become a model section of ours."""

    same: Mapping[str, str]
    """Field of theirs -> field of ours, value unchanged."""
    defaults: Mapping[str, Any]
    """Our field -> value where config.json is silent: Hugging Face's default wherever ours is another."""
    only: Mapping[str, tuple[Any, ...]]
    """Field of theirs -> the values with which their network computes what ours does; absent is right."""
    unused: frozenset[str] = frozenset()
    """Fields of theirs that do not touch the training computation."""

    def read(self, kind: type[Config], hf: Mapping[str, Any], file: str, own: Mapping[str, Any]) -> Config:
        """Our section of class `kind`; `own` holds fields that needed more than renaming.

        Raises InputError with every value that our network has no counterpart for and every wrong one of the rest.
        """
        problems = [
            Problem(f"{key} ({hf[key]!r}) is not supported, only {' or '.join(map(repr, legal))}", file)
            for key, legal in self.only.items()
            if key in hf and hf[key] not in legal
        ]
        values = {ours: hf[theirs] for theirs, ours in self.same.items() if theirs in hf}
        try:
            config = kind.model_validate({**self.defaults, **values, **own})
            problems += [Problem(message, file) for _, message in config.problems()]
        except ValidationError as error:
            theirs = {ours: key for key, ours in self.same.items()}
            for fault in error.errors():
                name, *rest = map(str, fault["loc"])
                where = ".".join([theirs.get(name, name), *rest])
                given = "" if fault["type"] == "missing" else f" ({fault['input']!r})"
                problems.append(Problem(f"{where}{given}: {fault['msg']}", file))
        if problems:
            raise InputError(problems)
        return config

    def not_carried_over(self, hf: Mapping[str, Any], handled: Iterable[str]) -> list[str]:
        """Fields that nothing here knows and that are switched on, so that a user can be told of them."""
        known = {*self.same, *self.only, *self.unused, *UNUSED, *handled}
        return sorted(key for key, value in hf.items() if key not in known and value not in (None, False, [], {}))


UNUSED = frozenset(
    {
        "_name_or_path",
        "architectures",
        "bos_token_id",
        "dtype",
        "eos_token_id",
        "gradient_checkpointing",
        "model_type",
        "output_attentions",
        "output_hidden_states",
        "output_past",
        "pad_token_id",
        "pretraining_tp",
        "return_dict",
        "task_specific_params",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    }
)
"""Fields of any config.json that say nothing about the network: files, tokens, generation, and how to run it."""
