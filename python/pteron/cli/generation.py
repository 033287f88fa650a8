"""Arguments that `generate` and `chat` share, and the generator that they open."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pteron.cli.failure import UsageError

if TYPE_CHECKING:
    from pteron.llm import GenerationResult, Generator

_NUMBERS = {
    "temperature": (float, "divide logits by this and draw tokens; 0: take the most likely one"),
    "top_k": (int, "draw from so many most likely tokens"),
    "top_p": (float, "draw from the most likely tokens that make up this share"),
    "min_p": (float, "draw from tokens with this part of the most likely one's probability"),
    "repetition_penalty": (float, "make tokens of prompt and text less likely"),
    "seed": (int, "the same seed gives the same text"),
}


def add_generation(parser: argparse.ArgumentParser) -> None:
    """The folder, and settings of a generation."""
    parser.add_argument("folder", type=Path, help="a folder with model.pte and its tokenizer")
    parser.add_argument("--max-new-tokens", type=int, help="most tokens of the text")
    for name, (kind, text) in _NUMBERS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help=text)
    parser.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end at this text; may be repeated"
    )
    parser.add_argument("--ignore-eos", action="store_true", help="go on behind tokens that end a text")
    parser.add_argument(
        "--prompt-lookup", type=int, default=0, metavar="N", help="guess N tokens from earlier places"
    )
    parser.add_argument("--threads", type=int, help="threads of the model")
    parser.add_argument("--stats", action="store_true", help="print times to standard error")


def open_generator(options: argparse.Namespace) -> Generator:
    """The generator of the folder; UsageError where a package is missing that it needs."""
    from pteron.llm import Generator

    try:
        return Generator(options.folder, threads=options.threads)
    except ImportError as e:
        raise UsageError(str(e)) from None


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """What the options say, for `Generator.generate`."""
    found = {name: getattr(options, name) for name in ("max_new_tokens", *_NUMBERS)}
    given = {name: value for name, value in found.items() if value is not None}
    given["stop_strings"], given["ignore_eos"] = options.stop, options.ignore_eos
    given["prompt_lookup_num_tokens"] = options.prompt_lookup
    return given


def statistics(result: GenerationResult) -> str:
    """Times of a text in one line."""
    times = result.timings
    line = (
        f"{result.prompt_tokens} tokens of prompt ({result.reused_tokens} reused), first token after "
        f"{times.first_token * 1000:.0f} ms, {len(result.tokens)} new tokens at "
        f"{times.tokens_per_second:.1f} a second, seed {result.seed}"
    )
    if result.proposed_tokens:
        line += f", {result.accepted_tokens} of {result.proposed_tokens} guesses right"
    return line
