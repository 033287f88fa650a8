"""Write down speech: a WAV file in, its text out, with the Whisper model of a folder.

Segments are printed as they come with --timestamps.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pteron.cli.arguments import add_json, print_json
from pteron.cli.failure import UsageError
from pteron.cli.numbers import count

if TYPE_CHECKING:
    from pteron.llm import Transcriber

EXAMPLE = "pteron transcribe talk.wav --model whisper --timestamps"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("sound", type=Path, help="a WAV file")
    parser.add_argument(
        "--model",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="a folder with model.pte and its tokenizer",
    )
    parser.add_argument("--language", metavar="CODE", help="what is spoken, such as en (default: found out)")
    parser.add_argument(
        "--task", choices=("transcribe", "translate"), default="transcribe", help="translate: to English"
    )
    parser.add_argument("--timestamps", action="store_true", help="print a line for each segment")
    parser.add_argument("--max-new-tokens", type=count, help="most tokens of a window of 30 s")
    parser.add_argument("--threads", type=count, help="threads of the model")
    add_json(parser)


def execute(options: argparse.Namespace) -> int:
    """Prints the text."""
    hearing = _opened(options).segments(
        options.sound,
        language=options.language,
        task=options.task,
        max_new_tokens=options.max_new_tokens,
    )
    segments = []
    for segment in hearing:
        segments.append(segment)
        if options.timestamps and not options.json:
            print(f"[{segment.start:.2f} - {segment.end:.2f}] {segment.text}", flush=True)
    if options.json:
        print_json(
            {
                "text": hearing.text.strip(),
                "language": hearing.language,
                "duration": hearing.duration,
                "segments": [dataclasses.asdict(segment) for segment in segments],
            }
        )
    elif options.timestamps:
        if hearing.language is not None:
            print(f"language: {hearing.language}", file=sys.stderr)
    else:
        print(hearing.text.strip())
    return 0


def _opened(options: argparse.Namespace) -> Transcriber:
    from pteron.llm import Transcriber

    try:
        return Transcriber(options.model, threads=options.threads)
    except ImportError as e:
        raise UsageError(str(e)) from None
