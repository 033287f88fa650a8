"""Generate text with the language model of a folder: from a prompt, or from standard input.

Pieces are printed as they come; Ctrl-C ends the text.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys

from pteron.cli.arguments import add_json, print_json
from pteron.cli.failure import UsageError
from pteron.cli.generation import add_generation, open_generator, settings, statistics

EXAMPLE = 'pteron generate model "Once upon a time" --max-new-tokens 50'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_generation(parser)
    parser.add_argument("prompt", nargs="?", help="the prompt (default: standard input)")
    parser.add_argument("--logprobs", type=int, metavar="N", help="with --json: of tokens and N others")
    add_json(parser)


def execute(options: argparse.Namespace) -> int:
    """Prints the text."""
    prompt = sys.stdin.read() if options.prompt is None else options.prompt
    if not prompt:
        raise UsageError("the prompt is empty")
    given = settings(options)
    if options.logprobs is not None:
        given["logprobs"] = options.logprobs
    stream = open_generator(options).stream(prompt, **given)
    try:
        for piece in stream:
            if not options.json:
                print(piece, end="", flush=True)
    except KeyboardInterrupt:
        stream.close()
        print()
        return 130
    result = stream.result
    if options.json:
        print_json(dataclasses.asdict(result))
    else:
        print()
    if options.stats:
        print(statistics(result), file=sys.stderr)
    return 0
