"""Results in words, for people: what was converted, what a dataset holds, what is damaged."""

from __future__ import annotations

from collections import Counter

from data_tools.convert import ConvertSummary

SHOWN_NAMES = 3


def show_conversion(summary: ConvertSummary) -> None:
    """Print what a conversion did, and everything that it left out."""
    manifest = summary.manifest
    files = f"{len(manifest.shards)} {plural('file', len(manifest.shards))}"
    size = f"{manifest.rows:,} rows of {manifest.seq_length} + 1 tokens in {files}"
    if summary.reused:
        print(f"already converted: {summary.output} holds {size}, made from the same input in the same way")
        return
    rate = f"{summary.input_bytes / summary.seconds / 1e6:.1f} MB/s, {manifest.tokens / summary.seconds / 1e6:.2f} Mtok/s"
    if summary.resumed_shards:
        rate = f"{summary.resumed_shards} shards were there already"
    inputs = f"{summary.input_files:,} {plural('file', summary.input_files)}, {summary.input_bytes / 1e6:,.1f} MB"
    print(f"read     {inputs}: {manifest.documents:,} documents, {manifest.tokens:,} tokens with an EOD after each")
    print(f"wrote    {summary.output}: {size}")
    print(f"took     {summary.seconds:.1f} s ({rate})")
    if manifest.padding_tokens:
        print(f"padded   {manifest.padding_tokens:,} EOD tokens at the ends of shards (--tail pad)")
    if manifest.dropped_tokens:
        print(f"dropped  {manifest.dropped_tokens:,} tokens at the ends of shards (--tail drop)")
    for kind, count in manifest.skipped.items():
        print(f"skipped  {count:,} x {kind} (--on-error skip)")
    for kind, count in summary.notices.items():
        print(f"note     {count:,} {kind}")
    cuts = sum(shard.forced_cuts for shard in manifest.shards)
    if cuts:
        print(f"note     {cuts} cuts in documents too long for the tokenizer, where tokens may differ")
    if len(manifest.shards) < manifest.options.shards:
        print(f"note     {manifest.options.shards - len(manifest.shards)} shards fill no row and have no file")
    if manifest.padding_tokens > 0.1 * manifest.tokens:
        print("note     more than a tenth of the rows is padding: fewer --shards would do")
    reasons = Counter(reason for _, reason in summary.ignored)
    for reason, count in reasons.items():
        names = [file for file, why in summary.ignored if why == reason][:SHOWN_NAMES]
        more = " ..." if count > len(names) else ""
        print(f"ignored  {count:,} ({reason}): {', '.join(names)}{more}")


def plural(word: str, count: int) -> str:
    """`word`, with an s unless there is one of it."""
    return word if count == 1 else word + "s"
