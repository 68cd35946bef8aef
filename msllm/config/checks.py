"""Rules between fields of different sections; those of strategies are in `parallel_checks.py`.

Each message names both numbers and the nearest legal values.

A check is a function of the sections that it reads, in the order of its entry in `_CHECKS`, and yields its faults. It
runs as soon as those sections are valid by themselves, so that one faulty section does not hide the faults of others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from msllm.config import framework_checks, parallel_checks
from msllm.config.messages import nearest
from msllm.config.origin import Fault, LoadedConfig, Origins
from msllm.config.remedies import around
from msllm.config.sections import (
    CheckpointConfig,
    DataConfig,
    LrScheduleConfig,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
    Section,
    TrainingConfig,
)
from msllm.errors import Problem
from msllm.hardware.chips import CHIPS

Faults = Iterator[Fault]


def cross_faults(sections: Mapping[str, Section]) -> list[Fault]:
    """Every broken rule between the given sections (name -> valid section); rules on absent sections are left out."""
    found: list[Fault] = []
    for check, names in _CHECKS:
        if all(name in sections for name in names):
            found += check(*(sections[name] for name in names))
    return found


def unsupported_on(loaded: LoadedConfig, device_target: Literal["CPU", "Ascend"]) -> list[Problem]:
    """What `device_target: auto` left open, once training is to begin on one: precision, data sink and parallelism."""
    config, training = loaded.config, loaded.config.training
    faults = [*_precision_on(training, device_target), *_sink_on(training, device_target)]
    if device_target == "CPU":
        faults += parallel_checks.data_parallel_only(config.parallel_config)
    elif not framework_checks.needs_ascend(training, config.parallel_config):
        faults += framework_checks.layout(config.parallel_config)
    return loaded.origins.locate(faults)


def wrong_device_number(
    parallel: ParallelConfig, origins: Origins, devices: int, started: bool = False
) -> list[Problem]:
    """The problem of a strategy that is not for this number of devices, or of processes that were `started`."""
    return origins.locate(parallel_checks.device_number(parallel, devices, started))


def _model_alone(model: ModelConfig) -> Faults:
    for field, message in model.problems():
        yield Fault(message, (f"model.{field}",))


def _sequence(model: ModelConfig, data: DataConfig) -> Faults:
    if data.seq_length > model.max_position_embeddings:
        yield Fault(
            f"seq_length ({data.seq_length}) must be at most max_position_embeddings "
            f"({model.max_position_embeddings}); set seq_length to {model.max_position_embeddings} or less",
            ("data.seq_length", "model.max_position_embeddings"),
        )


def _precision(training: TrainingConfig) -> Faults:
    level, dtype = training.amp_level, training.compute_dtype
    both = ("training.amp_level", "training.compute_dtype")
    if level == "O0" and dtype != "float32":
        yield Fault(
            f"compute_dtype ({dtype}) is not used at amp_level (O0), which computes in float32; "
            "set amp_level to one of O1, O2, O3 or compute_dtype to float32",
            both,
        )
    if level != "O0" and dtype == "float32":
        yield Fault(
            f"amp_level ({level}) needs compute_dtype (float32) to be float16 or bfloat16; "
            "set compute_dtype to one of them or amp_level to O0",
            both,
        )
    loss_scale = ("training.compute_dtype", "training.loss_scale")
    if dtype == "float16" and training.loss_scale is None:
        yield Fault(
            "compute_dtype (float16) needs loss_scale (null): small gradients would become zero; "
            "set loss_scale to {} for its defaults or compute_dtype to bfloat16",
            loss_scale,
        )
    if dtype != "float16" and training.loss_scale is not None:
        yield Fault(
            f"loss_scale is for compute_dtype float16 and changes nothing with compute_dtype ({dtype}); "
            "set loss_scale to null",
            loss_scale,
        )


def device(training: TrainingConfig) -> Faults:
    """The device and the chip against each other, and what the chip must be able to do."""
    target, chip = training.device_target, training.chip
    if chip is not None and chip not in CHIPS:
        yield Fault(f"chip ({chip!r}) is not known; {nearest(chip, CHIPS)}", ("training.chip",))
        return
    if chip is not None and target not in ("auto", CHIPS[chip].device_target):
        fitting = ", ".join(name for name, known in CHIPS.items() if known.device_target == target)
        yield Fault(
            f"chip ({chip}) does not run with device_target ({target}); set chip to one of {fitting} or to null",
            ("training.chip", "training.device_target"),
        )
        return
    if target == "auto" and chip is None:
        return
    known_target = CHIPS[chip].device_target if chip else target
    yield from _precision_on(training, known_target)
    yield from _sink_on(training, known_target)


def _precision_on(training: TrainingConfig, device_target: str) -> Faults:
    # An unnamed Ascend chip may be any; what was checked for a cluster's chip still has to hold on this CPU.
    name = "CPU" if device_target == "CPU" else training.chip
    chip = CHIPS.get(name) if name else None
    if training.compute_dtype == "bfloat16" and chip is not None and not chip.bfloat16:
        able = ", ".join(other.name for other in CHIPS.values() if other.bfloat16)
        yield Fault(
            f"compute_dtype (bfloat16) is not supported by {chip.name}, only by {able}; set compute_dtype to float16 "
            "with loss_scale, or to float32 with amp_level O0",
            ("training.compute_dtype", "training.device_target" if name == "CPU" else "training.chip"),
        )


def _sink_on(training: TrainingConfig, device_target: str) -> Faults:
    if training.sink_size > 1 and device_target != "Ascend":
        yield Fault(
            f"sink_size ({training.sink_size}) needs Ascend, and the device is {device_target}; set sink_size to 1",
            ("training.sink_size", "training.device_target"),
        )


def _sink_multiples(training: TrainingConfig, checkpoint: CheckpointConfig) -> Faults:
    """The host acts between two sinks only."""
    sink = training.sink_size
    fields = {
        "training.train_steps": training.train_steps,
        "training.eval_steps": training.eval_steps,
        "checkpoint.save_steps": checkpoint.save_steps,
    }
    for path, value in fields.items():
        if value is not None and value % sink:
            name = path.split(".")[1]
            yield Fault(
                f"{name} ({value}) must be divisible by sink_size ({sink}); set {name} to {around(value, sink)}",
                (path, "training.sink_size"),
            )


def _schedule(optimizer: OptimizerConfig, schedule: LrScheduleConfig, training: TrainingConfig) -> Faults:
    total = schedule.total_steps or training.train_steps
    total_name = "total_steps" if schedule.total_steps else "train_steps"
    total_path = "lr_schedule.total_steps" if schedule.total_steps else "training.train_steps"
    warmup = schedule.warmup_steps
    if warmup >= total:
        yield Fault(
            f"warmup_steps ({warmup}) must be less than {total_name} ({total}); set warmup_steps to {total - 1} or less",
            ("lr_schedule.warmup_steps", total_path),
        )
    elif schedule.type == "wsd" and schedule.decay_steps and warmup + schedule.decay_steps > total:
        yield Fault(
            f"warmup_steps ({warmup}) + decay_steps ({schedule.decay_steps}) must be at most {total_name} ({total}); "
            f"set decay_steps to {total - warmup} or less",
            ("lr_schedule.warmup_steps", "lr_schedule.decay_steps", total_path),
        )
    if schedule.type != "wsd" and schedule.decay_steps is not None:
        yield Fault(
            f"decay_steps ({schedule.decay_steps}) belongs to type wsd and changes nothing with type "
            f"({schedule.type}); set decay_steps to null or type to wsd",
            ("lr_schedule.decay_steps", "lr_schedule.type"),
        )
    if schedule.lr_end > optimizer.learning_rate:
        yield Fault(
            f"lr_end ({schedule.lr_end}) must be at most learning_rate ({optimizer.learning_rate})",
            ("lr_schedule.lr_end", "optimizer.learning_rate"),
        )


def _evaluation(data: DataConfig, training: TrainingConfig) -> Faults:
    for name in ("eval_steps", "eval_batches"):
        value = getattr(training, name)
        if value is not None and data.eval_dataset is None:
            yield Fault(
                f"{name} ({value}) needs data.eval_dataset (null); set data.eval_dataset or set {name} to null",
                (f"training.{name}", "data.eval_dataset"),
            )


def _checkpoint(checkpoint: CheckpointConfig) -> Faults:
    every, save = checkpoint.keep_every, checkpoint.save_steps
    if every is not None and every % save:
        yield Fault(
            f"keep_every ({every}) must be a multiple of save_steps ({save}), as only saved steps can be kept; "
            f"set keep_every to {around(every, save)}",
            ("checkpoint.keep_every", "checkpoint.save_steps"),
        )


_CHECKS: tuple[tuple[Callable[..., Any], tuple[str, ...]], ...] = (
    (_model_alone, ("model",)),
    (parallel_checks.model_parallel, ("model", "parallel_config")),
    (parallel_checks.layers, ("model", "parallel_config")),
    (parallel_checks.micro_batches, ("parallel_config",)),
    (parallel_checks.tied_under_pipeline, ("model", "parallel_config")),
    (parallel_checks.experts, ("model", "parallel_config")),
    (parallel_checks.parallel_alone, ("parallel_config",)),
    (framework_checks.layout_of_run, ("training", "parallel_config")),
    (parallel_checks.accumulation, ("training", "parallel_config")),
    (parallel_checks.batch, ("training", "parallel_config")),
    (parallel_checks.recompute_counts, ("model", "parallel_config", "recompute_config")),
    (_sequence, ("model", "data")),
    (parallel_checks.sequence_cut, ("data", "parallel_config")),
    (_precision, ("training",)),
    (device, ("training",)),
    (_schedule, ("optimizer", "lr_schedule", "training")),
    (_evaluation, ("data", "training")),
    (_checkpoint, ("checkpoint",)),
    (_sink_multiples, ("training", "checkpoint")),
)
