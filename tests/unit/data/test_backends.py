"""Fast tokenizer libraries: equal to the reference where they apply, and found out where they do not."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceTrainer
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library

from msllm.data import backends
from msllm.data.backends import FUZZ, BackendUnavailable, first_difference
from msllm.data.tokenizer import Tokenizer, load_tokenizer

LETTERS = st.text(alphabet=" \n\t.,aeé你😀_1\u2581<s>/|", max_size=200)
FAST = ("gigatoken", "kitoken")


@pytest.fixture(scope="module")
def nmt_file(tmp_path_factory: pytest.TempPathFactory, documents: list[str]) -> Path:
    """SentencePiece's default normaliser, with user-defined symbols: fast libraries take it, and are wrong."""
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(documents),
        model_writer=model,
        vocab_size=500,
        model_type="bpe",
        byte_fallback=True,
        user_defined_symbols=["tensor", "<x>"],
        hard_vocab_limit=False,
        minloglevel=3,
    )
    path = tmp_path_factory.mktemp("nmt") / "tokenizer.model"
    path.write_bytes(model.getvalue())
    return path


@pytest.fixture(scope="module")
def llama3_file(tmp_path_factory: pytest.TempPathFactory, documents: list[str]) -> Path:
    library = Library(models.BPE(ignore_merges=True))
    words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    pattern = words + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    library.decoder = decoders.ByteLevel()
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=["<|begin_of_text|>", "<|end_of_text|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(documents, trainer)
    path = tmp_path_factory.mktemp("llama3") / "tokenizer.json"
    library.save(str(path))
    return path


@pytest.fixture(params=["sentencepiece", "huggingface"])
def tokenizer(request: pytest.FixtureRequest, tokenizer_file: Path, llama3_file: Path) -> Tokenizer:
    return load_tokenizer(tokenizer_file if request.param == "sentencepiece" else llama3_file)


@pytest.mark.parametrize("name", FAST)
def test_fast_backend_gives_the_references_ids(tokenizer: Tokenizer, name, documents: list[str]) -> None:
    pytest.importorskip(name)
    texts = [*documents, *FUZZ, *FUZZ]
    continued = [False] * (len(documents) + len(FUZZ)) + [True] * len(FUZZ)
    tokenizer.use(name)
    assert tokenizer.backend == name
    assert first_difference(tokenizer, texts, continued) is None
    ids, counts = tokenizer.encode_flat(texts, continued)
    assert ids.dtype == np.int32 and counts.sum() == len(ids)
    wanted = tokenizer.encode_batch(texts, continued)
    assert counts.tolist() == [len(row) for row in wanted] and np.array_equal(ids, np.concatenate(wanted))


@given(texts=st.lists(LETTERS, max_size=5), continued=st.lists(st.booleans(), min_size=5, max_size=5))
def test_fast_backends_agree_on_any_text(tokenizer_file: Path, texts: list[str], continued: list[bool]) -> None:
    pytest.importorskip("gigatoken")
    tokenizer = _gigatoken(tokenizer_file)
    assert first_difference(tokenizer, texts, continued[: len(texts)]) is None


def _gigatoken(path: Path, cache: dict[Path, Tokenizer] = {}) -> Tokenizer:  # noqa: B006
    if path not in cache:
        cache[path] = load_tokenizer(path)
        cache[path].use("gigatoken")
    return cache[path]


def test_control_tokens_in_a_text_stay_text(tokenizer: Tokenizer) -> None:
    pytest.importorskip("gigatoken")
    tokenizer.use("gigatoken")
    text = "<s> </s> <|begin_of_text|> <|end_of_text|>"
    ids, _ = tokenizer.encode_flat([text])
    assert tokenizer.eod_id not in ids and tokenizer.decode(ids.tolist()) == text


def test_a_model_that_a_fast_library_gets_wrong_is_refused_or_found_out(nmt_file: Path, documents: list[str]) -> None:
    tokenizer = load_tokenizer(nmt_file)
    for name in FAST:
        pytest.importorskip(name)
        try:
            tokenizer.use(name)
        except BackendUnavailable:
            continue
        assert first_difference(tokenizer, [*FUZZ, *documents]) is not None


def test_first_difference_is_the_first_text_that_differs(tokenizer_file: Path, monkeypatch) -> None:
    tokenizer = load_tokenizer(tokenizer_file)

    def wrong(texts: list[str]):
        ids, counts = tokenizer._encode(texts)
        ids[counts[0] + counts[1]] += 1
        return ids, counts

    monkeypatch.setattr(backends, "_gigatoken", lambda tokenizer, prepared: wrong)
    tokenizer.use("gigatoken")
    assert first_difference(tokenizer, ["a", "b c", "d", "e"]) == 2
    tokenizer.use("reference")
    assert first_difference(tokenizer, ["a", "b c", "d", "e"]) is None


def test_a_backend_that_is_missing_or_refuses_says_so(tokenizer_file: Path, monkeypatch) -> None:
    def missing(tokenizer, prepared):
        raise ImportError

    def refusing(tokenizer, prepared):
        raise TypeError("unsupported\nand more")

    tokenizer = load_tokenizer(tokenizer_file)
    for maker, said in ((missing, "is not installed"), (refusing, "does not take this tokenizer: unsupported$")):
        monkeypatch.setattr(backends, "_gigatoken", maker)
        with pytest.raises(BackendUnavailable, match=said):
            tokenizer.use("gigatoken")
        assert tokenizer.backend == "reference"
