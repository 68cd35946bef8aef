from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_tools import packing
from data_tools.packing import Packer, Segment, Segmenter, token_stream
from data_tools.readers import Piece
from msllm.data.tokenizer import load_tokenizer


@given(
    parts=st.lists(st.lists(st.integers(0, 99), max_size=30), max_size=8),
    seq_length=st.integers(1, 20),
    pad=st.booleans(),
)
def test_rows_give_the_stream_back(parts: list[list[int]], seq_length: int, pad: bool) -> None:
    packer = Packer(seq_length)
    rows = [packer.add(np.array(part, dtype=np.int32)) for part in parts]
    padding = 0
    if pad:
        last, padding = packer.pad(7)
        rows.append(last)
    table = np.concatenate([np.empty((0, seq_length + 1), np.int32), *rows])
    stream = [token for part in parts for token in part]
    assert packer.tokens == len(stream) and packer.rows == len(table)
    assert table.dtype == np.int32
    assert np.array_equal(table[1:, 0], table[:-1, -1])
    got = [*table[:1, 0], *table[:, 1:].ravel()]
    if pad:
        assert got == stream + [7] * padding
        assert packer.left == 0 and padding < seq_length + 1
    else:
        assert got == stream[: len(got)] and packer.left == len(stream) - len(got) <= seq_length


def test_no_label_is_lost() -> None:
    """Every token but the first is predicted exactly once."""
    rows = Packer(4).add(np.arange(13, dtype=np.int32))
    assert rows[:, 1:].ravel().tolist() == list(range(1, 13))
    assert rows[:, :-1].ravel().tolist() == list(range(12))


@settings(max_examples=60)
@given(data=st.data())
def test_segments_and_batches_change_no_token(tokenizer_file: Path, data: st.DataObject) -> None:
    tokenizer = load_tokenizer(tokenizer_file)
    tokenizer.segment_chars = data.draw(st.integers(2, 40))
    documents = data.draw(st.lists(st.text(alphabet=" \n\t.aeé你😀_\u2581", max_size=200), max_size=6))
    segmenter = Segmenter(tokenizer)
    segments: list[Segment] = []
    for document in documents:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(document)), max_size=3)))
        for start, end in zip([0, *cuts], [*cuts, len(document)]):
            segments += segmenter.segments(Piece(document[start:end], False))
        segments += segmenter.segments(Piece("", True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "BATCH_CHARS", data.draw(st.integers(1, 300)))
        got = [int(token) for tokens in token_stream(segments, tokenizer) for token in tokens]
    want = [token for document in documents for token in [*tokenizer.encode(document), tokenizer.eod_id]]
    assert got == want and segmenter.forced_cuts == 0


def test_text_without_a_place_to_cut_is_cut_by_force_and_counted(
    tokenizer_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MAX_SEGMENT_CHARS", 100)
    tokenizer = load_tokenizer(tokenizer_file)
    tokenizer.segment_chars = 50
    segmenter = Segmenter(tokenizer)
    segments = [segment for _ in range(10) for segment in segmenter.segments(Piece("x" * 73, False))]
    segments += segmenter.segments(Piece("", True))
    texts = [segment.text for segment in segments]
    assert max(map(len, texts)) <= 100 and "".join(texts) == "x" * 730
    assert segmenter.forced_cuts == 7
    (tokens,) = token_stream(segments, tokenizer)
    assert tokenizer.decode(tokens[:-1].tolist()) == "x" * 730


def test_long_document_is_given_on_in_segments_and_encoded_in_batches(tokenizer_file: Path) -> None:
    tokenizer = load_tokenizer(tokenizer_file)
    segmenter = Segmenter(tokenizer)
    line = "a line of text\n"
    pieces = (Piece(line * 1000, False) for _ in range(800))
    segments = (segment for piece in pieces for segment in segmenter.segments(piece))
    first = next(token_stream(segments, tokenizer))
    assert len(first) * 2 < packing.BATCH_CHARS * 2 and len(list(pieces)) > 100
