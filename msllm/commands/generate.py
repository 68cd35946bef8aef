"""`msllm generate`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from msllm.commands.mindspore_session import mindspore_session
from msllm.commands.options import AsJson, print_json
from msllm.commands.trained import Checkpoint, find_trained, load_model, load_tokenizer_of
from msllm.errors import InputError


def generate(
    checkpoint: Checkpoint,
    prompt: Annotated[str, typer.Option(help="Text to go on with.")],
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Tokens to add at most.")] = 128,
    temperature: Annotated[float, typer.Option(help="0: always the most likely token; higher: more varied.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(help="Draw among so many of the most likely tokens.")] = None,
    top_p: Annotated[float, typer.Option(help="Draw among the most likely tokens of this total probability.")] = 0.95,
    stop_id: Annotated[
        list[int] | None, typer.Option(help="Token that ends the text, besides the end of document; repeatable.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Draws the same text again.")] = 0,
    cache: Annotated[bool, typer.Option(help="Keep keys and values; without, everything is computed anew.")] = True,
    tokenizer: Annotated[Path | None, typer.Option(help="Tokenizer, where the run's folder holds none.")] = None,
    as_json: AsJson = False,
) -> None:
    """Continue a text with a trained model.

    Example: msllm generate --checkpoint runs/a --prompt "def read(" --max-new-tokens 64
    """
    from msllm.generation.sampling import Sampling

    sampling = Sampling(temperature, top_k, top_p)
    if problems := sampling.problems():
        raise InputError(problems)
    trained = find_trained(checkpoint)
    words = load_tokenizer_of(trained, tokenizer)
    ids = words.encode(prompt) or [words.bos_id if words.bos_id is not None else words.eod_id]

    longest = trained.config.model.max_position_embeddings
    new: list[int] = []
    shown = words.decode(ids)
    with mindspore_session():
        from msllm.generation.generator import Generator

        generator = Generator(load_model(trained), longest, cache, words.vocab_size)
        started = time.perf_counter()
        for token in generator.generate(ids, max_new_tokens, sampling, [words.eod_id, *(stop_id or [])], seed):
            if not as_json and not new:
                typer.echo(prompt, nl=False)  # not before: what is wrong would come out behind it
            new.append(token)
            text = words.decode(ids + new)
            # A character of several tokens shows up as U+FFFD until its last one is there.
            if not as_json and not text.endswith("\ufffd"):
                typer.echo(text[len(shown) :], nl=False)
                shown = text
        seconds = time.perf_counter() - started
    ended_by = "stop_id"
    if len(new) == max_new_tokens:
        ended_by = "max_new_tokens"
    elif len(ids) + len(new) == longest:
        ended_by = "max_position_embeddings"
    if as_json:
        print_json(
            {
                "checkpoint": str(trained.path),
                "prompt": prompt,
                "text": words.decode(ids + new)[len(words.decode(ids)) :],
                "ids": new,
                "ended_by": ended_by,
                "tokens_per_second": len(new) / seconds if seconds else 0.0,
            }
        )
        return
    typer.echo("" if new else prompt)
    if ended_by == "max_position_embeddings":
        typer.echo(
            f"note: stopped after {len(new)} of {max_new_tokens} tokens: with the prompt's {len(ids)} they fill the model's "
            f"max_position_embeddings ({longest})",
            err=True,
        )
