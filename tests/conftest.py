"""Small data that tests of several folders share, and the state of MindSpore that each test begins with."""

from __future__ import annotations

import gc
import io
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# Nothing here is timed: a busy machine must not fail a test.
settings.register_profile("msllm", deadline=None)
settings.load_profile("msllm")

TEXT = (
    "the of and a to in is that it as for was with on by not this from are or which but be at one can have all there "
    "tensor graph device memory stream kernel gradient 模型 训练 数据 你好 世界 naïve Größe ещё 🙂 3.14 2024 foo_bar x=1;"
)
WORDS = TEXT.split()


def make_documents(count: int, seed: int) -> list[str]:
    """Texts of 1 to 60 words with line breaks and runs of spaces; the same for the same seed."""
    draw = random.Random(seed)
    gaps = [" "] * 12 + ["\n", "\n\n", "  ", "\t"]
    return ["".join(draw.choice(WORDS) + draw.choice(gaps) for _ in range(draw.randint(1, 60))) for _ in range(count)]


@pytest.fixture(autouse=True, scope="module")
def cpu_device() -> None:
    """MindSpore takes its device before the first kernel; nothing where MindSpore is not imported.

    Cells that earlier modules left to the garbage collector are freed: their hooks are part of MindSpore's key of a compiled
    graph, and a graph that loses one while it is in use would be compiled again.
    """
    if "mindspore" in sys.modules:
        import mindspore

        gc.collect()
        mindspore.set_context(mode=mindspore.GRAPH_MODE)
        mindspore.set_device("CPU")


@pytest.fixture(autouse=True)
def graph_mode() -> None:
    """Graph mode for each test, whatever the one before has set; nothing where MindSpore is not imported."""
    if "mindspore" in sys.modules:
        import mindspore

        mindspore.set_context(mode=mindspore.GRAPH_MODE)


@pytest.fixture(scope="session")
def documents() -> list[str]:
    return make_documents(200, seed=1)


@pytest.fixture(scope="module")
def fresh_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Empties one folder and gives it, for the examples of a property test: a new one for each would be slow."""
    folder = tmp_path_factory.mktemp("example") / "folder"

    def fresh_folder() -> Path:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    return fresh_folder


@pytest.fixture(scope="session")
def tokenizer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SentencePiece model of 500 tokens, of the kind that `msllm data train-tokenizer` makes."""
    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=(line for text in make_documents(400, seed=2) for line in text.split("\n")),
        model_writer=model,
        model_type="bpe",
        vocab_size=500,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        minloglevel=2,
    )
    path = tmp_path_factory.mktemp("tokenizer") / "tiny.model"
    path.write_bytes(model.getvalue())
    return path
