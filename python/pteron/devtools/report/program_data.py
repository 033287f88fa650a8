"""One program of a report as JSON has it: columns of numbers and one table of texts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pteron
from pteron._native import DimRange, Program, ValueSpec
from pteron.devtools.bundle_part import program_part
from pteron.devtools.description import describe, describe_plan
from pteron.devtools.live_memory import covered_bytes
from pteron.devtools.report import advice
from pteron.devtools.report.layers import Layer, Node, file_layer, plan_layer
from pteron.devtools.report.weights import Weight, weights
from pteron.devtools.size_report import size_report
from pteron.devtools.sources import Sources
from pteron.devtools.step_profile import step_profiles


class Texts:
    """Texts by number, each once. Number 0 is the empty text."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}

    def number(self, text: str) -> int:
        """The number of a text."""
        return self._numbers.setdefault(text, len(self._numbers))

    def all(self) -> list[str]:
        """Every text, at its number."""
        return list(self._numbers)


@dataclass(frozen=True)
class Gathered:
    """A program in both layers, and what a report holds of it."""

    file: Layer
    plan: Layer
    data: dict[str, Any]


def gather(name: str, program: Program, content: bytes, method: str, texts: Texts) -> Gathered:
    """Everything that a report says of a method without running it. `content` is the file.

    Raises:
        PteronError: there is no such method, or it cannot be loaded.
    """
    inputs, outputs = program.inputs(method), program.outputs(method)
    described = describe(program)
    sources = Sources(program, method)
    plan = describe_plan(program, method)
    file = file_layer(described.methods[method], sources)
    steps = plan_layer(plan, step_profiles(plan, described.methods[method], sources))
    stored = weights(program, described, described.methods[method], program_part(content))
    live = _live(steps)
    sizes = size_report(program, content)
    data = {
        "name": Path(name).name,
        "method": method,
        "methods": list(program.methods),
        "version": pteron.__version__,
        "inputs": [_spec(spec) for spec in inputs],
        "outputs": [_spec(spec) for spec in outputs],
        "backends": list(program.backends(method)),
        "sizes": {"file": sizes.file_bytes, **{f"of {part}": n for part, n in sizes.parts.items()}},
        "session_bytes": plan.session_bytes,
        "advice": list(advice.of_program(file, steps, stored, live)),
        "layers": {
            "file": _layer(file, _live(file), texts),
            "plan": _layer(steps, live, texts),
        },
        "weights": _weights(stored, texts),
    }
    return Gathered(file, steps, data)


def _live(layer: Layer) -> list[int]:
    return covered_bytes(layer.flow.lifetimes, len(layer.nodes))


def _layer(layer: Layer, live: Sequence[int], texts: Texts) -> dict[str, Any]:
    nodes = layer.nodes
    lifetimes, outputs = layer.flow.lifetimes, layer.flow.outputs
    return {
        "name": [texts.number(node.name) for node in nodes],
        "operator": [texts.number(node.operator) for node in nodes],
        "modules": [texts.number(node.source.module) for node in nodes],
        "line": [texts.number(node.source.line) for node in nodes],
        "backend": [texts.number(node.backend) for node in nodes],
        "key": [texts.number(key) for key in _keys(nodes)],
        "flops": [node.flops for node in nodes],
        "bytes": [node.nbytes for node in nodes],
        "instructions": [list(node.instructions) for node in nodes],
        "reads": [list(edges) for edges in layer.flow.edges],
        "jumps": [[at, node.access.jump] for at, node in enumerate(nodes) if node.access.jump is not None],
        "lifetimes": {
            "text": [texts.number(one.tensor.text) for one in lifetimes],
            "name": [texts.number(one.tensor.name or "") for one in lifetimes],
            "bytes": [one.tensor.nbytes for one in lifetimes],
            "arena": [-1 if one.tensor.arena is None else one.tensor.arena for one in lifetimes],
            "offset": [one.tensor.offset or 0 for one in lifetimes],
            "writer": [-1 if one.writer is None else one.writer for one in lifetimes],
            "first": [one.first for one in lifetimes],
            "last": [one.last for one in lifetimes],
            "state": [int(one.tensor.is_state) for one in lifetimes],
        },
        "outputs": [
            [texts.number(tensor.text), -1 if writer is None else writer] for tensor, writer in outputs
        ],
        "arenas": list(layer.method.arenas),
        "live": list(live),
    }


def _keys(nodes: Sequence[Node]) -> list[str]:
    """What a node is called in every program: its place in the model, its operator, and which of these."""
    seen: dict[tuple[str, str], int] = defaultdict(int)
    out = []
    for node in nodes:
        place = node.source.module, node.operator
        out.append(f"{node.source.module} {node.operator} {seen[place]}")
        seen[place] += 1
    return out


def _weights(found: Sequence[Weight], texts: Texts) -> dict[str, Any]:
    return {
        "name": [texts.number(one.name) for one in found],
        "module": [texts.number(one.module) for one in found],
        "kind": [texts.number(one.kind) for one in found],
        "text": [texts.number(one.text) for one in found],
        "bytes": [one.nbytes for one in found],
        "place": [one.place for one in found],
        "copies": [one.copies for one in found],
        "readers": [list(one.readers) for one in found],
    }


def _spec(spec: ValueSpec) -> str:
    if spec.shape is None:
        return f"{spec.name}: {spec.kind}"
    extents = (f"{n.min}..{n.max}" if isinstance(n, DimRange) else str(n) for n in spec.shape)
    return f"{spec.name}: {spec.dtype}[{', '.join(extents)}]"
