from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from models.llama.config import LlamaConfig
from msllm.config.sections import DataConfig
from msllm.data.dataset import RankBatches, check_dataset, check_same_tokenizer, reader_threads
from msllm.data.manifest import Manifest, TokenizerInfo
from msllm.data.sampler import RankShare, SampleOrder
from msllm.errors import InputError
from msllm.testing.datasets import counting_rows, write_dataset

ROWS, SEQ_LENGTH, VOCAB = 23, 16, 64
TOKENS = counting_rows(ROWS, SEQ_LENGTH, VOCAB)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return write_dataset(tmp_path_factory.mktemp("data") / "rows", TOKENS, VOCAB, shards=3)


def data_config(**fields) -> DataConfig:
    return DataConfig(train_dataset="rows", seq_length=SEQ_LENGTH, **fields)


def model_config(**fields) -> LlamaConfig:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    return LlamaConfig(model_type="llama", max_position_embeddings=32, **{"vocab_size": VOCAB, **sizes, **fields})


def rank_batches(manifest: Manifest, share: RankShare, shuffle: bool = True, **data) -> RankBatches:
    return RankBatches(manifest, SampleOrder(manifest.rows, 5, shuffle), share, data_config(**data))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("position", [0, 4, 20, 23, 100])
def test_batches_hold_the_rows_of_the_order_from_any_position(manifest: Manifest, position: int, workers: int):
    """Over the ends of epochs and shards: 12 steps of 4 are more than two epochs."""
    batches = rank_batches(manifest, RankShare(4), num_parallel_workers=workers, prefetch_size=2)
    read = list(batches.batches(position, 12))
    assert [batch.shape for batch in read] == [(4, SEQ_LENGTH + 1)] * 12
    assert {batch.dtype for batch in read} == {np.dtype(np.int32)}
    wanted = TOKENS[SampleOrder(ROWS, 5).rows_at(np.arange(position, position + 48))]
    assert np.array_equal(np.concatenate(read), wanted)


def test_row_ids_name_the_rows_of_the_batch_at_a_position(manifest: Manifest):
    batches = rank_batches(manifest, RankShare(6, data_parallel=2, data_rank=1))
    for step, batch in enumerate(batches.batches(18, 5)):
        assert np.array_equal(TOKENS[batches.row_ids(18 + step * 6)], batch)


def test_two_ranks_read_what_one_reads(manifest: Manifest):
    alone = np.stack(list(rank_batches(manifest, RankShare(6)).batches(12, 9)))
    left = np.stack(list(rank_batches(manifest, RankShare(6, 2, 0)).batches(12, 9)))
    right = np.stack(list(rank_batches(manifest, RankShare(6, 2, 1)).batches(12, 9)))
    assert np.array_equal(np.concatenate([left, right], axis=1), alone)


def test_a_batch_may_be_the_whole_dataset(manifest: Manifest):
    (first, second) = rank_batches(manifest, RankShare(ROWS), shuffle=False).batches(0, 2)
    assert np.array_equal(first, TOKENS)
    assert np.array_equal(second, TOKENS)


def test_a_dataset_that_fits_is_taken(manifest: Manifest):
    check_dataset(manifest, data_config(), model_config(), smallest=ROWS)


def test_all_that_does_not_fit_is_said_at_once(manifest: Manifest):
    data = data_config().model_copy(update={"seq_length": 8})
    with pytest.raises(InputError) as error:
        check_dataset(manifest, data, model_config(vocab_size=50), smallest=ROWS + 1)
    length, vocabulary, rows = [str(problem) for problem in error.value.problems]
    assert "seq_length 16" in length and "data.seq_length is 8" in length
    assert f"token id {TOKENS.max()}" in vocabulary and "model.vocab_size (50)" in vocabulary and "64" in vocabulary
    assert "23 rows" in rows and "training.global_batch_size (24)" in rows
    assert all(str(manifest.directory) in text for text in (length, vocabulary, rows))


def test_a_dataset_of_one_row_is_read_again_and_again_and_told_in_the_singular(tmp_path: Path):
    one = write_dataset(tmp_path / "one", TOKENS[:1], VOCAB)
    read = list(rank_batches(one, RankShare(1)).batches(0, 3))
    assert np.array_equal(np.concatenate(read), TOKENS[[0, 0, 0]])
    with pytest.raises(InputError, match=r"the dataset has 1 row, training.global_batch_size \(2\) is more"):
        check_dataset(one, data_config(), model_config(), smallest=2)


def test_the_largest_id_may_be_the_last_row_of_the_embedding_but_not_beyond(manifest: Manifest):
    whole = manifest.model_copy(update={"vocab_size": VOCAB, "max_token_id": VOCAB - 1})
    check_dataset(whole, data_config(), model_config(vocab_size=VOCAB))
    with pytest.raises(InputError, match="token id 63"):
        check_dataset(whole, data_config(), model_config(vocab_size=VOCAB - 1))


def test_a_tokenizer_larger_than_the_embedding_is_refused_even_if_its_last_ids_are_unused(manifest: Manifest):
    unused = manifest.model_copy(update={"vocab_size": 100})
    with pytest.raises(InputError, match=r"tokenizer has 100 ids, model.vocab_size \(64\) must be at least that"):
        check_dataset(unused, data_config(), model_config())


def test_datasets_of_two_tokenizers_are_refused(manifest: Manifest):
    check_same_tokenizer(manifest, manifest)
    other = manifest.model_copy(
        update={"tokenizer": TokenizerInfo(type="sentencepiece", file="tokenizer.model", fingerprint="ab" * 32)}
    )
    with pytest.raises(InputError, match="another tokenizer") as error:
        check_same_tokenizer(manifest, other)
    assert "abababababab" in str(error.value) and manifest.tokenizer.fingerprint[:12] in str(error.value)


def test_reader_threads_stay_within_the_cores(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert [reader_threads(wanted) for wanted in (1, 4, 64)] == [1, 4, 4]


def test_windows_of_a_large_dataset_join_without_a_seam(manifest: Manifest, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("msllm.data.dataset.WINDOW", 9)
    batches = rank_batches(manifest, RankShare(4))
    assert batches.window_steps == 2
    wanted = TOKENS[SampleOrder(ROWS, 5).rows_at(np.arange(28))]
    assert np.array_equal(np.concatenate(list(batches.batches(0, 7))), wanted)


def test_a_share_larger_than_the_window_still_reads_one_batch_at_a_time(
    manifest: Manifest, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("msllm.data.dataset.WINDOW", 3)
    share = replace(RankShare(4), global_batch_size=8)
    wanted = TOKENS[SampleOrder(ROWS, 5).rows_at(np.arange(16))]
    assert np.array_equal(np.concatenate(list(rank_batches(manifest, share).batches(0, 2))), wanted)


def test_the_dataset_moves_with_its_folder(tmp_path: Path):
    from msllm.data.manifest import read_manifest

    write_dataset(tmp_path / "before", TOKENS[:8], VOCAB)
    (tmp_path / "before").rename(tmp_path / "after")
    batches = rank_batches(read_manifest(tmp_path / "after"), RankShare(8), shuffle=False)
    assert np.array_equal(next(batches.batches(0, 1)), TOKENS[:8])
