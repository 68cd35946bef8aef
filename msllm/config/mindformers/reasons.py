"""Why a key of a MindFormers YAML that no rule took is not carried over."""

from __future__ import annotations

import re

from msllm.config.mindformers.report import Source

_GENERATION = (
    r"model\.model_config\.(\w+_token_id|repetition_penalty|max_decode_length|max_new_tokens|top_[kp]|do_sample)$",
    r"model\.model_config\.(use_past\w*|use_cache|block_size|num_blocks|is_dynamic|batch_size|chunk_prefill|quant\w*)$",
    r"model\.generation_config|processor|infer|predict|input_data|adapter_id",
)
_PRECISION = (
    r"model\.model_config\.(layernorm_compute|softmax_compute|rotary_dtype|param_init|params_|residual_dtype)",
    r"model\.model_config\.(fp32_residual|embedding_init|router_dense)",
)
_FILES = (
    r"model\.model_config\.checkpoint_name_or_path|load_|src_strategy|auto_trans|only_save|resume_|output_dir",
    r"remote_save|save_file|ignore_data_skip|data_skip_steps",
)
# Reason and the patterns that it is for, matched from the start of a path; the first match gives the reason.
_REASONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("it concerns generation or tokenizing, which msllm sets elsewhere", _GENERATION),
    ("weights, norms, softmax and rotary positions are in float32 here", _PRECISION),
    ("where a run starts from and writes to is said on the command line", _FILES),
    ("fine-tuning with adapters is not part of this version", (r"model\.model_config\.pet_config|pet_config",)),
    ("how a network is computed is decided by msllm, or it is no setting of training", (r"model\.",)),
    (
        "what is run, and on which data, is said by the command and data:",
        (r"trainer|run_mode|use_legacy|do_eval|eval_|metric|use_parallel|pretrained_model_dir|train_dataset",),
    ),
    ("msllm counts steps: set training.train_steps to epochs x rows / global_batch_size", (r"runner_config\.epochs",)),
    ("only a sink_size above 0 with sink_mode true has a counterpart", (r"runner_config\.sink",)),
    ("the training step is msllm's own", ("runner_wrapper",)),
    ("metrics and checkpoints are always written", ("callbacks|monitor_config|tensorboard|use_graceful|stable_rank",)),
    ("options of the framework's context are set by msllm", ("context",)),
    ("it has no counterpart in recompute_config: of msllm", ("recompute_config",)),
    ("swapping to host memory is not part of this version", ("swap_config",)),
    ("the parallel context is derived from parallel_config", (r"parallel\.|dataset_strategy",)),
    ("context_parallel has one algorithm", (r"parallel_config\.(context_parallel_algo|ulysses)",)),
    ("no model of this version has experts", ("moe_config",)),
    (
        "profiling and tuning are not part of a configuration",
        ("profile|init_start_profile|auto_?tune|filepath_prefix",),
    ),
    ("all layers have the same learning rate", ("layer_scale|layer_decay|lr_scale",)),
)


def drop_the_rest(source: Source) -> None:
    """Give a reason to every value that no rule has decided on; null means that nothing was given."""
    for leaf, value in source.leaves().items():
        if value is None:
            source.fates[leaf] = None
        elif not source.is_decided(leaf):
            fitting = (reason for reason, patterns in _REASONS if any(re.match(pattern, leaf) for pattern in patterns))
            source.fates[leaf] = next(fitting, "it has no counterpart in msllm")
