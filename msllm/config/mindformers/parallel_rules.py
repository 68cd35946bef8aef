"""What a strategy of MindFormers becomes: parallel_config, parallel, recompute_config and the stages of model_config."""

from __future__ import annotations

from typing import Any

from msllm.config.mindformers.report import Imported, Source, is_count, is_on
from msllm.config.sections import ParallelConfig, ParallelOptimizerConfig

MODEL = "model.model_config"
OPTIMIZER_DETAILS = "parallel.parallel_optimizer_config"

# Finer settings of recompute_config -> the value that stands for what msllm does.
_RECOMPUTE_DETAILS = {
    "parallel_optimizer_comm_recompute": False,
    "mp_comm_recompute": True,
    "recompute_slice_activation": False,
    "select_comm_recompute": False,
    "select_recompute_exclude": False,
    "select_comm_recompute_exclude": False,
}


def parallel(source: Source, out: Imported) -> None:
    """parallel_config, and what belongs to it in parallel and model_config."""
    if source.get("parallel_config") is None:
        return
    if source.get("use_parallel") is False:
        source.drop("parallel_config", "use_parallel is false, so MindFormers does not read it")
        return
    mode = source.get("parallel.parallel_mode")
    if mode in (2, "auto_parallel"):
        source.drop("parallel_config", "parallel_mode 2 searches a strategy; the degrees here are not what is run")
        return
    defaults = {"vocab_emb_dp": True}
    for key in ParallelConfig.model_fields:
        path = f"parallel_config.{key}"
        if source.get(path) is not None:
            out.put(path, source.take(path), path)
        elif key in defaults:
            out.put(path, defaults[key], "MindFormers' default")
    if source.get("parallel.enable_parallel_optimizer") is not None:
        path = "parallel.enable_parallel_optimizer"
        out.put("parallel_config.enable_parallel_optimizer", source.take(path), path)
    _stages(source, out)
    _leave_out_what_has_no_effect(source, out)
    _optimizer_details(source, out)


def _stages(source: Source, out: Imported) -> None:
    """model_config.offset and pp_interleave_num; the second counts where parallel.pipeline_config switches it on."""
    if out.get("parallel_config.pipeline_stage", 1) == 1:
        for key in ("offset", "pp_interleave_num"):
            source.drop(f"{MODEL}.{key}", "it has no effect with pipeline_stage 1")
        source.drop("parallel.pipeline_config", "it has no effect with pipeline_stage 1")
        return
    scheduler = source.get("parallel.pipeline_config.pipeline_scheduler")
    chunks = source.get(f"{MODEL}.pp_interleave_num")
    if not is_on(source.take("parallel.pipeline_config.pipeline_interleave")) and chunks != 1:
        reason = "parallel.pipeline_config.pipeline_interleave is not true, so MindFormers does not interleave"
        source.drop(f"{MODEL}.pp_interleave_num", reason)
    elif scheduler not in (None, "1f1b"):
        source.drop(f"{MODEL}.pp_interleave_num", f"pipeline_scheduler is {scheduler}, and msllm has 1f1b")
    if scheduler == "1f1b":
        source.take("parallel.pipeline_config.pipeline_scheduler")
    source.drop("parallel.pipeline_config", "the pipeline's schedule is 1f1b")
    for key in ("offset", "pp_interleave_num"):
        path = f"{MODEL}.{key}"
        if source.get(path) is not None and not source.is_decided(path):
            out.put(f"parallel_config.{key}", source.take(path), path)


def _leave_out_what_has_no_effect(source: Source, out: Imported) -> None:
    """MindFormers accepts switches that do nothing at the given degrees; they are errors here."""
    idle = (
        ("use_seq_parallel", "model_parallel", "parallel_config.use_seq_parallel"),
        ("enable_parallel_optimizer", "data_parallel", "parallel.enable_parallel_optimizer"),
        ("micro_batch_num", "pipeline_stage", "parallel_config.micro_batch_num"),
    )
    for key, degree, path in idle:
        value = out.get(f"parallel_config.{key}")
        if out.get(f"parallel_config.{degree}", 1) == 1 and (value is True or (is_count(value) and value > 1)):
            del out.values["parallel_config"][key]
            source.fates[path] = f"it has no effect with {degree} 1"


def _optimizer_details(source: Source, out: Imported) -> None:
    if out.get("parallel_config.enable_parallel_optimizer") is not True:
        source.drop(OPTIMIZER_DETAILS, "it has no effect without enable_parallel_optimizer")
        return
    details = {
        key: source.take(f"{OPTIMIZER_DETAILS}.{key}")
        for key in ParallelOptimizerConfig.model_fields
        if source.get(f"{OPTIMIZER_DETAILS}.{key}") is not None
    }
    if details:
        out.put("parallel_config.parallel_optimizer_config", details, OPTIMIZER_DETAILS)
    path = f"{OPTIMIZER_DETAILS}.optimizer_weight_shard_size"
    if source.get(path) == -1:
        source.take(path)
    source.drop(path, "weights and optimizer state are cut over the whole of data_parallel")


def recompute(source: Source, out: Imported) -> None:
    """recompute_config: whole layers as they are; of select_recompute what is a switch or a number a stage."""
    if source.get("recompute_config") is None:
        return
    full = _carried_counts(source, out, "recompute")
    if full is True:
        source.drop("recompute_config.select_recompute", "recompute is true, so no layer is left for it")
    elif _carried_counts(source, out, "select_recompute") not in (None, False):
        out.differences.append("select_recompute computes norms again too, not only the feed-forward's activation")
    for key, same in _RECOMPUTE_DETAILS.items():
        path = f"recompute_config.{key}"
        if source.get(path) == same:
            source.take(path)
        source.drop(path, f"msllm recomputes as with {key} {str(same).lower()}")


def _carried_counts(source: Source, out: Imported, key: str) -> Any:
    """Carry a switch, or a list with one number of layers a stage; the carried value, None where it is left out."""
    path = f"recompute_config.{key}"
    value = source.get(path)
    if isinstance(value, bool) or (isinstance(value, list) and value and all(_is_layer_count(item) for item in value)):
        out.put(path, source.take(path), path)
        return value
    reason = "only true, false or a list with one number of layers a stage has a counterpart"
    if key == "select_recompute":
        reason = f"which operators are computed again is msllm's choice, and {reason}"
    source.drop(path, reason)
    return None


def _is_layer_count(value: Any) -> bool:
    return type(value) is int and value >= 0
