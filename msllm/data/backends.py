"""Faster libraries that give the ids of a tokenizer: what each covers, and the check that it really gives the same.

The library that defines the file's format (`sentencepiece`, `tokenizers`) is the reference. Others are several times as
fast and agree with it for some models only, and nothing tells the two cases apart but trying: see `first_difference`.
A backend that passes gives the same bytes as the reference, so it is no part of what a dataset says about itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from msllm.data.tokenizer import Tokenizer

BackendName = Literal["gigatoken", "kitoken", "reference"]
BACKENDS: tuple[BackendName, ...] = ("gigatoken", "kitoken", "reference")
"""Fastest first; `reference` is the library that defines the format."""

Ids = tuple[np.ndarray, np.ndarray]
"""(ids of all texts in a row, int32; number of ids of each text, int64)"""
Encode = Callable[[list[str]], Ids]

FUZZ = (
    "",
    " ",
    "\n",
    " leading and trailing ",
    "a\r\nb\tc\x0b\x0c",
    "\x00 nul \x00",
    "no\xa0break\u2007space\u3000ideographic",
    "\u2581 meta \u2581\u2581x",
    "zero\u200bwidth\u200d \ufeff mark",
    "e\u0301 é ﬁ Ａ ① ㍿ ½ ſ",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇨🇳 👍🏽",
    "<s> </s> <unk> <pad> <mask> <0x0A> [CLS] [SEP]",
    "<|endoftext|><|im_start|>user<|im_end|> <|begin_of_text|> <|eot_id|>",
    "[INST] [/INST] <<SYS>> <eos> <bos> <｜end▁of▁sentence｜>",
    "مرحبا بالعالم שלום עולם नमस्ते สวัสดี",
    "x" * 3000,
    " " * 3000,
    "\n" * 300,
    "ab " * 1000,
    "0123456789" * 200,
    "早" * 1500,
    "😀" * 500,
    "\U0010ffff\ue000\ufffd",
)
"""Texts on which tokenizer libraries are known to differ, or may."""


class BackendUnavailable(Exception):
    """A backend that is not installed, or refuses the tokenizer; its text says which."""


def prepare(tokenizer: Tokenizer, name: BackendName) -> str:
    """What takes a backend long to work out from the tokenizer's file; "" where nothing does."""
    return _gigatoken_definition(tokenizer) if name == "gigatoken" else ""


def make_encode(tokenizer: Tokenizer, name: BackendName, prepared: str = "") -> Encode:
    """The function of a fast backend that encodes texts as `tokenizer` does, so far as the backend can.

    Raises:
        BackendUnavailable: not installed, or not for this kind of tokenizer.
    """
    maker = {"gigatoken": _gigatoken, "kitoken": _kitoken}[name]
    try:
        return maker(tokenizer, prepared)
    except ImportError:
        raise BackendUnavailable(f"is not installed (pip install {name})") from None
    except BackendUnavailable:
        raise
    except Exception as error:  # Each library has exceptions of its own; whatever it says, it is not used.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise BackendUnavailable(f"does not take this tokenizer: {reason}") from None


def first_difference(tokenizer: Tokenizer, texts: Sequence[str], continued: Sequence[bool] | None = None) -> int | None:
    """Place of the first text for which the tokenizer's fast backend gives other ids than the reference; None: no such text."""
    wanted, wanted_counts = tokenizer.encode_flat(texts, continued, reference=True)
    found, found_counts = tokenizer.encode_flat(texts, continued)
    if np.array_equal(wanted_counts, found_counts) and np.array_equal(wanted, found):
        return None
    starts = np.concatenate([[0], np.cumsum(wanted_counts)])
    places = np.concatenate([[0], np.cumsum(found_counts)])
    for place in range(len(texts)):
        one, other = wanted[starts[place] : starts[place + 1]], found[places[place] : places[place + 1]]
        if not np.array_equal(one, other):
            return place
    return len(texts) - 1


def _gigatoken_definition(tokenizer: Tokenizer) -> str:
    """The tokenizer as the tokenizer.json that gigatoken is given."""
    import gigatoken

    content = tokenizer.path.read_bytes()
    if tokenizer.type == "huggingface":
        return json.dumps(_without_control_tokens(content))
    if tokenizer.plain_bpe:
        return json.dumps(_llama_definition(tokenizer, gigatoken.Tokenizer.from_sentencepiece(content).merges))
    # It takes some of the others too, and gives wrong ids for them without a word.
    raise BackendUnavailable("is for SentencePiece BPE with byte fallback and identity normalisation only")


def _gigatoken(tokenizer: Tokenizer, prepared: str) -> Encode:
    import gigatoken

    library = gigatoken.Tokenizer.from_json(prepared or _gigatoken_definition(tokenizer))

    def encode(texts: list[str]) -> Ids:
        # One thread: the converter has a process per core.
        found: Any = library.encode_batch(texts, parallel=False).layout
        offsets = np.asarray(found.offsets.data)
        ids = np.asarray(found.content.data)[offsets[0] : offsets[-1]]
        return ids.view(np.int32) if ids.dtype == np.uint32 else ids.astype(np.int32), np.diff(offsets)

    return encode


def _llama_definition(tokenizer: Tokenizer, merges: Sequence[tuple[bytes, bytes]]) -> dict[str, Any]:
    """A plain SentencePiece BPE model as a tokenizer.json, without control tokens: in a text they are text."""
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    lead = [{"type": "Prepend", "prepend": "\u2581"}] if tokenizer.dummy_prefix else []
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": [*lead, replace]},
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {tokenizer.token(index): index for index in range(tokenizer.vocab_size)},
            "merges": [[left.decode(), right.decode()] for left, right in merges],
        },
    }


def _without_control_tokens(content: bytes) -> dict[str, Any]:
    """A tokenizer.json that takes control tokens in a text for text, and neither cuts nor pads."""
    definition = json.loads(content)
    added = definition.get("added_tokens") or []
    definition["added_tokens"] = [token for token in added if not token.get("special")]
    return {**definition, "truncation": None, "padding": None, "post_processor": None}


def _kitoken(tokenizer: Tokenizer, prepared: str) -> Encode:
    from kitoken import Kitoken

    content = tokenizer.path.read_bytes()
    library = Kitoken.from_sentencepiece(content) if tokenizer.type == "sentencepiece" else _kitoken_from_json(content)

    def encode(texts: list[str]) -> Ids:
        found = library.encode_all(texts, False)
        counts = np.fromiter(map(len, found), np.int64, len(found))
        ids = np.empty(int(counts.sum()), np.int32)
        place = 0
        for row in found:
            ids[place : place + len(row)] = row
            place += len(row)
        return ids, counts

    return encode


def _kitoken_from_json(content: bytes) -> Any:
    from kitoken import Kitoken

    return Kitoken.from_tokenizers(json.dumps(_without_control_tokens(content)).encode())
