"""Chats with a language model: a line is a message, an empty line or the end of the input ends the chat.

    python chat.py export HuggingFaceTB/SmolLM2-135M-Instruct smollm --scheme int8-weight   # torch
    python chat.py run smollm                                                            # no torch

``pip install "pteron[llm]"`` for the second command, and transformers for the first. The model is one with a
chat template. ``export FILE.gguf`` takes a file of llama.cpp, which transformers reads (``pip install gguf
accelerate``).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pteron.llm


def export(model: str, folder: str, scheme: str | None, tokens: int) -> None:
    """A decoder of transformers as a folder: program, tokenizer, chat template."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = Path(model)
    name, extra = (str(path.parent), {"gguf_file": path.name}) if path.suffix == ".gguf" else (model, {})
    decoder = AutoModelForCausalLM.from_pretrained(name, **extra, dtype="float32").eval()
    tokenizer = AutoTokenizer.from_pretrained(name, **extra)
    pteron.llm.export(decoder, folder, max_seq_len=tokens, tokenizer=tokenizer, scheme=scheme)


def run(folder: str, system: str | None, most: int) -> None:
    """Answers each line of the input; only what is new of the conversation is computed."""
    generator = pteron.llm.Generator(folder)
    chat = generator.conversation(system or (), max_new_tokens=most)
    while True:
        try:
            message = input("> ")
        except EOFError:
            return
        if not message.strip():
            return
        with chat.stream(message) as answer:
            for piece in answer:
                print(piece, end="", flush=True)
        print(f"\n  [{answer.result.timings.tokens_per_second:.0f} tokens a second]")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    exporting = commands.add_parser("export", help="make the folder (torch)")
    exporting.add_argument("model", help="name or folder of a decoder of transformers, or a .gguf file")
    exporting.add_argument("folder")
    exporting.add_argument(
        "--scheme", help="weights in fewer bits: int8-weight, int4-weight, int8-dynamic, int4-dynamic"
    )
    exporting.add_argument("--tokens", type=int, default=2048, help="tokens that a chat may have")
    running = commands.add_parser("run", help="chat (no torch)")
    running.add_argument("folder")
    running.add_argument("--system", help="what the model is told before the first message")
    running.add_argument("--most", type=int, default=200, help="most tokens of an answer")
    options = parser.parse_args()
    if options.command == "export":
        export(options.model, options.folder, options.scheme, options.tokens)
    else:
        run(options.folder, options.system, options.most)


if __name__ == "__main__":
    main()
