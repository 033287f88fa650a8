"""Talk with the language model of a folder: a line is a message, an answer follows.

/save FILE and /restore FILE keep a conversation, /new begins another, /quit (or the end of the input) ends.
Ctrl-C ends an answer, and between answers the command. With --json an answer is one line, an object with its
text, its tokens and what they took.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pteron import PteronError
from pteron.cli.failure import one_line
from pteron.cli.generation import add_generation, open_generator, settings, statistics

if TYPE_CHECKING:
    from pteron.llm import Conversation

EXAMPLE = 'pteron chat model --system "Be brief." --temperature 0.7'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_generation(parser)
    parser.add_argument("--system", metavar="TEXT", help="what the system says first")
    parser.add_argument("--restore", type=Path, metavar="FILE", help="go on with a conversation of /save")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each answer")


def execute(options: argparse.Namespace) -> int:
    """Until the input ends. What goes wrong with a message is said, and the conversation goes on."""
    talk = _Talk(options)
    is_terminal = sys.stdin.isatty() and not options.json
    while True:
        if is_terminal:
            print("> ", end="", flush=True)
        line = sys.stdin.readline()
        if not line or line.strip() == "/quit":
            return 0
        try:
            talk.handle(line.strip())
        except (OSError, PteronError) as e:
            print(f"pteron: {one_line(e)}", file=sys.stderr)


class _Talk:
    """A conversation and what lines do with it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options, self._settings = options, settings(options)
        self._generator = open_generator(options)
        self._chat = self._new()
        if options.restore is not None:
            self._chat = self._generator.restore(options.restore, **self._settings)

    def _new(self) -> Conversation:
        return self._generator.conversation(self._options.system or (), **self._settings)

    def handle(self, line: str) -> None:
        """A message, or a command."""
        word, _, rest = line.partition(" ")
        if word == "/new":
            self._chat = self._new()
        elif word == "/save" and rest:
            self._chat.save(rest)
        elif word == "/restore" and rest:
            self._chat = self._generator.restore(rest, **self._settings)
        elif word.startswith("/"):
            print("commands: /save FILE, /restore FILE, /new, /quit", file=sys.stderr)
        elif line:
            self._answer(line)

    def _answer(self, message: str) -> None:
        stream = self._chat.stream(message)
        pieces: list[str] = []
        try:
            for piece in stream:
                pieces.append(piece)
                if not self._options.json:
                    print(piece, end="", flush=True)
        except KeyboardInterrupt:
            stream.close()
            known = {"text": "".join(pieces), "tokens": stream.tokens, "finish_reason": "cancelled"}
        else:
            known = dataclasses.asdict(stream.result)
            if self._options.stats:
                print(f"\n{statistics(stream.result)}", end="", file=sys.stderr)
        if self._options.json:
            print(json.dumps({"role": "assistant", **known}), end="")
        print(flush=True)
