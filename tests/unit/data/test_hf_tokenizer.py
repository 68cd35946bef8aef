"""transformers gives the ids that the training data was made with."""

from __future__ import annotations

from pathlib import Path

import pytest

from msllm.data.hf_tokenizer import hf_files
from msllm.data.tokenizer import Tokenizer, load_tokenizer


def huggingface_file(folder: Path, documents: list[str]) -> Path:
    """A byte-level BPE as GPT-2's and Llama 3's."""
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, pre_tokenizers, trainers

    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    library.train_from_iterator(documents, trainer)
    library.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


@pytest.mark.parametrize("kind", ["sentencepiece", "huggingface"])
@pytest.mark.parametrize("fast", [True, False])
def test_transformers_gives_the_ids_of_the_training_data(kind, fast, tokenizer_file, documents, tmp_path):
    import transformers

    file = tokenizer_file if kind == "sentencepiece" else huggingface_file(tmp_path, documents)
    ours: Tokenizer = load_tokenizer(file)
    (tmp_path / "hf").mkdir()
    for name, content in hf_files(ours, 64).items():
        (tmp_path / "hf" / name).write_bytes(content)
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "hf"), use_fast=fast)
    assert (theirs.eos_token_id, theirs.bos_token_id) == (ours.eod_id, ours.bos_id)
    assert theirs.model_max_length == 64
    for text in [*documents[:40], "  two  spaces\n\ttab 12345", "2024", "你好 🙂"]:
        assert theirs.encode(text) == ours.encode(text)
