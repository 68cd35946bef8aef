"""Results in words, for people: what was converted, what a dataset holds, what is damaged."""

from __future__ import annotations

from collections import Counter

from data_tools.convert import ConvertSummary, PartSummary
from data_tools.inspect import Inspection
from data_tools.parts import MergeSummary
from data_tools.train_tokenizer import TrainSummary
from data_tools.verify import Verification
from data_tools.words import counted

SHOWN_NAMES = 3


def show_conversion(summary: ConvertSummary) -> None:
    """Print what a conversion did, and everything that it left out."""
    manifest = summary.manifest
    files = counted(len(manifest.shards), "file")
    size = f"{counted(manifest.rows, 'row')} of {manifest.seq_length} + 1 tokens in {files}"
    if summary.reused:
        print(f"already converted: {summary.output} holds {size}, made from the same input in the same way")
        return
    rate = (
        f"{summary.input_bytes / summary.seconds / 1e6:.1f} MB/s, {manifest.tokens / summary.seconds / 1e6:.2f} Mtok/s"
    )
    if summary.resumed_shards:
        rate = f"{counted(summary.resumed_shards, 'shard')} finished before"
    inputs = f"{counted(summary.input_files, 'file')}, {summary.input_bytes / 1e6:,.1f} MB"
    documents = counted(manifest.documents, "document")
    print(f"read     {inputs}: {documents}, {counted(manifest.tokens, 'token')} with an EOD after each document")
    print(f"wrote    {summary.output}: {size}")
    print(f"took     {summary.seconds:.1f} s ({rate})")
    if chosen := summary.tokenized:
        same = f", same tokens as the reference on {counted(chosen.documents, 'document')} of this input"
        print(f"with     {chosen.backend}{same if chosen.documents else ''} (--tokenizer-backend)")
        for why in chosen.passed_over:
            print(f"note     {why}: not used")
    if manifest.padding_tokens:
        print(f"padded   {counted(manifest.padding_tokens, 'EOD token')} at the ends of shards (--tail pad)")
    if manifest.dropped_tokens:
        print(f"dropped  {counted(manifest.dropped_tokens, 'token')} at the ends of shards (--tail drop)")
    for kind, count in manifest.skipped.items():
        print(f"skipped  {count:,} x {kind} (--on-error skip)")
    for kind, count in summary.notices.items():
        print(f"note     {count:,} {kind}")
    cuts = sum(shard.forced_cuts for shard in manifest.shards)
    if cuts:
        print(f"note     {counted(cuts, 'cut')} in documents too long for the tokenizer, where tokens may differ")
    empty = manifest.options.shards - len(manifest.shards)
    if empty:
        print(f"note     {counted(empty, 'shard')} without a row and without a file")
    if manifest.padding_tokens > 0.1 * manifest.tokens:
        print("note     more than a tenth of the rows is padding: fewer --shards would do")
    reasons = Counter(reason for _, reason in summary.ignored)
    for reason, count in reasons.items():
        names = [file for file, why in summary.ignored if why == reason][:SHOWN_NAMES]
        more = " ..." if count > len(names) else ""
        print(f"ignored  {count:,} ({reason}): {', '.join(names)}{more}")


def show_part(summary: PartSummary) -> None:
    """Print what a part of a conversion holds, and what comes next."""
    part = summary.part
    tokens = sum(result.tokens for result in part.results)
    size = f"{counted(len(part.results), 'shard')}, {counted(tokens, 'token')}"
    what = "already converted: " if summary.reused else ""
    print(f"{what}part {part.part} of {part.num_parts}: {summary.folder} holds {size}, {summary.seconds:.1f} s")
    print("when all parts are there: msllm data merge -o with the same output")


def show_merge(summary: MergeSummary) -> None:
    """Print what a dataset was merged from."""
    manifest = summary.manifest
    what = "already merged: " if summary.reused else ""
    rows = f"{counted(manifest.rows, 'row')} in {counted(len(manifest.shards), 'file')}, {counted(manifest.tokens, 'token')}"
    print(f"{what}{summary.output} holds {rows}, of {counted(summary.parts, 'part')}; the parts can be removed")


def show_training(summary: TrainSummary) -> None:
    """Print what a tokenizer was made from."""
    part = "a sample of " if summary.sampled else ""
    print(f"read   {part}{counted(summary.documents, 'document')}, {counted(summary.characters, 'character')}")
    print(f"wrote  {summary.output}: {summary.vocab_size:,} tokens, sha256 {summary.fingerprint[:16]}")
    print(f"took   {summary.seconds:.1f} s")
    for kind, count in summary.skipped.items():
        print(f"skipped {count:,} x {kind} (--on-error skip)")


def show_inspection(inspection: Inspection) -> None:
    """Print a dataset's numbers, its frequent tokens and some rows as text."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    manifest, statistics = inspection.manifest, inspection.statistics
    facts = {
        "folder": manifest.directory,
        "rows": f"{manifest.rows:,} of {manifest.seq_length} + 1 tokens, in {counted(len(manifest.shards), 'file')}, "
        f"{inspection.bytes / 1e6:,.1f} MB",
        "documents": f"{manifest.documents:,}, {manifest.tokens / manifest.documents:,.1f} tokens each (EOD included)",
        "tokens": f"{manifest.tokens:,}; {manifest.padding_tokens:,} of padding, {manifest.dropped_tokens:,} dropped",
        "tokenizer": f"{manifest.tokenizer.type} {manifest.tokenizer.file}, sha256 {manifest.tokenizer.fingerprint[:16]}",
        "vocabulary": f"{manifest.vocab_size:,} ids, largest used {manifest.max_token_id:,}, EOD is {manifest.eod_id}",
        "skipped": ", ".join(f"{count:,} x {kind}" for kind, count in manifest.skipped.items()) or "nothing",
        "sources": counted(len({source.file for source in manifest.sources}), "file"),
        "options": ", ".join(f"{key} {value}" for key, value in manifest.options.model_dump().items()),
        "made with": ", ".join(f"{name} {version}" for name, version in manifest.versions.items()),
        "sample": f"{counted(statistics.rows, 'row')}: {counted(statistics.distinct, 'different id')}, "
        f"{statistics.eod_per_row:.2f} EOD a row, {statistics.characters_per_token:.2f} characters a token",
        "frequent": "  ".join(f"{name} {count:,}" for _, name, count in statistics.frequent),
    }
    for name, fact in facts.items():
        console.print(Text.assemble((f"{name:<11}", "bold"), str(fact)))
    for row in inspection.rows:
        console.print(Text(f"\nrow {row.index}", style="bold"))
        text = Text()
        for number, document in enumerate(row.documents):
            text.append(" <EOD> " if number else "", style="reverse")
            text.append(document)
        console.print(text)


def show_verification(found: Verification) -> None:
    """Print each damaged file, or that there is none."""
    for damage in found.damages:
        print(f"{found.directory / damage.file}: {damage.kind}: {damage.detail}")
    for name in found.others:
        print(f"{found.directory / name}: not part of the dataset, does no harm")
    size = f"{counted(found.files, 'file')}, {found.bytes / 1e6:,.1f} MB"
    decoded = f", {counted(found.rows_decoded, 'row')} decoded" if found.rows_decoded else ""
    if found.damages:
        count = len({damage.file for damage in found.damages})
        print(f"{counted(count, 'file')} damaged of {size}{decoded}: copy the dataset again, or convert it again")
    else:
        print(f"{found.directory}: whole ({size}{decoded})")
