"""Keep chosen calls of an operator whole while the rest of a program is decomposed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram

from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.passes.exported_program_pass import each_graph
from pteron.exir.passes.run_graph_passes import copy_program

_log = logging.getLogger(__name__)

_NAMESPACE = "pteron_preserved"
# torch.library has no annotations.
_library: Any = torch.library.Library(_NAMESPACE, "DEF")  # type: ignore[no-untyped-call]
_stand_ins: dict[OpOverload, OpOverload] = {}
_originals: dict[OpOverload, OpOverload] = {}

NodeFilter = Callable[[torch.fx.Node], bool]


@dataclass
class PreservedOperators:
    """What backends asked to keep whole: `always` for every call, `where` for calls that a filter accepts."""

    always: set[OpOverload] = field(default_factory=set)
    where: list[tuple[frozenset[OpOverload], NodeFilter]] = field(default_factory=list)

    def add(self, operators: Collection[OpOverload], accepts: NodeFilter | None) -> None:
        """Take the answer of one `Partitioner.ops_to_not_decompose`. Edge operators in it, which some
        partitioners list too, name no call of a captured program.
        """
        captured = frozenset(op for op in operators if isinstance(op, OpOverload))
        if accepts is None:
            self.always.update(captured)
        elif captured:
            self.where.append((captured, accepts))

    @property
    def all(self) -> set[OpOverload]:
        """Every operator that some call of may be kept."""
        return self.always.union(*(operators for operators, _ in self.where))


def hide_preserved_operators(program: ExportedProgram, preserved: PreservedOperators) -> ExportedProgram:
    """A copy of `program` in which the calls that a filter accepts are behind operators without
    decomposition.

    Operators that return a view of an argument, or change one, cannot be hidden: tracing looks through them.
    Core ones are never decomposed anyway; for others a warning says that they will be.
    """
    if not preserved.where:
        return program
    hidden = copy_program(program)
    passed_over: set[OpOverload] = set()
    for module in graph_modules(hidden.graph_module):
        for node in module.graph.nodes:
            if node.op != "call_function" or not isinstance(node.target, OpOverload):
                continue
            if any(node.target in operators and accepts(node) for operators, accepts in preserved.where):
                if _aliases(node.target):
                    passed_over.add(node.target)
                else:
                    node.target = _stand_in(node.target)
        module.recompile()
    for op in sorted(passed_over, key=str):
        if torch.Tag.core not in op.tags:
            _log.warning(
                "%s returns a view of an argument or changes it, so single calls of it cannot be kept whole "
                "and are decomposed; return None as the filter of ops_to_not_decompose to keep every call",
                op,
            )
    return hidden


@each_graph
def show_preserved_operators(module: torch.fx.GraphModule) -> bool:
    """Put the operators that `hide_preserved_operators` replaced back, in place."""
    hidden = [node for node in module.graph.nodes if node.op == "call_function" and node.target in _originals]
    for node in hidden:
        node.target = _originals[node.target]
    if hidden:
        module.recompile()
    return bool(hidden)


def _aliases(op: OpOverload) -> bool:
    return any(argument.alias_info is not None for argument in op._schema.arguments)


def _stand_in(op: OpOverload) -> OpOverload:
    if op in _stand_ins:
        return _stand_ins[op]
    name = f"{op.namespace}_{op._schema.name.split('::')[1]}_{op._overloadname}"
    signature = str(op._schema).split("(", 1)[1]
    _library.define(f"{name}({signature}")

    def run(*args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    _library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{_NAMESPACE}::{name}", run, lib=_library)
    stand_in: OpOverload = getattr(getattr(torch.ops, _NAMESPACE), name).default
    _stand_ins[op], _originals[stand_in] = stand_in, op
    return stand_in
