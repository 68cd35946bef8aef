"""What the keys of a MindFormers YAML outside of its model and strategy become: formulas and defaults of 1.2 to 1.9.

A rule reads a `Source`, puts values into an `Imported` and drops, with a reason, what it looked at and cannot carry.
"""

from __future__ import annotations

from msllm.config.mindformers.parallel_rules import parallel, recompute
from msllm.config.mindformers.report import Imported, Source, is_count, is_number, is_on

MODEL = "model.model_config"

_OPTIMIZERS = ("AdamW", "FusedAdamW", "FP32StateAdamWeightDecay", "FusedAdamWeightDecay", "AdamWeightDecay")
_SCHEDULES = {
    "CosineWithWarmUpLR": "cosine",
    "LinearWithWarmUpLR": "linear",
    "ConstantWarmUpLR": "constant",
    "WarmUpStableDecayLR": "wsd",
}


def batch(source: Source, out: Imported) -> None:
    """runner_config.batch_size and what multiplies it: MindFormers counts per device and micro batch, msllm in all."""
    size = source.get("runner_config.batch_size")
    accumulation = source.get("runner_config.gradient_accumulation_steps") or 1
    interleave = source.get("micro_batch_interleave_num") or 1
    stages = out.get("parallel_config.pipeline_stage", 1)
    factors = {
        "runner_config.batch_size": size,
        "parallel_config.data_parallel": out.get("parallel_config.data_parallel", 1),
        "micro_batch_interleave_num": interleave,
    }
    if is_count(stages) and stages > 1:
        factors["parallel_config.micro_batch_num"] = out.get("parallel_config.micro_batch_num", 1)
        source.drop(
            "runner_config.gradient_accumulation_steps", "MindFormers sets it to 1 where pipeline_stage is above 1"
        )
    else:
        factors["runner_config.gradient_accumulation_steps"] = accumulation
    if size is None:
        return
    if source.get("parallel.parallel_mode") in (0, "data_parallel") and is_on(source.get("use_parallel")):
        source.drop("runner_config.batch_size", "in parallel_mode 0 it is multiplied by the number of devices started")
        return
    if not all(is_count(value) for value in factors.values()):
        source.drop("runner_config.batch_size", "it, or a factor of it, is not a whole number above 0")
        return
    total = 1
    for path, value in factors.items():
        total *= value
        source.take(path)
    note = " x ".join(f"{path} {value}" for path, value in factors.items() if value > 1 or path.endswith("batch_size"))
    out.put("training.global_batch_size", total, note)
    if stages == 1 and accumulation > 1:
        path = "runner_config.gradient_accumulation_steps"
        out.put("training.gradient_accumulation_steps", source.take(path), path)
    if interleave > 1:
        out.differences.append(
            f"micro_batch_interleave_num {interleave} is counted into global_batch_size; interleaving itself is not done"
        )


def optimizer(source: Source, out: Imported) -> None:
    """optimizer, runner_wrapper's clipping, and the peak of lr_schedule."""
    if source.get("optimizer") is not None:
        kind = source.get("optimizer.type")
        if kind in _OPTIMIZERS:
            _adamw(source, out, kind)
        else:
            source.drop("optimizer", f"optimizer {kind} has no counterpart; only AdamW has")
    for path in ("lr_schedule.learning_rate", "optimizer.learning_rate"):
        if source.get(path) is None:
            continue
        if out.get("optimizer.learning_rate") is None:
            out.put("optimizer.learning_rate", source.take(path), path)
        else:
            source.drop(path, "lr_schedule.learning_rate wins over it")
    if source.get("runner_wrapper") is not None:
        clip = is_on(source.take("runner_wrapper.use_clip_grad"))
        norm = source.take("runner_wrapper.max_grad_norm") if clip else None
        note = "runner_wrapper.max_grad_norm" if norm else "runner_wrapper.use_clip_grad"
        out.put("optimizer.max_grad_norm", (norm or 1.0) if clip else None, note)
        source.drop("runner_wrapper.max_grad_norm", "use_clip_grad is not true")


def _adamw(source: Source, out: Imported, kind: str) -> None:
    out.put("optimizer.type", "AdamW", f"optimizer.type {source.take('optimizer.type')}")
    adam_weight_decay = kind.endswith("WeightDecay")
    if adam_weight_decay:
        out.differences.append(f"{kind} has no bias correction; AdamW has, so the first steps are larger here")
    if source.get("optimizer.betas") is not None:
        betas, note = source.take("optimizer.betas"), "optimizer.betas"
    else:
        given = (source.take("optimizer.beta1"), source.take("optimizer.beta2"))
        betas = [given[0] if given[0] is not None else 0.9, given[1] if given[1] is not None else 0.999]
        note = "optimizer.beta1, beta2" if any(beta is not None for beta in given) else "MindFormers' default"
    out.put("optimizer.betas", betas, note)
    defaults = {"eps": 1e-6 if adam_weight_decay else 1e-8, "weight_decay": 0.0}
    for key, default in defaults.items():
        path = f"optimizer.{key}"
        value = source.take(path)
        out.put(path, default if value is None else value, "MindFormers' default" if value is None else path)


def schedule(source: Source, out: Imported) -> None:
    """lr_schedule."""
    if source.get("lr_schedule") is None:
        return
    kind = source.get("lr_schedule.type")
    if not isinstance(kind, str) or kind not in _SCHEDULES or source.get("lr_schedule.num_cycles") not in (None, 0.5):
        source.drop("lr_schedule", f"{kind} with these settings has no counterpart; set lr_schedule yourself")
        return
    shape = _SCHEDULES[kind]
    out.put("lr_schedule.type", shape, f"lr_schedule.type {source.take('lr_schedule.type')}")
    source.take("lr_schedule.num_cycles")
    out.differences.append("MindFormers counts the steps of lr_schedule from 0, msllm from 1: the rate is a step ahead")
    total = source.get("lr_schedule.total_steps")
    if is_count(total):
        out.put("lr_schedule.total_steps", source.take("lr_schedule.total_steps"), "lr_schedule.total_steps")
    else:
        total = None
        source.drop("lr_schedule.total_steps", "it stands for epochs x rows; msllm takes training.train_steps")
    _steps(source, out, "warmup", "lr_schedule.warmup_steps", total)
    if shape == "wsd":
        start = _steps(source, out, "decay_start", None, total)
        if start is not None and total is not None:
            out.put("lr_schedule.decay_steps", total - start, "total_steps - decay_start_steps")
    if shape in ("cosine", "wsd"):
        end = source.take("lr_schedule.lr_end")
        default = 0.0 if shape == "cosine" else 1e-7
        out.put("lr_schedule.lr_end", default if end is None else end, "lr_schedule.lr_end" if end is not None else
                "MindFormers' default")  # fmt: skip
    source.drop("lr_schedule.lr_end", f"{kind} does not use it")
    if is_on(source.get("lr_schedule.warmup_lr_init")):
        source.drop("lr_schedule.warmup_lr_init", "the warmup starts from 0")
    else:
        source.take("lr_schedule.warmup_lr_init")


def _steps(source: Source, out: Imported, phase: str, target: str | None, total: int | None) -> int | None:
    """`<phase>_steps`, or `<phase>_ratio` of the total, which wins in MindFormers; None where it cannot be known."""
    ratio_path, steps_path = f"lr_schedule.{phase}_ratio", f"lr_schedule.{phase}_steps"
    ratio, steps, path = source.get(ratio_path), source.get(steps_path), steps_path
    if ratio is not None:
        path = ratio_path
        source.drop(steps_path, f"{phase}_ratio wins over it")
        if ratio == 0:
            steps = 0
        elif total is not None and is_number(ratio):
            steps = int(total * ratio)
        else:
            source.drop(
                ratio_path, f"{ratio} of a number of steps that the file does not say; set {target or steps_path}"
            )
            return None
    if steps is None:
        return None
    source.take(path)
    if target is not None:
        out.put(target, steps, f"{path} {ratio}" if path == ratio_path else path)
    return steps


def precision(source: Source, out: Imported) -> None:
    """compute_dtype of the model, and the loss scale of runner_wrapper."""
    dtype, note = source.get(f"{MODEL}.compute_dtype"), f"{MODEL}.compute_dtype"
    if dtype is None and source.get(f"{MODEL}.type") == "LlamaConfig":
        dtype, note = "float16", "MindFormers' default"
    if dtype in ("float16", "bfloat16", "float32"):
        source.take(f"{MODEL}.compute_dtype")
        level = "O0" if dtype == "float32" else "O2"
        out.put(
            "training.amp_level", level, "norms, softmax and loss in float32" if level == "O2" else "all in float32"
        )
        out.put("training.compute_dtype", dtype, note)
    scale = "runner_wrapper.scale_sense"
    value = source.get(scale)
    if value is None:
        return
    if dtype != "float16":
        source.drop(scale, f"loss scaling is for float16, and compute_dtype is {dtype or 'not in the file'}")
    elif isinstance(value, dict) and value.get("type") == "DynamicLossScaleUpdateCell":
        keys = ("loss_scale_value", "scale_factor", "scale_window")
        out.put("training.loss_scale", {key: value[key] for key in keys if key in value}, scale)
        source.take(scale)
    else:
        source.drop(scale, "float16 needs a dynamic loss scale here; set training.loss_scale, {} for its defaults")


def run(source: Source, out: Imported) -> None:
    """seed, context.device_target, sink, data loading and checkpoints."""
    pairs = {
        "seed": "training.seed",
        "context.device_target": "training.device_target",
        f"{MODEL}.seq_length": "data.seq_length",
        "train_dataset.data_loader.shuffle": "data.shuffle",
        "train_dataset.num_parallel_workers": "data.num_parallel_workers",
        "train_dataset.prefetch_size": "data.prefetch_size",
    }
    for path, target in pairs.items():
        if source.get(path) is not None:
            out.put(target, source.take(path), path)
    sink = source.get("runner_config.sink_size")
    if is_count(sink) and is_on(source.get("runner_config.sink_mode")):
        out.put("training.sink_size", sink, "runner_config.sink_size")
        source.take("runner_config.sink_size")
        source.take("runner_config.sink_mode")
    callbacks = source.get("callbacks")
    for callback in callbacks if isinstance(callbacks, list) else []:
        # The real files have both spellings.
        if isinstance(callback, dict) and callback.get("type") in ("CheckpointMonitor", "CheckpointMointor"):
            for key, target in (("save_checkpoint_steps", "save_steps"), ("keep_checkpoint_max", "keep_last")):
                if callback.get(key) is not None:
                    out.put(f"checkpoint.{target}", callback[key], f"callbacks, {callback['type']}.{key}")


RUN_RULES = (parallel, recompute, batch, optimizer, schedule, precision, run)
