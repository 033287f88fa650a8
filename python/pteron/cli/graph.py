"""Write the graph of a method for Graphviz: the file's calls, or with --plan the steps that load makes."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

from pteron.cli.arguments import add_method, add_program, add_runtime, load, method_of, write_file
from pteron.devtools.description import MethodDescription, describe, describe_plan

EXAMPLE = "pteron graph model.pte --plan -o model.dot"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_program(parser)
    add_method(parser)
    add_runtime(parser)
    parser.add_argument("--plan", action="store_true", help="the steps in place of the file's calls")
    parser.add_argument("-o", "--output", type=Path, help="write to this file")


def execute(options: argparse.Namespace) -> int:
    """Prints or writes the graph."""
    program = load(options)
    name = method_of(program, options.method)
    program.inputs(name)
    method = describe_plan(program, name) if options.plan else describe(program).methods[name]
    text = dot(method)
    if options.output is not None:
        write_file(options.output, text)
    else:
        print(text, end="")
    return 0


def dot(method: MethodDescription) -> str:
    """The graph in Graphviz' language: an edge from what writes a tensor to what reads it next."""
    lines = ["digraph {", "  node [shape=box]"]
    writer: dict[int, str] = {}
    for at in method.inputs:
        lines.append(f"  v{at} [shape=ellipse, label={_quoted(_label(method, at))}]")
        writer[at] = f"v{at}"
    for name, text, args in _nodes(method):
        lines.append(f"  {name} [label={_quoted(text)}]")
        tensors = [tensor.index for arg in args for tensor in method.leaves(arg)]
        result = tensors[-1] if tensors else None
        lines += [
            f"  {writer[tensor]} -> {name} [label={_quoted(method.tensors[tensor].text)}]"
            for tensor in dict.fromkeys(tensors)
            if tensor != result and tensor in writer
        ]
        if result is not None:
            writer[result] = name
    for at in method.outputs:
        if at in writer:
            lines.append(f"  o{at} [shape=ellipse, label={_quoted(_label(method, at))}]")
            lines.append(f"  {writer[at]} -> o{at}")
    return "\n".join([*lines, "}"]) + "\n"


def _nodes(method: MethodDescription) -> Iterator[tuple[str, str, Iterable[int]]]:
    if method.steps:
        for step in method.steps:
            operators = [name for at in step.calls if (name := method.calls[at].operator) is not None]
            yield f"s{step.index}", f"{' + '.join(operators) or step.name}\n{step.name}", step.args
        return
    for call in method.calls:
        if call.operator is not None:
            yield f"c{call.index}", call.operator, call.args
        elif call.delegate is not None:
            backend = method.delegates[call.delegate]["backend"]
            yield f"c{call.index}", f"{backend}\ndelegate {call.delegate}", call.args


def _label(method: MethodDescription, at: int) -> str:
    tensor = method.tensors.get(at)
    return f"value {at}" if tensor is None else tensor.text


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
