"""Finds the sentences of a text that are nearest in meaning to a question.

    python find_sentences.py export all-MiniLM-L6-v2 minilm    # torch; a name on the Hub or a folder
    python find_sentences.py find minilm notes.txt "How do I install a package?"         # no torch

The text has a sentence in each line. ``pip install "pteron[sentence-transformers]"`` for the first command,
``pip install "pteron[llm]"`` for the second.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def export(model: str, folder: str) -> None:
    """The program and the tokenizer, compared with the model before they are written."""
    from pteron.embeddings import export

    made = export(model, folder)
    print(f"vectors of {made.dimension} numbers, within {made.difference:.0e} of the model's")


def find(folder: str, text: Path, question: str, count: int) -> None:
    """Prints the nearest sentences, the nearest first, with the cosine of the angle to the question."""
    from pteron.embeddings import Embedder

    embedder = Embedder(folder)
    sentences = [line.strip() for line in text.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not sentences:
        raise SystemExit(f"{text} has no sentences")
    scores = embedder.similarity(embedder.encode_query(question), embedder.encode(sentences))[0]
    for index in scores.argsort()[::-1][:count]:
        print(f"{scores[index]:5.2f}  {sentences[index]}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    exporting = commands.add_parser("export", help="make the folder (torch)")
    exporting.add_argument("model", help="name or folder of a model of sentence-transformers")
    exporting.add_argument("folder")
    finding = commands.add_parser("find", help="search a text (no torch)")
    finding.add_argument("folder")
    finding.add_argument("text", type=Path, help="file with a sentence in each line")
    finding.add_argument("question")
    finding.add_argument("--count", type=int, default=3, help="sentences to print")
    options = parser.parse_args()
    if options.command == "export":
        export(options.model, options.folder)
    else:
        find(options.folder, options.text, options.question, options.count)


if __name__ == "__main__":
    main()
