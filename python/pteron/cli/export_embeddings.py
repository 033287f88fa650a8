"""Export a model of sentence-transformers: its folder in, a folder for pteron.embeddings.Embedder out.

It is compared with the model on some texts before it is put in its place.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pteron.cli.arguments import add_json, print_json
from pteron.cli.failure import UsageError
from pteron.cli.numbers import count
from pteron.devtools.text_table import size_text

EXAMPLE = "pteron export-embeddings all-MiniLM-L6-v2 minilm"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("model", help="the model's folder, or its name on the Hub")
    parser.add_argument("output", type=Path, help="the folder to write")
    parser.add_argument(
        "--max-seq-length", type=count, help="tokens of a text at most (default: the model's)"
    )
    parser.add_argument("--batch-size", type=count, default=32, help="texts of a call at most (default: 32)")
    parser.add_argument(
        "--scheme",
        choices=("int8-weight", "int4-weight", "int8-dynamic", "int4-dynamic"),
        help="quantise the weights (default: as they are)",
    )
    parser.add_argument("--packed-weights", action="store_true", help="store weights as load would pack them")
    add_json(parser)


def execute(options: argparse.Namespace) -> int:
    """Writes the folder, and prints what is in it."""
    from pteron.embeddings import export

    try:
        made = export(
            options.model,
            options.output,
            max_seq_length=options.max_seq_length,
            batch_size=options.batch_size,
            scheme=options.scheme,
            packed_weights=options.packed_weights,
        )
    except ImportError as e:
        raise UsageError(f'{e}: pip install "pteron[llm,sentence-transformers]"') from None
    if options.json:
        print_json(
            {
                "program": str(made.path),
                "bytes": made.file_bytes,
                "dimension": made.dimension,
                "max_seq_length": made.max_seq_length,
                "difference": made.difference,
            }
        )
    else:
        print(
            f"{made.path}: {size_text(made.file_bytes)}, {made.dimension} numbers for a text of up to "
            f"{made.max_seq_length} tokens; largest difference from the model {made.difference:.1e} of the "
            "largest number"
        )
    return 0
