"""Store weights in another form: as 16-bit floats, in a data file beside the program, or inside again.

--weights halves float32 weights of 1 kB and more; load widens them once, so that calls take as long as before
and results change by the rounding that is printed. The new program is loaded before it is written.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pteron
from pteron.cli.arguments import add_json, add_program, load, print_json, write_files
from pteron.cli.failure import UsageError, about
from pteron.devtools.convert import NARROW, move_in, move_out, narrow
from pteron.devtools.program_file import PACKED_KEY, read_program
from pteron.devtools.text_table import size_text

EXAMPLE = "pteron convert model.pte --weights float16 -o small.pte"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_program(parser)
    parser.add_argument("--weights", choices=NARROW, help="store float32 weights so")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--external", type=Path, metavar="FILE.ptd", help="move constants into this data file")
    place.add_argument(
        "--inline", action="store_true", help="bring tensors of the --data files into the program"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="the program to write")
    add_json(parser)


def execute(options: argparse.Namespace) -> int:
    """Writes the program, and the data file where one was asked for."""
    if options.weights is None and options.external is None and not options.inline:
        raise UsageError("name what is to change: --weights, --external or --inline")
    if options.external is not None and options.external.resolve() == options.output.resolve():
        raise UsageError("--external and --output are the same file")
    content = options.program.read_bytes()
    program = load(options)
    file = read_program(program, content)
    was_packed = any(named.key == PACKED_KEY for named in file.table.named_data)
    facts: dict[str, Any] = {"old_bytes": len(content)}
    data = None
    try:
        if options.inline:
            facts["moved_in"] = move_in(file, program)
        if options.weights is not None:
            facts["weights"] = asdict(narrow(file, options.weights))
        if options.external is not None:
            data = move_out(file)
            facts["data_bytes"] = len(data)
    except ValueError as e:
        raise UsageError(f"{options.program}: {e}") from None
    with about(options.program):
        result = file.to_bytes()
        sources = [*([] if options.inline else options.data), *([] if data is None else [data])]
        _load(result, sources)
    facts["new_bytes"] = len(result)
    facts["packs_dropped"] = was_packed and not any(n.key == PACKED_KEY for n in file.table.named_data)
    write_files({options.output: result} | ({} if data is None else {options.external: data}))
    if options.json:
        print_json(facts)
    else:
        print(_text(facts), end="")
    return 0


def _load(content: bytes, data: list[Any]) -> None:
    """Raises what is wrong with the program, but for backends that are not here."""
    program = pteron.load(content, data=data or None)
    for method in program.methods:
        try:
            program.load_method(method)
        except pteron.MissingBackendError:
            continue


def _text(facts: dict[str, Any]) -> str:
    lines = []
    if "moved_in" in facts:
        lines.append(f"{facts['moved_in']} tensors of data files are inside now")
    if "weights" in facts:
        done = facts["weights"]
        lines.append(
            f"{done['constants']} constants, {size_text(done['before'])} -> {size_text(done['after'])};"
            f" largest error {done['error']:.1e} of the largest weight"
        )
        lines += [f"{count} constants stay as they are: {why}" for why, count in done["kept"].items()]
    if "data_bytes" in facts:
        lines.append(f"data file {size_text(facts['data_bytes'])}")
    if facts["packs_dropped"]:
        lines.append("packed weights are gone: pteron pack makes them anew")
    lines.append(f"{size_text(facts['old_bytes'])} -> {size_text(facts['new_bytes'])}")
    return "\n".join(lines) + "\n"
