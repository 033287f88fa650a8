"""Show what a program has: methods, inputs, outputs, backends, sizes, and what is missing here to run it."""

from __future__ import annotations

import argparse
from typing import Any

import pteron
from pteron.cli.arguments import add_json, add_program, load, print_json
from pteron.cli.missing import missing_backends, missing_operators
from pteron.devtools.description import ProgramDescription, describe
from pteron.devtools.program_file import PACKED_KEY, is_pack
from pteron.devtools.text_table import size_text

EXAMPLE = "pteron info model.pte"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_program(parser)
    add_json(parser)


def execute(options: argparse.Namespace) -> int:
    """Prints the summary."""
    program = load(options)
    facts = summary(program, options.program.stat().st_size)
    if options.json:
        print_json(facts)
    else:
        print(text(facts), end="")
    return 0


def summary(program: pteron.Program, file_bytes: int) -> dict[str, Any]:
    """What `info` says, as JSON has it."""
    file = describe(program)
    return {
        "runtime": pteron.__version__,
        "file_bytes": file_bytes,
        "program_bytes": file.program_bytes,
        "constant_bytes": file.constant_bytes,
        "delegate_bytes": _delegate_bytes(file),
        "named_data": file.named_data,
        "packs": sum(is_pack(key) and key != PACKED_KEY for key in file.named_data),
        "packed_bytes": sum(nbytes for key, nbytes in file.named_data.items() if is_pack(key)),
        "methods": {name: _method(program, file, name) for name in program.methods},
        "missing_operators": missing_operators(program),
        "missing_backends": missing_backends(program),
    }


def _method(program: pteron.Program, file: ProgramDescription, name: str) -> dict[str, Any]:
    method = file.methods[name]
    return {
        "inputs": [_spec(spec) for spec in program.inputs(name)],
        "outputs": [_spec(spec) for spec in program.outputs(name)],
        "state": [_spec(spec) for spec in program.buffers(name)],
        "instructions": len(method.calls),
        "operators": len(program.operators(name)),
        "planned_bytes": sum(method.arenas),
        "backends": list(program.backends(name)),
        "delegates": len(method.delegates),
    }


def _spec(spec: pteron.ValueSpec) -> dict[str, Any]:
    extents = None
    if spec.shape is not None:
        extents = [[n.min, n.max] if isinstance(n, pteron.DimRange) else n for n in spec.shape]
    return {"name": spec.name, "kind": spec.kind, "dtype": spec.dtype, "shape": extents}


def _delegate_bytes(file: ProgramDescription) -> int:
    blobs = {tuple(d["blob"]) for method in file.methods.values() for d in method.delegates}
    return sum(end - start for start, end in blobs)


def text(facts: dict[str, Any]) -> str:
    """The summary in lines."""
    lines = [
        f"file {size_text(facts['file_bytes'])}: program {size_text(facts['program_bytes'])},"
        f" constants {size_text(facts['constant_bytes'])}, delegates {size_text(facts['delegate_bytes'])},"
        f" named data {size_text(sum(facts['named_data'].values()))}"
    ]
    if facts["packs"]:
        lines.append(
            f"{facts['packs']} packed weights, {size_text(facts['packed_bytes'])} of the named data:"
            " load does not pack them again"
        )
    for name, method in facts["methods"].items():
        lines.append(f"method {name}")
        for role in ("inputs", "outputs", "state"):
            lines += [f"  {role.removesuffix('s')} {_value_text(value)}" for value in method[role]]
        lines.append(
            f"  {method['instructions']} instructions, {method['operators']} operators,"
            f" {size_text(method['planned_bytes'])} planned memory"
        )
        if method["backends"]:
            lines.append(f"  {method['delegates']} delegates of {', '.join(method['backends'])}")
    for operator in facts["missing_operators"]:
        lines.append(f"missing here: a kernel for {operator}")
    for backend, why in facts["missing_backends"].items():
        lines.append(f"missing here: the backend {backend} ({why})")
    if not facts["missing_operators"] and not facts["missing_backends"]:
        lines.append("runs here")
    return "\n".join(lines) + "\n"


def _value_text(value: dict[str, Any]) -> str:
    if value["shape"] is None:
        return f"{value['name']}: {value['kind']}"
    extents = (f"{n[0]}..{n[1]}" if isinstance(n, list) else str(n) for n in value["shape"])
    return f"{value['name']}: {value['dtype']}[{', '.join(extents)}]"
