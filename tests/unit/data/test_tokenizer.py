from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceTrainer
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library

from msllm.data.tokenizer import Tokenizer, load_tokenizer
from msllm.errors import InputError

TEXTS = [
    "Hello  wörld\n\n 你好 \t 123 🙂",
    "</s> <s> <|endoftext|> <0x0A>",
    " leading and trailing ",
    "\n\n\n",
    "a\x00b",
    "\u3000\xa0\u2581 x\u2581",
    "é e\u0301 ﬁ Ａ",
]
LETTERS = st.text(alphabet=" \n\t.,aeé你😀_1\u2581", max_size=300)


def byte_level(corpus: list[str], specials: list[str]) -> Library:
    """Of GPT-2's kind."""
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    library.train_from_iterator(corpus, trainer)
    return library


def llama3_like(corpus: list[str], specials: list[str]) -> Library:
    """Splits as Llama 3 does: punctuation takes the newlines behind it along."""
    library = byte_level(corpus, specials)
    pattern = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    return library


def llama2_like(corpus: list[str]) -> Library:
    """Puts a space before the text, as the conversion of a SentencePiece model does."""
    library = Library(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    words = [word for text in corpus for word in text.split()]
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=specials, show_progress=False)
    library.train_from_iterator(words, trainer)
    return library


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, documents: list[str]) -> Path:
    folder = tmp_path_factory.mktemp("tokenizers")
    byte_level(documents, ["<|endoftext|>"]).save(str(folder / "gpt2.json"))
    llama3_like(documents, ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]).save(str(folder / "llama3.json"))
    llama2_like(documents).save(str(folder / "llama2.json"))
    return folder


@pytest.fixture(scope="module", params=["sentencepiece", "gpt2.json", "llama3.json", "llama2.json"])
def tokenizer(request: pytest.FixtureRequest, folder: Path, tokenizer_file: Path) -> Iterator[Tokenizer]:
    yield load_tokenizer(tokenizer_file if request.param == "sentencepiece" else folder / request.param)


def test_ids_are_below_the_vocabulary_and_special_tokens_are_known(tokenizer: Tokenizer) -> None:
    assert 0 <= tokenizer.eod_id < tokenizer.vocab_size
    ids = [index for text in TEXTS for index in tokenizer.encode(text)]
    assert 0 <= min(ids) and max(ids) < tokenizer.vocab_size
    assert len(tokenizer.fingerprint) == 64
    assert tokenizer.token(tokenizer.eod_id) in ("</s>", "<|endoftext|>", "<|end_of_text|>")


def test_text_cannot_forge_the_end_of_a_document(tokenizer: Tokenizer) -> None:
    for name in ("</s>", "<|endoftext|>", "<|end_of_text|>"):
        assert tokenizer.eod_id not in tokenizer.encode(f"a{name}b {name}")


def test_batch_equals_one_by_one_in_int32(tokenizer: Tokenizer) -> None:
    batch = tokenizer.encode_batch(TEXTS)
    assert [list(ids) for ids in batch] == [tokenizer.encode(text) for text in TEXTS]
    assert all(ids.dtype == np.int32 for ids in batch)


@pytest.mark.parametrize("text", TEXTS)
def test_sentencepiece_gives_text_back(tokenizer_file: Path, text: str) -> None:
    tokenizer = load_tokenizer(tokenizer_file)
    assert tokenizer.decode(tokenizer.encode(text)) == text.replace("\u2581", " ")


@settings(max_examples=80)
@given(data=st.data())
def test_cut_at_a_boundary_changes_no_token(tokenizer: Tokenizer, data: st.DataObject) -> None:
    text = data.draw(LETTERS)
    start = data.draw(st.integers(0, len(text)))
    place = tokenizer.boundary(text, start, len(text))
    if place == 0:
        return
    assert start < place < len(text)
    first, second = tokenizer.encode_batch([text[start:place], text[place:]], [False, True])
    assert list(first) + list(second) == tokenizer.encode(text[start:])


def test_boundaries_are_found_in_ordinary_text(tokenizer: Tokenizer, documents: list[str]) -> None:
    text = "\n".join(documents)
    assert tokenizer.boundary(text, 0, 5000) > 4000


def train(path: Path, corpus: list[str], **options: object) -> Path:
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in corpus for line in text.split("\n")),
        model_writer=model,
        minloglevel=2,
        **options,
    )
    path.write_bytes(model.getvalue())
    return path


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_models_that_normalise_are_cut_only_where_it_was_tried(tmp_path: Path, documents: list[str], kind: str) -> None:
    path = train(tmp_path / "m.model", documents, model_type=kind, vocab_size=300, hard_vocab_limit=False)
    tokenizer = load_tokenizer(path)
    assert tokenizer.segment_chars == 1_000_000
    text = " ".join(documents)
    place = tokenizer.boundary(text, 0, 4000)
    first, second = tokenizer.encode_batch([text[:place], text[place:]], [False, True])
    assert place and list(first) + list(second) == tokenizer.encode(text)


def test_symbols_with_spaces_or_newlines_forbid_the_quick_cuts(tmp_path: Path, documents: list[str]) -> None:
    options = {"model_type": "bpe", "vocab_size": 500, "byte_fallback": True, "normalization_rule_name": "identity"}
    options |= {"remove_extra_whitespaces": False}
    spaces = load_tokenizer(train(tmp_path / "s.model", documents, user_defined_symbols=["is▁that"], **options))
    assert "is▁that" in [spaces.token(index) for index in spaces.encode("graph is that it")]
    assert spaces.boundary("graph is that it", 0, 16) == 0
    assert spaces.boundary("graph is\nthat it", 0, 16) == 8
    lines = load_tokenizer(train(tmp_path / "l.model", documents, user_defined_symbols=["\n\n"], **options))
    assert lines.segment_chars == 1_000_000


def test_no_end_of_document_token(tmp_path: Path, documents: list[str]) -> None:
    path = train(tmp_path / "m.model", documents, model_type="bpe", vocab_size=300, eos_id=-1)
    with pytest.raises(InputError, match="--eod-token"):
        load_tokenizer(path)
    assert load_tokenizer(path, eod_token="<s>").eod_id == load_tokenizer(path, eod_token=1).eod_id == 1
    with pytest.raises(InputError, match="has no token '<nothing>'"):
        load_tokenizer(path, eod_token="<nothing>")


def test_hugging_face_end_of_document_is_found_or_asked_for(tmp_path: Path, documents: list[str]) -> None:
    path = str(tmp_path / "t.json")
    byte_level(documents, ["<|im_end|>"]).save(path)
    with pytest.raises(InputError, match="none of the usual tokens.*--eod-token"):
        load_tokenizer(path)
    assert load_tokenizer(path, eod_token="<|im_end|>").eod_id == 0
    byte_level(documents, ["<|endoftext|>", "</s>"]).save(path)
    with pytest.raises(InputError, match=r"several tokens.*</s>, <\|endoftext\|>.*--eod-token"):
        load_tokenizer(path)


def test_truncation_and_padding_of_the_file_do_not_apply(tmp_path: Path, documents: list[str]) -> None:
    library = byte_level(documents, ["<|endoftext|>"])
    library.enable_truncation(4)
    library.enable_padding(length=8)
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert len(tokenizer.encode("x y z " * 100)) > 100
    assert len(tokenizer.encode("x")) == 1


def test_folder_with_a_tokenizer_file(tmp_path: Path, tokenizer_file: Path, folder: Path) -> None:
    with pytest.raises(InputError, match="neither"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(tokenizer_file.read_bytes())
    assert load_tokenizer(tmp_path).type == "sentencepiece"
    (tmp_path / "tokenizer.json").write_bytes((folder / "gpt2.json").read_bytes())
    with pytest.raises(InputError, match="both"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.model", b"", "is empty; give a SentencePiece .model or a tokenizer.json"),
        ("x.json", b"", "is empty; give a SentencePiece .model or a tokenizer.json"),
        ("x.model", b"no model", "is neither a SentencePiece .model nor a Hugging Face tokenizer.json"),
        ("x.model", b"\x12\x00", "is neither a SentencePiece .model nor"),
        ("x.model", bytes(range(255, 0, -1)) * 9, "is neither a SentencePiece .model nor"),
        ("x.model", b"\n" * 64, "is neither a SentencePiece .model nor"),
        ("x.json", b"{}", "is not a Hugging Face tokenizer.json"),
    ],
)
def test_file_that_is_no_tokenizer_is_one_message_of_ours(
    tmp_path: Path, name: str, content: bytes, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as error:
        load_tokenizer(tmp_path / name)
    assert str(error.value).startswith(f"{tmp_path / name}: {message}")
    assert "src/" not in str(error.value)
    assert capfd.readouterr() == ("", "")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_tokenizer(tmp_path / "no.model")


def test_loading_leaves_mindspore_importable(tokenizer_file: Path) -> None:
    """MindSpore cannot be imported after protobuf, which SentencePiece's own description of its format needs."""
    import subprocess
    import sys

    code = "import sys; from msllm.data.tokenizer import load_tokenizer; load_tokenizer(sys.argv[1])\n"
    code += "assert 'google.protobuf' not in sys.modules and 'mindspore' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, str(tokenizer_file)], check=True)
