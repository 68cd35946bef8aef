"""Rules of a strategy: what the compiler would refuse late or obscurely, or accept and compute wrongly or in vain."""

from __future__ import annotations

import math
from collections.abc import Iterator

from msllm.config.messages import show_value
from msllm.config.origin import Fault
from msllm.config.remedies import around, divisors, one_of
from msllm.config.sections import (
    DataConfig,
    ModelConfig,
    ParallelConfig,
    ParallelOptimizerConfig,
    RecomputeConfig,
    TrainingConfig,
)
from msllm.config.stages import layer_shares, recomputed_layers, share_offsets, stage_layer_counts

Faults = Iterator[Fault]


def device_number(parallel: ParallelConfig, devices: int, started: bool) -> Faults:
    """The product of the degrees against the devices of a job, or against the processes that were `started` for it."""
    names = ["data_parallel", "model_parallel", "context_parallel", "pipeline_stage"]
    if parallel.context_parallel == 1:
        names.remove("context_parallel")
    if parallel.device_num == devices:
        return
    replica = parallel.device_num // parallel.data_parallel
    if devices % replica == 0:
        remedy = f"set data_parallel to {devices // replica}"
    elif devices % parallel.pipeline_stage == 0:
        legal = divisors(devices // parallel.pipeline_stage)
        remedy = f"set model_parallel {one_of(legal, parallel.model_parallel)}, and data_parallel to the rest"
    else:
        remedy = (
            f"set pipeline_stage {one_of(divisors(devices), parallel.pipeline_stage)}, and data_parallel to the rest"
        )
    product = " x ".join(f"{name} ({getattr(parallel, name)})" for name in names)
    needed = parallel.device_num
    kind = "processes started" if started else "devices"
    other = f"start them with `msrun --worker_num {needed} ...`" if started else f"take {needed} devices"
    yield Fault(
        f"{product} = {needed} must equal the number of {kind} ({devices}); {remedy}, or {other}",
        tuple(f"parallel_config.{name}" for name in names),
    )


def data_parallel_only(parallel: ParallelConfig) -> Faults:
    """What `msllm train` does not carry out on CPU, where MindSpore has no kernels to cut a network."""
    told = "CPU trains data-parallel only: prove this strategy with `msllm rehearse run`, or"
    for name in ("model_parallel", "pipeline_stage"):
        degree = getattr(parallel, name)
        if degree > 1:
            yield Fault(f"{name} ({degree}) needs Ascend; {told} set {name} to 1", (f"parallel_config.{name}",))
    if parallel.enable_parallel_optimizer:
        message = f"enable_parallel_optimizer (true) needs Ascend; {told} set it to false"
        yield Fault(message, ("parallel_config.enable_parallel_optimizer",))


def model_parallel(model: ModelConfig, parallel: ParallelConfig) -> Faults:
    """Every size that tensor parallelism divides."""
    degree = parallel.model_parallel
    cut = model.cut_by_model_parallel()
    if parallel.vocab_emb_dp:
        cut.pop("vocab_size", None)
    legal = divisors(math.gcd(*(value for name, value in cut.items() if name != "vocab_size")))
    for name, value in cut.items():
        if value % degree == 0:
            continue
        if name == "vocab_size":
            remedy = f"set vocab_size to {(value // degree + 1) * degree} (rows are added) or vocab_emb_dp to true"
        else:
            remedy = f"set model_parallel {one_of(legal, degree)}"
        message = f"{name} ({value}) must be divisible by model_parallel ({degree}); {remedy}"
        yield Fault(message, (f"model.{name}", "parallel_config.model_parallel"))


def parallel_alone(parallel: ParallelConfig) -> Faults:
    """Switches that need a degree, and degrees that are not built."""
    if parallel.context_parallel > 1:
        yield Fault(
            f"context_parallel ({parallel.context_parallel}) is not built yet; set context_parallel to 1, and for long "
            "sequences use model_parallel with use_seq_parallel and recompute",
            ("parallel_config.context_parallel",),
        )
    if parallel.use_seq_parallel and parallel.model_parallel == 1:
        yield Fault(
            "use_seq_parallel (true) needs model_parallel (1) greater than 1; "
            "set use_seq_parallel to false or model_parallel to 2 or more",
            ("parallel_config.use_seq_parallel", "parallel_config.model_parallel"),
        )
    if parallel.enable_parallel_optimizer and parallel.data_parallel == 1:
        yield Fault(
            "enable_parallel_optimizer (true) needs data_parallel (1) greater than 1; "
            "set enable_parallel_optimizer to false or data_parallel to 2 or more",
            ("parallel_config.enable_parallel_optimizer", "parallel_config.data_parallel"),
        )
    if not parallel.enable_parallel_optimizer and parallel.parallel_optimizer_config != ParallelOptimizerConfig():
        yield Fault(
            "parallel_optimizer_config changes nothing with enable_parallel_optimizer (false); "
            "remove it or set enable_parallel_optimizer to true",
            ("parallel_config.parallel_optimizer_config", "parallel_config.enable_parallel_optimizer"),
        )


def experts(model: ModelConfig, parallel: ParallelConfig) -> Faults:
    """No model of this version has experts; a mixture will bring its own field and rule."""
    if parallel.expert_parallel > 1:
        yield Fault(
            f"expert_parallel ({parallel.expert_parallel}) needs a mixture of experts, and {model.model_type} has none; "
            "set expert_parallel to 1",
            ("model.model_type", "parallel_config.expert_parallel"),
        )


def micro_batches(parallel: ParallelConfig) -> Faults:
    """A pipeline is filled with micro batches. Under lazy_inline the framework compiles too few of them without a word."""
    stages, micro, chunks = parallel.pipeline_stage, parallel.micro_batch_num, parallel.pp_interleave_num
    fields = ("parallel_config.micro_batch_num", "parallel_config.pipeline_stage")
    if stages > 1 and micro < stages:
        yield Fault(
            f"micro_batch_num ({micro}) must be at least pipeline_stage ({stages}); set micro_batch_num to {stages} or more",
            fields,
        )
    elif chunks > 1 and stages > 1 and micro % stages:
        yield Fault(
            f"micro_batch_num ({micro}) must be divisible by pipeline_stage ({stages}) where pp_interleave_num ({chunks}) "
            f"is above 1; set micro_batch_num to {around(micro, stages)}",
            (*fields, "parallel_config.pp_interleave_num"),
        )
    if chunks > 1 and stages == 1:
        yield Fault(
            f"pp_interleave_num ({chunks}) needs pipeline_stage (1) greater than 1; "
            "set pp_interleave_num to 1 or pipeline_stage to 2 or more",
            ("parallel_config.pp_interleave_num", "parallel_config.pipeline_stage"),
        )


def accumulation(training: TrainingConfig, parallel: ParallelConfig) -> Faults:
    """The micro batches of a pipeline are its accumulation."""
    steps, stages, micro = training.gradient_accumulation_steps, parallel.pipeline_stage, parallel.micro_batch_num
    if steps > 1 and stages > 1:
        yield Fault(
            f"gradient_accumulation_steps ({steps}) must be 1 with pipeline_stage ({stages}), whose micro batches are "
            f"accumulated; set gradient_accumulation_steps to 1 and micro_batch_num to {micro * steps}",
            (
                "training.gradient_accumulation_steps",
                "parallel_config.pipeline_stage",
                "parallel_config.micro_batch_num",
            ),
        )


def batch(training: TrainingConfig, parallel: ParallelConfig) -> Faults:
    """The global batch is dealt out over data_parallel, and each share in parts that follow each other."""
    factors = {"parallel_config.data_parallel": parallel.data_parallel}
    if parallel.pipeline_stage > 1:
        factors["parallel_config.micro_batch_num"] = parallel.micro_batch_num
    else:
        factors["training.gradient_accumulation_steps"] = training.gradient_accumulation_steps
    divisor = math.prod(factors.values())
    size = training.global_batch_size
    if size % divisor:
        product = " x ".join(f"{path.partition('.')[2]} ({value})" for path, value in factors.items())
        yield Fault(
            f"global_batch_size ({size}) must be divisible by {product} = {divisor}; "
            f"set global_batch_size to {around(size, divisor)}",
            ("training.global_batch_size", *factors),
        )


def sequence_cut(data: DataConfig, parallel: ParallelConfig) -> Faults:
    """Sequence parallelism keeps an equal part of each sequence on each device."""
    degree = parallel.model_parallel
    if parallel.use_seq_parallel and data.seq_length % degree:
        yield Fault(
            f"seq_length ({data.seq_length}) must be divisible by model_parallel ({degree}) under use_seq_parallel; "
            f"set seq_length to {around(data.seq_length, degree)}",
            ("data.seq_length", "parallel_config.model_parallel", "parallel_config.use_seq_parallel"),
        )


def tied_under_pipeline(model: ModelConfig, parallel: ParallelConfig) -> Faults:
    """One matrix cannot live on the first and on the last stage."""
    if model.ties_embeddings and parallel.pipeline_stage > 1:
        field = "tie_word_embeddings" if "tie_word_embeddings" in type(model).model_fields else "model_type"
        remedy = " or tie_word_embeddings to false" if field == "tie_word_embeddings" else ""
        yield Fault(
            f"{field} ({show_value(getattr(model, field))}) makes embedding and head one matrix, which pipeline_stage "
            f"({parallel.pipeline_stage}) would put on two stages; set pipeline_stage to 1{remedy}",
            (f"model.{field}", "parallel_config.pipeline_stage"),
        )


def layers(model: ModelConfig, parallel: ParallelConfig) -> Faults:
    """Every stage has at least one layer in each of its chunks, and together they have all."""
    shape_faults = list(_offset_shape(parallel))
    yield from shape_faults
    if shape_faults:
        return
    number = model.num_hidden_layers
    shares = parallel.pipeline_stage * parallel.pp_interleave_num
    even, rest = divmod(number, shares)
    fields = ["model.num_hidden_layers", "parallel_config.pipeline_stage"]
    product = f"pipeline_stage ({parallel.pipeline_stage})"
    if parallel.pp_interleave_num > 1:
        fields.append("parallel_config.pp_interleave_num")
        product += f" x pp_interleave_num ({parallel.pp_interleave_num}) = {shares}"
    offsets = share_offsets(parallel)
    if even == 0 or (rest and not any(map(any, offsets))):
        legal = [stages for stages in divisors(number) if number % (stages * parallel.pp_interleave_num) == 0]
        remedies = [f"set pipeline_stage {one_of(legal, parallel.pipeline_stage)}"] if legal else []
        remedies += [f"set offset to {_spread(parallel, rest)}"] if even else []
        remedies = remedies or [f"set num_hidden_layers to {around(number, shares)}"]
        yield Fault(
            f"num_hidden_layers ({number}) must be divisible by {product}; {' or '.join(remedies)}", tuple(fields)
        )
    elif sum(map(sum, offsets)) != rest:
        yield Fault(
            f"offset ({show_offset(parallel)}) adds up to {sum(map(sum, offsets))}, and must add up to {rest}: what "
            f"num_hidden_layers ({number}) leaves after {even} for each of {product}; "
            f"set it to {_spread(parallel, rest)} or to others with that sum",
            (*fields, "parallel_config.offset"),
        )
    else:
        for chunk, row in enumerate(layer_shares(number, parallel)):
            for stage, share in enumerate(row):
                if share < 1:
                    where = f"stage {stage}" + (f", interleave {chunk}" if parallel.pp_interleave_num > 1 else "")
                    yield Fault(
                        f"offset ({show_offset(parallel)}) leaves {where} with {share} layers of num_hidden_layers "
                        f"({number}), and each needs at least 1; set its number to {1 - even} or more",
                        ("parallel_config.offset", *fields),
                    )


def _offset_shape(parallel: ParallelConfig) -> Faults:
    stages, chunks, offset = parallel.pipeline_stage, parallel.pp_interleave_num, parallel.offset
    fields = ("parallel_config.offset", "parallel_config.pipeline_stage")
    shown = show_offset(parallel)
    if isinstance(offset, int):
        if offset:
            example = f"a list with one number for each of pipeline_stage ({stages})" if stages > 1 else "0"
            yield Fault(f"offset ({shown}) would be added to every stage; set offset to 0 or to {example}", fields)
        return
    nested = any(isinstance(row, tuple) for row in offset)
    if nested and len(offset) != chunks:
        yield Fault(
            f"offset ({shown}) has {len(offset)} lists, and must have one for each of pp_interleave_num ({chunks}); "
            "add or remove lists",
            ("parallel_config.offset", "parallel_config.pp_interleave_num"),
        )
    rows = share_offsets(parallel)
    wrong = next((row for row in rows if len(row) != stages), None)
    if wrong is not None:
        yield Fault(
            f"offset ({shown}) has {len(wrong)} numbers in a list, and must have one for each of pipeline_stage ({stages}); "
            "set offset to 0 or to a list of that length",
            fields,
        )
    elif stages == 1 and any(map(any, rows)):
        yield Fault(f"offset ({shown}) changes nothing with pipeline_stage (1); set offset to 0", fields)


def show_offset(parallel: ParallelConfig) -> str:
    """`offset` as YAML writes it."""
    return str(parallel.model_dump(mode="json")["offset"])


def _spread(parallel: ParallelConfig, rest: int) -> list[list[int]] | list[int]:
    """An offset that gives one more layer to `rest` shares, from the second on: the first holds the embedding too."""
    stages, chunks = parallel.pipeline_stage, parallel.pp_interleave_num
    flat = [int(1 <= share <= rest) for share in range(stages * chunks)]
    rows = [flat[chunk * stages : (chunk + 1) * stages] for chunk in range(chunks)]
    return rows if chunks > 1 else rows[0]


def recompute_counts(model: ModelConfig, parallel: ParallelConfig, recompute: RecomputeConfig) -> Faults:
    """Counts stand for layers that exist, and the selective ones for layers that are left."""
    if list(layers(model, parallel)):
        return
    held = stage_layer_counts(model.num_hidden_layers, parallel)
    faults = [
        fault
        for key in ("recompute", "select_recompute")
        for fault in _counts_of_stages(key, recompute, parallel, held)
    ]
    yield from faults
    selective = recompute.select_recompute
    wanted = selective if isinstance(selective, bool) else any(selective)
    if wanted and not faults and not recomputed_layers(model.num_hidden_layers, parallel, recompute)[1]:
        yield Fault(
            f"select_recompute ({_shown(selective)}) changes nothing: all of its layers are in recompute "
            f"({_shown(recompute.recompute)}); set select_recompute to false",
            ("recompute_config.select_recompute", "recompute_config.recompute"),
        )


def _counts_of_stages(key: str, recompute: RecomputeConfig, parallel: ParallelConfig, held: tuple[int, ...]) -> Faults:
    counts = getattr(recompute, key)
    if isinstance(counts, bool):
        return
    fields = (f"recompute_config.{key}", "parallel_config.pipeline_stage")
    if len(counts) != len(held):
        yield Fault(
            f"{key} ({_shown(counts)}) has {len(counts)} numbers, and must have one for each of pipeline_stage "
            f"({parallel.pipeline_stage}); set {key} to true or to a list of that length",
            fields,
        )
        return
    for stage, (count, there) in enumerate(zip(counts, held)):
        if count > there:
            yield Fault(
                f"{key} ({_shown(counts)}) wants {count} layers of stage {stage}, which has {there}; "
                f"set its number to {there} or less",
                (*fields, "model.num_hidden_layers"),
            )


def _shown(counts: bool | tuple[int, ...]) -> str:
    return show_value(counts if isinstance(counts, bool) else list(counts))
