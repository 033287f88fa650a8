"""Show how two programs differ: methods, inputs, operators, weights by content, planned memory and sizes."""

from __future__ import annotations

import argparse
import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import pteron
from pteron.cli.arguments import add_json, print_json
from pteron.cli.failure import about
from pteron.devtools.bundle_part import program_part
from pteron.devtools.description import ProgramDescription, TensorValue, describe
from pteron.devtools.program_file import is_pack

EXAMPLE = "pteron diff old.pte new.pte"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("old", type=Path, help="a .pte file")
    parser.add_argument("new", type=Path, help="a .pte file")
    add_json(parser)


def execute(options: argparse.Namespace) -> int:
    """1 where the programs differ."""
    found = differences(options.old, options.new)
    if options.json:
        print_json(found)
    else:
        print("\n".join(f"{one['what']}: {one['old']} -> {one['new']}" for one in found) or "no difference")
    return 1 if found else 0


def differences(old: Path, new: Path) -> list[dict[str, Any]]:
    """What differs, with both sides; None stands for what is not there."""
    ours, theirs = _facts(old), _facts(new)
    keys = [*ours, *(key for key in theirs if key not in ours)]
    return [
        {"what": key, "old": ours.get(key), "new": theirs.get(key)}
        for key in keys
        if ours.get(key) != theirs.get(key)
    ]


def _facts(path: Path) -> dict[str, Any]:
    """What is compared of a program, by name."""
    content = path.read_bytes()
    with about(path):
        program = pteron.load(content)
    part = program_part(content)
    file = describe(program)
    facts: dict[str, Any] = {"file bytes": len(content), "methods": list(program.methods)}
    for name in program.methods:
        method = file.methods[name]
        facts[f"{name}: inputs"] = [_spec(spec) for spec in program.inputs(name)]
        facts[f"{name}: outputs"] = [_spec(spec) for spec in program.outputs(name)]
        facts[f"{name}: planned bytes"] = sum(method.arenas)
        calls = Counter(call.operator for call in method.calls if call.operator is not None)
        facts |= {f"{name}: calls of {operator}": count for operator, count in sorted(calls.items())}
        backends = Counter(delegate["backend"] for delegate in method.delegates)
        facts |= {f"{name}: delegates of {backend}": count for backend, count in sorted(backends.items())}
        facts |= _weights(name, file, part)
    packs = {key: value for key, value in program.named_data.items() if is_pack(key)}
    if packs:
        facts["packed weights"] = f"{len(packs) - 1}, {_digest(b''.join(map(_content, packs.items())))}"
    named = {key: value for key, value in program.named_data.items() if key not in packs}
    facts |= {f"named data {key}": _digest(bytes(value)) for key, value in named.items()}
    return facts


def _content(entry: tuple[str, memoryview]) -> bytes:
    return entry[0].encode() + hashlib.sha256(entry[1]).digest()


def _weights(name: str, file: ProgramDescription, content: memoryview) -> dict[str, Any]:
    """The weights of a method with names by name, the others by content."""
    facts: dict[str, Any] = {}
    unnamed: Counter[str] = Counter()
    for tensor in file.methods[name].tensors.values():
        if tensor.stored is None or "range" not in tensor.stored:
            continue
        start, end = tensor.stored["range"]
        text = f"{tensor.text} {_digest(content[start:end])}"
        if tensor.name:
            facts[f"{name}: {tensor.name}"] = text
        else:
            unnamed[_unnamed(tensor, text)] += 1
    return facts | {f"{name}: constants {text}": count for text, count in sorted(unnamed.items())}


def _unnamed(tensor: TensorValue, text: str) -> str:
    return text if tensor.nbytes else tensor.text


def _spec(spec: pteron.ValueSpec) -> str:
    if spec.shape is None:
        return f"{spec.name}: {spec.kind}"
    extents = (f"{n.min}..{n.max}" if isinstance(n, pteron.DimRange) else str(n) for n in spec.shape)
    return f"{spec.name}: {spec.dtype}[{', '.join(extents)}]"


def _digest(content: bytes | memoryview) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
