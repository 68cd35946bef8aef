"""The sections of a run's configuration: one YAML key = one field = one name.

Every section is frozen and refuses unknown keys. Ranges that concern one field stand on the field; what concerns two or
more fields stands in `checks.py`. Model fields carry Hugging Face's names, parallel fields MindFormers' names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError, WrapValidator
from pydantic_core import PydanticCustomError

PositiveInt = Annotated[int, Field(gt=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


def _one_message(text: str) -> WrapValidator:
    """For a value of several forms: one sentence about all of them, in the place of an error for each."""

    def validate(value: Any, handler: Any) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise PydanticCustomError("forms", "{text}", {"text": text}) from None

    return WrapValidator(validate)


# Lists are not strict, as YAML and JSON have no tuples; the numbers inside stay strict.
Integers = Annotated[tuple[int, ...], Strict(False)]
LayerOffsets = Annotated[
    int | Integers | Annotated[tuple[Integers, ...], Strict(False)],
    _one_message("must be 0, or a list with one whole number a stage, or one such list for each of pp_interleave_num"),
]
LayerCounts = Annotated[
    bool | Annotated[tuple[NonNegativeInt, ...], Strict(False)],
    _one_message("must be true, false, or a list with one number of layers a stage"),
]


class Section(BaseModel):
    """A frozen group of fields; `strict` keeps `"8"` from becoming 8 and `true` from becoming 1."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


@dataclass(frozen=True)
class LayerShape:
    """What a decoder layer is made of, in numbers that estimates need."""

    query: int
    """Width of all query heads."""
    key_value: int
    """Width of all key heads, and of all value heads."""
    inner: int
    """Width inside the feed-forward block."""
    gated: bool = True
    """Two matrices into the feed-forward block, the product of their results out of it; or one, and an activation."""
    biased: bool = False
    """Matrices and norms have biases."""
    rotary: bool = True
    """Positions turn queries and keys, in the place of a table of positions."""


class ModelConfig(Section):
    """What every model has. A model adds its own fields in `models/<name>/config.py`."""

    supports_kv_cache: ClassVar[bool] = True

    model_type: str
    """Name of a model in the registry, as in Hugging Face's config.json."""
    vocab_size: PositiveInt
    """Rows of the embedding; at least the tokenizer's vocabulary."""
    hidden_size: PositiveInt
    """Width of the residual stream."""
    num_hidden_layers: PositiveInt
    """Number of decoder blocks."""
    num_attention_heads: PositiveInt
    """Query heads of each block."""
    max_position_embeddings: PositiveInt
    """Longest sequence that the model may be given, in tokens."""
    initializer_range: PositiveFloat = 0.02
    """Standard deviation of the normal distribution that the weights start from."""

    @property
    def ties_embeddings(self) -> bool:
        """Whether embedding and head are one matrix."""
        return False

    @property
    def layer_shape(self) -> LayerShape:
        """Sizes of a layer; those of a plain transformer where a model does not say otherwise."""
        return LayerShape(
            self.hidden_size, self.hidden_size, 4 * self.hidden_size, gated=False, biased=True, rotary=False
        )

    def problems(self) -> list[tuple[str, str]]:
        """Faults between this section's own fields, as (field, message)."""
        found = []
        if self.hidden_size % self.num_attention_heads and getattr(self, "head_dim", None) is None:
            found.append(
                (
                    "hidden_size",
                    f"hidden_size ({self.hidden_size}) must be divisible by num_attention_heads ({self.num_attention_heads})",
                )
            )
        return found

    def cut_by_model_parallel(self) -> dict[str, int]:
        """Field -> value of every size that tensor parallelism divides."""
        return {"num_attention_heads": self.num_attention_heads, "vocab_size": self.vocab_size}


class DataConfig(Section):
    """What is read, and in which order."""

    train_dataset: str
    """Folder that `msllm data convert` wrote."""
    eval_dataset: str | None = None
    """Folder of held-out text, converted with the same tokenizer and seq_length; null: no evaluation."""
    seq_length: PositiveInt
    """Tokens of a sample that are predicted; a row on disk holds one more."""
    shuffle: bool = True
    """Read rows in an order drawn from training.seed, another one each epoch; false: as they lie on disk."""
    num_parallel_workers: PositiveInt = 1
    """Threads that read and decode rows; at most the machine's cores."""
    prefetch_size: PositiveInt = 8
    """Batches kept ready ahead of the training step."""


class OptimizerConfig(Section):
    """AdamW with decoupled weight decay (Loshchilov and Hutter 2019), clipped by the global norm."""

    type: Literal["AdamW"] = "AdamW"
    """Kind of optimizer."""
    learning_rate: PositiveFloat = 3.0e-4
    """Peak learning rate; lr_schedule shapes it over the run."""
    # Not strict, as YAML and JSON have lists only; the two numbers stay strict.
    betas: Annotated[tuple[Fraction, Fraction], Strict(False)] = (0.9, 0.95)
    """Decay of the first and second moment."""
    eps: PositiveFloat = 1.0e-8
    """Added to the root of the second moment."""
    weight_decay: NonNegativeFloat = 0.1
    """Applied to matrices; norms and biases have none."""
    max_grad_norm: PositiveFloat | None = 1.0
    """Gradients are scaled down to this global norm; null: never."""


class LrScheduleConfig(Section):
    """Learning rate as a function of the global step: warmup, then one of four shapes."""

    type: Literal["cosine", "linear", "constant", "wsd"] = "cosine"
    """Shape after the warmup; wsd stays at the peak and falls in the last decay_steps."""
    warmup_steps: NonNegativeInt = 0
    """Steps in which the rate climbs from 0 to optimizer.learning_rate."""
    lr_end: NonNegativeFloat = 0.0
    """Rate at the last step of cosine, linear and wsd."""
    decay_steps: PositiveInt | None = None
    """wsd: steps of the final fall, a linear one; null: a tenth of total_steps."""
    total_steps: PositiveInt | None = None
    """Step at which the shape ends; null: training.train_steps."""


class LossScaleConfig(Section):
    """Dynamic loss scale for float16, as MindSpore's DynamicLossScaleManager."""

    loss_scale_value: PositiveFloat = 65536.0
    """Scale at the first step."""
    scale_factor: Annotated[float, Field(gt=1)] = 2.0
    """The scale is divided by it after an overflow and multiplied by it after scale_window clean steps."""
    scale_window: PositiveInt = 1000
    """Clean steps before the scale grows."""


class TrainingConfig(Section):
    """How long, in which batches, in which precision and on what."""

    seed: Annotated[int, Field(ge=0, lt=1 << 32)] = 42
    """Draws the weights and the order of the data."""
    train_steps: PositiveInt
    """Optimizer steps of the whole run; a resumed run ends at the same step."""
    global_batch_size: PositiveInt
    """Samples of one optimizer step over all devices."""
    gradient_accumulation_steps: PositiveInt = 1
    """Forward and backward passes whose gradients are averaged before one optimizer step."""
    amp_level: Literal["O0", "O1", "O2", "O3"] = "O0"
    """O0: all float32. O1: matrix products in compute_dtype. O2: all but norms, softmax and loss. O3: all but the loss."""
    compute_dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    """Precision that amp_level brings in; float32 exactly where amp_level is O0."""
    loss_scale: LossScaleConfig | None = None
    """Required with float16, of no use elsewhere."""
    max_consecutive_overflows: PositiveInt = 100
    """float16: steps without an update in a row after which the run stops."""
    device_target: Literal["auto", "CPU", "Ascend"] = "auto"
    """auto: Ascend where a card can be used, CPU elsewhere."""
    chip: str | None = None
    """Chip whose limits the config is checked against, as 910B; null: the one of device_target."""
    sink_size: PositiveInt = 1
    """Ascend: steps that run on the device between two looks from the host."""
    log_steps: PositiveInt = 1
    """A console line every so many steps; metrics.jsonl has every step."""
    eval_steps: PositiveInt | None = None
    """Steps between two evaluations on data.eval_dataset; null: only at the end."""
    eval_batches: PositiveInt | None = None
    """Rows of one evaluation, in global batches of training; null: the whole of data.eval_dataset."""


class CheckpointConfig(Section):
    """When a full state is written and how long it is kept."""

    save_steps: PositiveInt = 100
    """Steps between two checkpoints; the last step is always saved."""
    keep_last: PositiveInt = 3
    """Newest checkpoints that are kept."""
    keep_every: PositiveInt | None = None
    """Checkpoints at multiples of this step are kept for good; null: none."""


class ParallelOptimizerConfig(Section):
    """Details of enable_parallel_optimizer."""

    parallel_optimizer_threshold: NonNegativeInt = 64
    """Parameters smaller than this many KB stay whole."""
    gradient_accumulation_shard: bool = False
    """Keep the accumulated gradients cut too: less memory, a ReduceScatter for every micro batch."""


class ParallelConfig(Section):
    """How the work is cut over devices: MindFormers' own keys, so that its blocks can be pasted."""

    data_parallel: PositiveInt = 1
    """Copies of the model, each with its own share of global_batch_size."""
    model_parallel: PositiveInt = 1
    """Devices that share every weight matrix (tensor parallel)."""
    context_parallel: PositiveInt = 1
    """Devices that share one sequence; not built yet, so 1."""
    expert_parallel: PositiveInt = 1
    """Devices that share the experts of a mixture."""
    pipeline_stage: PositiveInt = 1
    """Groups of consecutive layers on devices of their own."""
    micro_batch_num: PositiveInt = 1
    """Parts of a batch that follow each other through the pipeline; of no use with one stage."""
    pp_interleave_num: PositiveInt = 1
    """Groups of layers that each stage holds: 2 or more halves the idle time at each doubling, for more communication."""
    offset: LayerOffsets = 0
    """Layers that each stage has above its even share, as [-1, 0, 0, 1], or one such list for each interleave; 0: none."""
    use_seq_parallel: bool = False
    """Cut activations between the tensor parallel blocks along the sequence."""
    vocab_emb_dp: bool = False
    """Keep the whole embedding on each device instead of cutting the vocabulary."""
    enable_parallel_optimizer: bool = False
    """Cut weights and optimizer state over data_parallel (ZeRO)."""
    parallel_optimizer_config: ParallelOptimizerConfig = ParallelOptimizerConfig()
    """Details of enable_parallel_optimizer."""
    gradient_aggregation_group: PositiveInt = 1
    """Groups into which gradient communication is fused: a hint about speed, which is left to the framework so far."""

    @property
    def device_num(self) -> int:
        """Devices that this strategy needs."""
        return self.data_parallel * self.model_parallel * self.context_parallel * self.pipeline_stage


class RecomputeConfig(Section):
    """Activations that are computed again in the backward pass instead of being kept: less memory, about a third more work."""

    recompute: LayerCounts = False
    """Whole layers: true for all, or the first so many of each pipeline stage, as [4, 3, 0, 0]."""
    select_recompute: LayerCounts = False
    """Of layers that recompute leaves out, only norms and activation function: true, or the first so many of each stage."""


class RunConfig(Section):
    """A whole run. `msllm config show` prints one with the origin of every value."""

    model: ModelConfig
    """The network."""
    data: DataConfig
    """What is read, and in which order."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """The update of the weights."""
    lr_schedule: LrScheduleConfig = LrScheduleConfig()
    """Learning rate over the run."""
    training: TrainingConfig
    """How long, in which batches, in which precision."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """When the state is written."""
    parallel_config: ParallelConfig = ParallelConfig()
    """How the work is cut over devices."""
    recompute_config: RecomputeConfig = RecomputeConfig()
    """Activations that are computed again instead of being kept."""

    @property
    def batch_size(self) -> int:
        """Samples of one forward pass on one data-parallel rank."""
        parts = self.parallel_config.data_parallel * self.training.gradient_accumulation_steps
        return self.training.global_batch_size // parts

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as they stand in a YAML file."""
        return self.model_dump(mode="json", serialize_as_any=True)
