"""Write the graph of a method: the file's instructions, or with --plan the steps that load makes.

dot is for Graphviz, svg a picture that needs no other program, model-explorer JSON for
https://github.com/google-ai-edge/model-explorer, with modules as layers, json has the nodes with their edges.
What is in delegates is drawn where load opens them or the file has debug information of it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pteron.cli.arguments import add_method, add_program, add_runtime, load, method_of, write_file
from pteron.devtools.graph.dot import dot
from pteron.devtools.graph.model_explorer import model_explorer
from pteron.devtools.graph.nodes import Graph, graphs
from pteron.devtools.graph.svg import svg

EXAMPLE = "pteron graph model.pte --plan --format svg -o model.svg"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_program(parser)
    add_method(parser)
    add_runtime(parser)
    parser.add_argument("--plan", action="store_true", help="the steps in place of the file's calls")
    parser.add_argument("--format", choices=WRITERS, default="dot", help="what is written (default dot)")
    parser.add_argument(
        "--json", action="store_const", const="json", dest="format", help="the same as --format json"
    )
    parser.add_argument("-o", "--output", type=Path, help="write to this file")


def execute(options: argparse.Namespace) -> int:
    """Prints or writes the graph."""
    program = load(options)
    name = method_of(program, options.method)
    program.inputs(name)
    found = graphs(program, options.program.read_bytes(), name, is_plan=options.plan)
    text = WRITERS[options.format](found)
    if options.output is not None:
        write_file(options.output, text)
    else:
        print(text, end="")
    return 0


def _as_data(found: Sequence[Graph]) -> str:
    """The graphs as they are: nodes with their edges, results and facts."""
    return json.dumps([asdict(graph) for graph in found], indent=2) + "\n"


WRITERS = {"dot": dot, "svg": svg, "model-explorer": model_explorer, "json": _as_data}
