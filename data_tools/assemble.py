"""From the results of all shards to the manifest, whoever made them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from data_tools.shard import ShardResult
from data_tools.words import counted
from msllm.config.sections import Section
from msllm.data.manifest import ConvertOptions, Count, Manifest, Positive, TokenizerInfo


class Recipe(Section):
    """What a manifest says beside its shards: how they were made."""

    options: ConvertOptions
    tokenizer: TokenizerInfo
    eod_id: Count
    vocab_size: Positive
    versions: dict[str, str]


def too_small(recipe: Recipe, results: Sequence[ShardResult]) -> str:
    """What to say where the corpus fills no row, "" where it does."""
    tokens = sum(result.tokens for result in results)
    row = recipe.options.seq_length + 1
    if tokens >= row and any(result.info for result in results):
        return ""
    skipped = sum(sum(result.skipped.values()) for result in results)
    left_out = f" ({skipped:,} skipped)" if skipped else ""
    documents = sum(result.documents for result in results)
    shards = counted(len(results), "shard")
    what = f"{counted(documents, 'document')}{left_out} with {counted(tokens, 'token')} in {shards}"
    return f"the corpus is too small: {what}, a row needs {row} (--seq-length + 1)"


def assemble(recipe: Recipe, results: Sequence[ShardResult]) -> Manifest:
    """The manifest of a dataset whose shards, in order, are `results`."""
    shards = tuple(result.info for result in results if result.info is not None)
    skipped: Counter[str] = Counter()
    for result in results:
        skipped.update(result.skipped)
    return Manifest(
        seq_length=recipe.options.seq_length,
        rows=sum(shard.rows for shard in shards),
        tokens=sum(result.tokens for result in results),
        documents=sum(result.documents for result in results),
        padding_tokens=sum(shard.padding_tokens for shard in shards),
        dropped_tokens=sum(result.dropped_tokens for result in results),
        eod_id=recipe.eod_id,
        vocab_size=recipe.vocab_size,
        max_token_id=max(shard.max_token_id for shard in shards),
        tokenizer=recipe.tokenizer,
        options=recipe.options,
        versions=recipe.versions,
        skipped=dict(sorted(skipped.items())),
        shards=shards,
        sources=tuple(source for result in results for source in result.sources),
    )
