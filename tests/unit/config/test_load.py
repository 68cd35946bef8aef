"""Files, strategy and overrides to one configuration, and what is said about faulty ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from models.gpt2.config import Gpt2Config
from models.llama.config import LlamaConfig
from msllm.config.load import load_run_config, write_resolved
from msllm.config.origin import Origin
from msllm.config.yaml_text import dump_yaml
from msllm.errors import InputError
from msllm.registry import MODEL_CONFIGS

LLAMA = """\
model:
  model_type: llama
  vocab_size: 32000
  hidden_size: 4096
  intermediate_size: 14336
  num_hidden_layers: 32
  num_attention_heads: 32
  num_key_value_heads: 8
  max_position_embeddings: 8192
"""
REST = """\
data:
  train_dataset: data/train
  seq_length: 4096
optimizer:
  learning_rate: 3e-4
training:
  train_steps: 100
  global_batch_size: 8
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder of its own as the current one, with a valid llama.yaml and rest.yaml."""
    monkeypatch.chdir(tmp_path)
    Path("llama.yaml").write_text(LLAMA)
    Path("rest.yaml").write_text(REST)
    return tmp_path


def load(*files: str, parallel: str | None = None, overrides: tuple[str, ...] = ()):
    """The loaded configuration of files in the current folder."""
    return load_run_config([Path(f) for f in files], Path(parallel) if parallel else None, overrides, MODEL_CONFIGS)


def faults(*files: str, parallel: str | None = None, overrides: tuple[str, ...] = ()) -> list[str]:
    """The messages of the InputError that loading raises."""
    with pytest.raises(InputError) as raised:
        load(*files, parallel=parallel, overrides=overrides)
    return str(raised.value).splitlines()


def test_sections_from_several_files_make_one_frozen_config(here):
    config = load("llama.yaml", "rest.yaml").config
    assert isinstance(config.model, LlamaConfig)
    assert config.model.num_key_value_heads == 8
    assert config.optimizer.learning_rate == 3e-4
    with pytest.raises(Exception, match="frozen"):
        config.training.train_steps = 5  # type: ignore[misc]


def test_model_type_selects_the_class_of_the_model(here):
    sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    Path("gpt2.yaml").write_text(dump_yaml({"model": {"model_type": "gpt2", **sizes, "max_position_embeddings": 8192}}))
    assert isinstance(load("gpt2.yaml", "rest.yaml").config.model, Gpt2Config)


def test_every_value_has_an_origin(here):
    Path("dp.yaml").write_text("parallel_config:\n  data_parallel: 2\n")
    overrides = (
        *("optimizer.betas=[0.9, 0.99]", "training.compute_dtype=float16", "training.amp_level=O2"),
        "training.loss_scale={scale_window: 10}",
    )
    loaded = load("llama.yaml", "rest.yaml", parallel="dp.yaml", overrides=overrides)
    origins = {path: origin for path, _, origin in loaded.rows()}
    assert origins["model.num_key_value_heads"] == Origin("llama.yaml", 8)
    assert origins["optimizer.learning_rate"] == Origin("rest.yaml", 5)
    assert origins["parallel_config.data_parallel"] == Origin("dp.yaml", 2)
    assert str(origins["optimizer.betas"]) == "--set optimizer.betas=[0.9, 0.99]"
    assert str(origins["training.loss_scale.scale_window"]) == "--set training.loss_scale={scale_window: 10}"
    assert str(origins["training.loss_scale.scale_factor"]) == "default"
    assert str(origins["training.seed"]) == "default"


def test_set_wins_over_the_file_even_where_the_file_is_wrong(here):
    Path("rest.yaml").write_text(REST.replace("seq_length: 4096", "seq_length: many"))
    assert load("llama.yaml", "rest.yaml", overrides=("data.seq_length=128",)).config.data.seq_length == 128


def test_set_reaches_into_a_nested_group_and_can_drop_it(here):
    overrides = ("training.compute_dtype=float16", "training.amp_level=O2")
    config = load("llama.yaml", "rest.yaml", overrides=(*overrides, "training.loss_scale.scale_window=7")).config
    assert config.training.loss_scale is not None
    assert config.training.loss_scale.scale_window == 7
    Path("rest.yaml").write_text(REST + "  loss_scale: {scale_window: 7}\n")
    assert load("llama.yaml", "rest.yaml", overrides=("training.loss_scale=null",)).config.training.loss_scale is None


def test_a_section_whose_keys_are_commented_out_has_its_defaults(here):
    Path("rest.yaml").write_text(REST + "checkpoint:\n  # save_steps: 5\n")
    assert load("llama.yaml", "rest.yaml").config.checkpoint.save_steps == 100


def test_a_parallel_block_of_mindformers_can_be_pasted(here):
    block = """\
parallel_config:
  data_parallel: &dp 8
  model_parallel: 1
  pipeline_stage: 1
  context_parallel: 1
  use_seq_parallel: False
  micro_batch_num: 1
  vocab_emb_dp: True
  gradient_aggregation_group: 4
"""
    Path("mf.yaml").write_text(block)
    parallel = load("llama.yaml", "rest.yaml", parallel="mf.yaml").config.parallel_config
    assert (parallel.data_parallel, parallel.vocab_emb_dp, parallel.gradient_aggregation_group) == (8, True, 4)


def test_a_strategy_file_holds_recomputation_and_accumulation_too(here):
    Path("p.yaml").write_text(
        "parallel_config:\n  pipeline_stage: 2\n  micro_batch_num: 2\n  offset: [1, -1]\n"
        "recompute_config:\n  recompute: [4, 2]\ntraining:\n  gradient_accumulation_steps: 1\n"
    )
    loaded = load("llama.yaml", "rest.yaml", parallel="p.yaml")
    assert loaded.config.parallel_config.offset == (1, -1)
    assert loaded.config.recompute_config.recompute == (4, 2)
    origins = {path: str(origin) for path, _, origin in loaded.rows()}
    assert origins["parallel_config.offset"] == "p.yaml:4"
    assert origins["training.gradient_accumulation_steps"] == "p.yaml:8"
    assert origins["training.train_steps"] == "rest.yaml:7"


def test_a_strategy_file_says_nothing_else_of_training(here):
    Path("p.yaml").write_text("training:\n  gradient_accumulation_steps: 2\n  train_steps: 5\n")
    assert faults("llama.yaml", "rest.yaml", parallel="p.yaml") == [
        "p.yaml:3: training.train_steps does not belong in a file given with --parallel; move it to a file given with --config"
    ]


def test_a_recompute_block_of_mindformers_says_which_keys_to_remove(here):
    Path("p.yaml").write_text("recompute_config:\n  recompute: True\n  mp_comm_recompute: True\n")
    assert faults("llama.yaml", "rest.yaml", parallel="p.yaml") == [
        "p.yaml:3: unknown key mp_comm_recompute in recompute_config; MindFormers has it, this version does not: remove it, "
        "the communication of a recomputed layer is done again, as with true"
    ]


@pytest.mark.parametrize(
    "override",
    ["offset=[1.5, 0]", "offset=[1, [0, 0]]", "offset=true", "offset={}", "offset='1'"],
)
def test_a_value_of_several_forms_has_one_fault(here, override):
    found = faults("llama.yaml", "rest.yaml", overrides=(f"parallel_config.{override}",))
    assert len(found) == 1
    assert (
        "must be 0, or a list with one whole number a stage, or one such list for each of pp_interleave_num" in found[0]
    )


@pytest.mark.parametrize("value", ["1", "[-1]", "[true]", "some", "[[1]]"])
def test_recomputed_layers_are_a_switch_or_counts(here, value):
    found = faults("llama.yaml", "rest.yaml", overrides=(f"recompute_config.recompute={value}",))
    assert len(found) == 1
    assert "must be true, false, or a list with one number of layers a stage" in found[0]


def test_all_faults_of_all_files_come_at_once(here):
    Path("llama.yaml").write_text(LLAMA + "  num_layer: 3\n")
    Path("rest.yaml").write_text(REST.replace("train_steps: 100", "train_steps: 1e5"))
    Path("p.yaml").write_text("parallel_config:\n  model_parallel: 16\n  data_paralel: 2\n")
    assert faults("llama.yaml", "rest.yaml", parallel="p.yaml", overrides=("optimizer.eps=-1", "nonsense")) == [
        "--set nonsense: expected section.key=value, as --set training.train_steps=100",
        "llama.yaml:10: unknown key num_layer in model; did you mean num_hidden_layers?",
        "optimizer.eps (-1) must be greater than 0 (--set optimizer.eps=-1)",
        "rest.yaml:7: training.train_steps must be a whole number, not 100000.0; write 100000",
        "p.yaml:3: unknown key data_paralel in parallel_config; did you mean data_parallel?",
        (
            "num_key_value_heads (8) must be divisible by model_parallel (16); set model_parallel to one of 1, 2, 4, 8 "
            "(llama.yaml:8, p.yaml:2)"
        ),
    ]


def test_a_key_in_two_files_names_both(here):
    Path("more.yaml").write_text("data:\n  seq_length: 128\n")
    assert faults("llama.yaml", "rest.yaml", "more.yaml") == [
        "more.yaml:2: data.seq_length is given here and in rest.yaml:3; keep one of the two"
    ]


def test_two_files_may_share_a_section(here):
    Path("more.yaml").write_text("data:\n  shuffle: false\n")
    assert load("llama.yaml", "rest.yaml", "more.yaml").config.data.shuffle is False


def test_a_file_given_twice_is_one_fault(here):
    assert faults("llama.yaml", "rest.yaml", "./rest.yaml") == ["rest.yaml: this file is given twice"]


def test_an_override_given_twice_names_both(here):
    found = faults("llama.yaml", "rest.yaml", overrides=("data.seq_length=1", "data.seq_length=2"))
    assert found == ["--set data.seq_length=2: data.seq_length is set twice, also by --set data.seq_length=1; keep one"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.seq_len=8", "unknown key seq_len in data; did you mean seq_length? (--set data.seq_len=8)"),
        ("optim.eps=1", "--set optim.eps=1: unknown section optim; did you mean optimizer?"),
        ("seq_length=1", "--set seq_length=1: expected section.key=value, as --set training.train_steps=100"),
        ("data..x=1", "--set data..x=1: expected section.key=value, as --set training.train_steps=100"),
        ("data.shuffle=[", "--set data.shuffle=[: not YAML: "),
        ("data.shuffle=yes", "data.shuffle must be true or false, not 'yes'; write true (--set data.shuffle=yes)"),
        ("data.seq_length='8'", "data.seq_length must be a whole number, not '8'; write it without quotes (--set "),
        (
            "data.train_dataset=7",
            "data.train_dataset must be text, not 7; put it in quotes (--set data.train_dataset=7)",
        ),
        ("data.seq_length=", "data.seq_length must be a whole number, not null (--set data.seq_length=)"),
        ("optimizer.eps=.nan", "optimizer.eps must be a finite number, not nan (--set optimizer.eps=.nan)"),
        (
            "optimizer.betas=[0.9, 1.0]",
            "optimizer.betas.1 (1.0) must be less than 1 (--set optimizer.betas=[0.9, 1.0])",
        ),
        (
            "optimizer.betas=[0.9]",
            "optimizer.betas ([0.9]) has the wrong number of values (--set optimizer.betas=[0.9])",
        ),
        ("optimizer.betas=5", "optimizer.betas must be a list, not 5 (--set optimizer.betas=5)"),
        ("training.loss_scale=5", "training.loss_scale must be a mapping of keys, not 5 (--set training.loss_scale=5)"),
        (
            "lr_schedule.type=cosin",
            "lr_schedule.type ('cosin') must be one of cosine, linear, constant, wsd; did you mean",
        ),
        ("optimizer.eps.x=1", "optimizer.eps must be a number, not {'x': 1} (--set optimizer.eps.x=1)"),
        ("model.model_type=lama", "model.model_type ('lama') is not a known model; did you mean llama? (--set "),
        (
            "model.model_type=7",
            "model.model_type (7) is not a known model; legal: gpt2, llama (--set model.model_type=7)",
        ),
        (
            "model.rope_scaling={factor: 2}",
            "model.rope_scaling.rope_type is required: linear divides all frequencies by ",
        ),
        ("training.seed=4294967296", "training.seed (4294967296) must be less than 4294967296 (--set "),
    ],
)
def test_a_wrong_override_says_what_is_legal(here, override, message):
    found = faults("llama.yaml", "rest.yaml", overrides=(override,))
    assert len(found) == 1
    assert found[0].startswith(message)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("shuffle: true", "unknown key shuffle in training; it belongs in data:"),
        ("learnin_rate: 1", "unknown key learnin_rate in training; did you mean optimizer.learning_rate?"),
        ("zzz: 1", "unknown key zzz in training; legal: amp_level, "),
    ],
)
def test_an_unknown_key_is_told_where_it_belongs(here, line, message):
    Path("rest.yaml").write_text(REST + f"  {line}\n")
    found = faults("llama.yaml", "rest.yaml")
    assert len(found) == 1
    assert found[0].startswith(f"rest.yaml:9: {message}")


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("optimiser: {}", "unknown section optimiser; did you mean optimizer?"),
        ("seq_length: 5", "unknown section seq_length; it is a key of data:"),
        (
            "runner_config: {}",
            "unknown section runner_config; convert a MindFormers YAML with `msllm config import-minf",
        ),
        ("checkpoint: often", "checkpoint: must hold keys, one a line and indented, not 'often'"),
    ],
)
def test_an_unknown_section_is_told_what_it_may_be(here, section, message):
    Path("more.yaml").write_text(section)
    assert faults("llama.yaml", "rest.yaml", "more.yaml")[0].startswith(f"more.yaml:1: {message[:70]}")


def test_a_mindformers_key_without_a_counterpart_says_so(here):
    Path("p.yaml").write_text("parallel_config:\n  mem_coeff: 0.1\n")
    assert faults("llama.yaml", "rest.yaml", parallel="p.yaml") == [
        (
            "p.yaml:2: unknown key mem_coeff in parallel_config; MindFormers has it, this version does not: "
            "remove it, it belongs to MindSpore's automatic search"
        )
    ]


def test_a_parallel_file_holds_nothing_else(here):
    found = faults("llama.yaml", parallel="rest.yaml")
    assert found[0] == (
        "rest.yaml:1: unknown section data; a file given with --parallel holds parallel_config:, "
        "recompute_config: and training.gradient_accumulation_steps only"
    )


def test_missing_keys_are_named_with_their_meaning(here):
    Path("rest.yaml").write_text("data:\n  seq_length: 4096\n")
    assert faults("llama.yaml", "rest.yaml") == [
        "rest.yaml:1: data.train_dataset is required: Folder that `msllm data convert` wrote.",
        (
            "training.train_steps is required: Optimizer steps of the whole run; a resumed run ends at the same step. "
            "(not in llama.yaml, rest.yaml)"
        ),
        (
            "training.global_batch_size is required: Samples of one optimizer step over all devices. "
            "(not in llama.yaml, rest.yaml)"
        ),
    ]


def test_a_key_that_is_missing_in_an_override_names_the_override(here):
    found = faults("llama.yaml", "rest.yaml", overrides=("model.rope_scaling={factor: 2}",))
    assert found[0].endswith("(--set model.rope_scaling={factor: 2})")


def test_an_unreadable_file_does_not_make_its_keys_look_missing(here):
    assert faults("llama.yaml", "rset.yaml") == ["rset.yaml: cannot read this configuration: No such file or directory"]


def test_nothing_given_at_all(here):
    assert "model.model_type is required: one of gpt2, llama" in faults()


def test_control_characters_of_a_file_do_not_reach_the_terminal(here):
    Path("more.yaml").write_text('"\\e[31mred\\nx": 1\ndata: {"a\\eb": 1}\n')
    text = "\n".join(faults("llama.yaml", "rest.yaml", "more.yaml"))
    assert "\x1b" not in text
    assert "unknown section \\x1b[31mred\\nx;" in text


def test_a_resolved_config_loads_equal_and_needs_nothing_else(here):
    overrides = ("data.train_dataset='1e5'", "data.eval_dataset='no'", "optimizer.max_grad_norm=null")
    config = load("llama.yaml", "rest.yaml", overrides=overrides).config
    write_resolved(config, Path("resolved.yaml"))
    assert load("resolved.yaml").config == config


def test_loading_needs_no_mindspore(here):
    code = """
import sys
from pathlib import Path
from msllm.config.load import load_run_config
from msllm.registry import MODEL_CONFIGS
load_run_config([Path("llama.yaml"), Path("rest.yaml")], None, [], MODEL_CONFIGS)
heavy = {"mindspore", "mindformers", "numpy", "pyarrow", "tokenizers"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
