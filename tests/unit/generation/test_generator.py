"""Generation with a cache gives the tokens that generation without one gives."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest

from msllm.errors import InputError
from msllm.generation.generator import Generator, bucket
from msllm.generation.sampling import Sampling
from msllm.registry import MODEL_CONFIGS, build_model

COMMON = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA = MODEL_CONFIGS["llama"](
    model_type="llama",
    num_key_value_heads=2,
    intermediate_size=48,
    max_position_embeddings=40,
    initializer_range=0.2,
    **COMMON,
)
GPT2 = MODEL_CONFIGS["gpt2"](model_type="gpt2", max_position_embeddings=40, initializer_range=0.2, **COMMON)


def generator(config, use_cache: bool) -> Generator:
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(7)
    return Generator(build_model(config), config.max_position_embeddings, use_cache)


@pytest.fixture(scope="module", params=[LLAMA, GPT2], ids=["llama", "gpt2"])
def pair(request) -> tuple[Generator, Generator]:
    return generator(request.param, True), generator(request.param, False)


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0), Sampling(0.9, top_k=20, top_p=0.95)], ids=["greedy", "drawn"]
)
@pytest.mark.parametrize("prompt", [[5], [1, 2, 3, 4, 5, 6, 7], list(range(20))], ids=len)
def test_cached_generation_equals_uncached_token_for_token(pair, prompt, sampling):
    cached, plain = (list(one.generate(prompt, 12, sampling, seed=3)) for one in pair)
    assert len(cached) == 12
    assert cached == plain
    if sampling.temperature:  # a model that says one token only would prove little
        assert len(set(cached)) > 2


def test_a_cache_holds_nothing_of_the_text_before(pair):
    cached = pair[0]
    first = list(cached.generate([9, 8], 6, Sampling(temperature=0)))
    list(cached.generate(list(range(30)), 5, Sampling(temperature=0)))
    assert list(cached.generate([9, 8], 6, Sampling(temperature=0))) == first


def test_a_stop_id_ends_the_text_and_is_not_given_out(pair):
    whole = list(pair[0].generate([5], 12, Sampling(temperature=0)))
    stop = whole[4]
    assert list(pair[0].generate([5], 12, Sampling(temperature=0), stop_ids=[stop])) == whole[: whole.index(stop)]


def test_generation_ends_at_the_models_last_position(pair):
    for one in pair:
        assert len(list(one.generate(list(range(37)), 100, Sampling(temperature=0)))) == 3


def test_prompts_without_tokens_or_without_room_are_refused(pair):
    with pytest.raises(InputError, match="no tokens"):
        list(pair[0].generate([], 1, Sampling()))
    with pytest.raises(InputError, match=r"40 tokens.*max_position_embeddings \(40\)"):
        list(pair[0].generate([1] * 40, 1, Sampling()))


def test_lengths_are_padded_to_few_sizes():
    assert [bucket(n, 100) for n in (1, 16, 17, 33, 70, 100)] == [16, 16, 32, 64, 100, 100]
    assert np.all(np.array([bucket(n, 1000) >= n for n in range(1, 1001)]))


def test_ids_that_the_tokenizer_does_not_know_are_never_drawn():
    ms.set_seed(7)
    known = Generator(build_model(LLAMA), LLAMA.max_position_embeddings, vocab_size=9)
    assert max(known.generate([5], 30, Sampling(temperature=2.0))) < 9
