"""Tokenizers: a SentencePiece `.model` or a Hugging Face `tokenizer.json`, behind one small interface.

`encode` gives the ids of plain text: nothing is added (no BOS, no EOD), and text that looks like a control token
(`</s>`, `<|endoftext|>`) stays text, so a corpus cannot forge the end of a document.

Long texts are cut into segments that are encoded on their own, because the cost of BPE grows with the length and a text
of a gigabyte would need fifty. `boundary` finds places where that changes no token; a segment after the first is
encoded as a continuation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from msllm.data.backends import BackendName, Encode, Ids, make_encode
from msllm.data.manifest import MANIFEST_NAME, read_manifest
from msllm.errors import InputError, Problem
from msllm.files import sha256_of

EOD_CANDIDATES = (
    "</s>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<eos>",
    "<｜end▁of▁sentence｜>",
    "[EOS]",
)
"""What Hugging Face tokenizers call the end of a document; chat tokens (`<|im_end|>`, `<|eot_id|>`) end a turn only."""
BOS_CANDIDATES = ("<s>", "<|begin_of_text|>", "<bos>", "<｜begin▁of▁sentence｜>", "[BOS]")

_WINDOW = 256
"""Characters on each side of a cut that are encoded both ways where exactness has to be tried."""
_TRIES = 8


class Tokenizer(ABC):
    """Text to ids and back. All ids are below `vocab_size`."""

    type: Literal["sentencepiece", "huggingface"]
    segment_chars: int
    """Length in characters at which a text is better cut; a shorter one is encoded whole."""
    plain_bpe = False
    """SentencePiece BPE with byte fallback whose text reaches it unchanged, as Llama's."""
    dummy_prefix = False
    """A space is put before every text (plain_bpe)."""

    def __init__(self, path: Path):
        self.path = path
        """File that it was read from."""
        self.fingerprint = sha256_of(path)
        """sha256 of that file."""
        self.vocab_size = 0
        """One more than the largest id."""
        self.eod_id = -1
        """Id that the converter puts after each document."""
        self.bos_id: int | None = None
        """Id that begins a text, where the tokenizer has one."""
        self.backend: BackendName = "reference"
        """Library that encodes."""
        self._fast: Encode | None = None
        self._lead = ""
        """What a continued text is put behind, so that it is not taken for the start of a text."""
        self._lead_length = 0

    @property
    def reference(self) -> str:
        """The library that defines the file's format."""
        return {"sentencepiece": "sentencepiece", "huggingface": "tokenizers"}[self.type]

    def use(self, backend: BackendName, prepared: str = "") -> None:
        """Encode with another library from now on; whether it gives the same ids shows `backends.first_difference`.

        Args:
            backend: the library.
            prepared: what `backends.prepare` gave for it in another process; "" has it made here.

        Raises:
            BackendUnavailable: not installed, or not for this tokenizer.
        """
        self._fast = None if backend == "reference" else make_encode(self, backend, prepared)
        self.backend = backend

    def encode(self, text: str) -> list[int]:
        """Ids of a text, nothing added."""
        return [int(i) for i in self.encode_batch([text])[0]]

    def encode_batch(self, texts: Sequence[str], continued: Sequence[bool] | None = None) -> list[np.ndarray]:
        """Ids of each text, int32 (its length), by the reference; `continued` marks texts that go on where the one
        before ended."""
        if not len(texts):
            return []
        ids, counts = self.encode_flat(texts, continued, reference=True)
        return np.split(ids, np.cumsum(counts)[:-1])

    def encode_flat(
        self, texts: Sequence[str], continued: Sequence[bool] | None = None, reference: bool = False
    ) -> Ids:
        """Ids of all texts in one row, int32, and the number of ids of each, int64; by the backend, or the reference."""
        encode = self._encode if reference or self._fast is None else self._fast
        lead = self._lead
        if not lead or continued is None or not any(continued):
            return encode(list(texts))
        ids, counts = encode([lead + text if more else text for text, more in zip(texts, continued)])
        # The first ids of continued texts are the lead's.
        starts = (np.cumsum(counts) - counts)[list(continued)]
        leads = (starts[:, None] + np.arange(self._lead_length)).ravel()
        return np.delete(ids, leads), counts - np.where(continued, self._lead_length, 0)

    @abstractmethod
    def _encode(self, texts: list[str]) -> Ids:
        """The reference."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; control tokens give nothing or their name, as the library has it."""

    @abstractmethod
    def boundary(self, text: str, start: int, end: int) -> int:
        """Largest place found in (start, end) where `text` may be cut without changing a token; 0 where there is none."""

    @abstractmethod
    def id_of(self, token: str) -> int | None:
        """Id of a token by its name, None where there is no such token."""

    @abstractmethod
    def token(self, index: int) -> str:
        """Name of a token, "" where the id has none."""

    def _set_eod(self, eod_token: str | int | None, default: int | None, hint: str) -> None:
        if isinstance(eod_token, int):
            self.eod_id = eod_token
        elif eod_token is not None:
            found = self.id_of(eod_token)
            if found is None:
                raise InputError(
                    Problem(f"has no token {eod_token!r}, given as end of document (--eod-token)", self.path)
                )
            self.eod_id = found
        elif default is None:
            raise InputError(Problem(f"{hint}; name the token that ends a document with --eod-token", self.path))
        else:
            self.eod_id = default


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model, run by the library that defines the format."""

    type = "sentencepiece"

    def __init__(self, path: Path, eod_token: str | int | None = None):
        from sentencepiece import SentencePieceProcessor

        super().__init__(path)
        model = path.read_bytes()
        try:
            # The library says things on stderr of what holds no pieces (field 1), and nothing of use elsewhere.
            if not _first_fields(model, (1,)):
                raise ValueError("no pieces")
            self._library: Any = SentencePieceProcessor(model_proto=model)
        except (RuntimeError, ValueError, IndexError, KeyError):
            message = "is neither a SentencePiece .model nor a Hugging Face tokenizer.json, or it is damaged"
            raise InputError(Problem(message, path)) from None
        self.vocab_size = self._library.vocab_size()
        eos, bos = self._library.eos_id(), self._library.bos_id()
        self.bos_id = bos if bos >= 0 else None
        self._set_eod(eod_token, eos if eos >= 0 else None, "has no end-of-sentence token")
        self._cuts = _exact_cuts(self._library)
        self.plain_bpe = bool(self._cuts)
        self.segment_chars = 2_000 if "\n" in self._cuts else 1_000_000
        # After a newline no space is put before the first word, and no piece joins a newline to what follows.
        self._lead = "\n"
        self._lead_length = len(self._encode(["\n"])[0])
        self.dummy_prefix = self._library.encode("a", out_type=str)[0].startswith("\u2581")

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._library.decode([int(i) for i in ids]))

    def boundary(self, text: str, start: int, end: int) -> int:
        if not self._cuts:
            return _tried_boundary(self, text, start, end)
        for mark in self._cuts:
            place = text.rfind(mark, start + 1, end)
            if mark == " ":
                # A piece may begin with spaces, so the cut comes before the first of a run.
                while place > start and text[place - 1] in " \u2581":
                    place -= 1
            if place > start:
                return place
        return 0

    def id_of(self, token: str) -> int | None:
        found = self._library.piece_to_id(token)
        return found if self._library.id_to_piece(found) == token else None

    def token(self, index: int) -> str:
        return str(self._library.id_to_piece(index))

    def _encode(self, texts: list[str]) -> Ids:
        # One thread: the converter has a process per core.
        return _joined(self._library.encode(texts, return_type="numpy", num_threads=1))


class HuggingFaceTokenizer(Tokenizer):
    """A `tokenizer.json`, run by the `tokenizers` library."""

    type = "huggingface"
    segment_chars = 1_000_000

    def __init__(self, path: Path, eod_token: str | int | None = None):
        from tokenizers import Tokenizer as Library

        super().__init__(path)
        try:
            self._library: Any = Library.from_file(str(path))
        except Exception as error:
            raise InputError(Problem(f"is not a Hugging Face tokenizer.json: {error}", path)) from None
        # The file may ask for 512 tokens and padding; a corpus is neither cut nor padded by its tokenizer.
        self._library.no_truncation()
        self._library.no_padding()
        self._library.encode_special_tokens = True
        vocab = self._library.get_vocab(with_added_tokens=True)
        self.vocab_size = 1 + max(vocab.values(), default=-1)
        if self.vocab_size == 0:
            raise InputError(Problem("has an empty vocabulary", path))
        self.bos_id = next((vocab[name] for name in BOS_CANDIDATES if name in vocab), None)
        found = [name for name in EOD_CANDIDATES if name in vocab]
        several = f"has several tokens that may end a document ({', '.join(found)})"
        none = f"has none of the usual tokens that end a document ({', '.join(EOD_CANDIDATES)})"
        self._set_eod(eod_token, vocab[found[0]] if len(found) == 1 else None, several if found else none)
        # A tokenizer that puts a space before the first word has to be told that a segment goes on.
        self._lead = "" if self._joins("ab", " cd", "") else "\n"
        self._lead_length = len(self.encode(self._lead)) if self._lead else 0

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._library.decode([int(i) for i in ids], skip_special_tokens=False))

    def boundary(self, text: str, start: int, end: int) -> int:
        return _tried_boundary(self, text, start, end)

    def id_of(self, token: str) -> int | None:
        return self._library.token_to_id(token)

    def token(self, index: int) -> str:
        return self._library.id_to_token(index) or ""

    def _encode(self, texts: list[str]) -> Ids:
        encoded = self._library.encode_batch_fast(texts, add_special_tokens=False)
        return _joined([np.array(item.ids, dtype=np.int32) for item in encoded])

    def _joins(self, left: str, right: str, lead: str) -> bool:
        whole, first, second, mark = self.encode_batch([left + right, left, lead + right, lead])
        return bool(np.array_equal(whole, np.concatenate([first, second[len(mark) :]])))


def load_tokenizer(path: str | Path, eod_token: str | int | None = None) -> Tokenizer:
    """Load a tokenizer from its file, or from a folder: a dataset, or one that holds one tokenizer file.

    Args:
        path: SentencePiece `.model`, Hugging Face `tokenizer.json`, or a folder.
        eod_token: name or id of the token that ends a document; None takes the tokenizer's own (of a dataset: the one used).

    Raises:
        InputError: no such file, not a tokenizer, or no token that ends a document.
    """
    path = Path(path)
    if path.is_dir():
        return _load_from_folder(path, eod_token)
    try:
        with open(path, "rb") as file:
            start = file.read(64)
    except OSError as error:
        message = f"tokenizer cannot be read: {error.strerror}; give a SentencePiece .model or a tokenizer.json"
        raise InputError(Problem(message, path)) from None
    if not start:
        raise InputError(Problem("is empty; give a SentencePiece .model or a tokenizer.json", path))
    if start.lstrip().startswith(b"{") or path.suffix == ".json":
        return HuggingFaceTokenizer(path, eod_token)
    return SentencePieceTokenizer(path, eod_token)


def _load_from_folder(folder: Path, eod_token: str | int | None) -> Tokenizer:
    if (folder / MANIFEST_NAME).exists():
        manifest = read_manifest(folder)
        eod_token = manifest.options.eod_token if eod_token is None else eod_token
        tokenizer = load_tokenizer(folder / manifest.tokenizer.file, eod_token)
        if tokenizer.fingerprint != manifest.tokenizer.fingerprint:
            raise InputError(Problem("is not the tokenizer that made this dataset: its sha256 differs", tokenizer.path))
        return tokenizer
    found = [folder / name for name in ("tokenizer.model", "tokenizer.json") if (folder / name).is_file()]
    if len(found) != 1:
        what = "both tokenizer.model and tokenizer.json" if found else "neither tokenizer.model nor tokenizer.json"
        raise InputError(Problem(f"holds {what}; give the tokenizer's file", folder))
    return load_tokenizer(found[0], eod_token)


def _joined(rows: Sequence[np.ndarray]) -> Ids:
    """Rows of ids, each int32 (any), one behind the other."""
    counts = np.fromiter(map(len, rows), np.int64, len(rows))
    return np.concatenate([np.empty(0, np.int32), *rows], dtype=np.int32), counts


def _exact_cuts(library: Any) -> str:
    """Characters before which a text may be cut under any circumstances, by the model's own vocabulary.

    BPE merges within a piece only, so a place that no piece spans is a border that no merge crosses; that holds where
    the text reaches BPE unchanged (identity normaliser). Unigram models compare sums over the whole text, so they have none.
    """
    model = _first_fields(library.serialized_model_proto(), (2, 3))
    trainer = _first_fields(model.get(2, b""), (3, 24, 35))
    normalizer = _first_fields(model.get(3, b""), (2, 4, 5))
    # The numbers are those of sentencepiece_model.proto, the defaults too.
    is_bpe = trainer.get(3, 1) == 2
    byte_fallback = trainer.get(35, 0)
    space_behind = trainer.get(24, 0)
    identity = not normalizer.get(2, b"") and not normalizer.get(4, 1) and normalizer.get(5, 1)
    # Without byte fallback, unknown characters in a row are one token.
    plain = is_bpe and byte_fallback and identity and not space_behind
    if not plain:
        return ""
    space = "\u2581"
    names = [library.id_to_piece(i) for i in range(library.vocab_size())]
    if any("\n" in name and name != "\n" for name in names):
        return ""
    spanned = any(space in name.lstrip(space) or " " in name for name in names)
    return "\n" if spanned else "\n "


def _first_fields(message: bytes, wanted: tuple[int, ...]) -> dict[int, Any]:
    """Values of some fields of a protobuf message, by number: int, or bytes for strings and messages.

    Read by hand, because importing protobuf before MindSpore keeps MindSpore from being imported: it needs the library in
    its pure Python form, which it can ask for only at the library's first import.
    """
    found: dict[int, Any] = {}
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while place < len(message):
        key = varint()
        number, kind = key >> 3, key & 7
        if kind == 0:
            found.setdefault(number, varint())
            continue
        size = varint() if kind == 2 else {1: 8, 5: 4}[kind]
        if number in wanted:
            found.setdefault(number, message[place : place + size])
        place += size
    return found


def _tried_boundary(tokenizer: Tokenizer, text: str, start: int, end: int) -> int:
    """Last newline or space whose neighbourhood gives the same ids cut and whole; 0 where none of a few does."""
    for mark in "\n ":
        place = end
        for _ in range(_TRIES):
            place = text.rfind(mark, start + 1, place)
            if place <= start:
                break
            left, right = text[max(start, place - _WINDOW) : place], text[place : place + _WINDOW]
            whole, first, second = tokenizer.encode_batch([left + right, left, right], [True, True, True])
            if np.array_equal(whole, np.concatenate([first, second])):
                return place
    return 0
