"""Which nodes of the model stand behind a debug handle."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from pteron._native import Program
from pteron.devtools.description import describe
from pteron.devtools.inspector.event import Event
from pteron.devtools.inspector.event_block import handles_as_tuple
from pteron.devtools.sources import Source, Sources

#: Events of the runtime itself.
FRAMEWORK_EVENTS = ("Method::init", "Program::load_method", "Method::execute")


@dataclass(frozen=True)
class NodeEntry:
    """A node: its name, its operator, the frames that it was called from, its modules."""

    name: str
    operator: str
    stack_trace: str | None
    modules: Any


def node_table(graph_module: Any) -> dict[int, list[NodeEntry]]:
    """Debug handle → its nodes in a graph module and in the bodies of its control flow."""
    found: dict[int, list[NodeEntry]] = {}
    for module in graph_module.modules():
        graph = getattr(module, "graph", None)
        for node in graph.nodes if graph is not None else ():
            if node.op != "call_function" or node.target is operator.getitem:
                continue
            entry = NodeEntry(
                f"{node.name}_",
                str(getattr(node.target, "__name__", node.target)),
                node.meta.get("stack_trace"),
                node.meta.get("nn_module_stack"),
            )
            for handle in handles_as_tuple(node.meta.get("debug_handle")):
                found.setdefault(handle, []).append(entry)
    return found


def associate(event: Event, table: dict[int, list[NodeEntry]]) -> None:
    """Gives an event the operators, frames and modules of its debug handles."""
    if event.name in FRAMEWORK_EVENTS or event.debug_handles is None:
        return
    for handle in handles_as_tuple(event.debug_handles):
        for entry in table.get(handle, ()):
            if entry.name not in event.stack_traces:
                event.stack_traces[entry.name] = entry.stack_trace
                event.module_hierarchy[entry.name] = entry.modules
            event.op_types = [*event.op_types, entry.operator]


class ProgramTable:
    """What a program file itself says, in the form of the maps of an ETRecord."""

    def __init__(self, program: Program, method: str) -> None:
        self._sources = Sources(program, method)
        self._calls = describe(program).methods[method].calls
        self.handle_map: dict[int, list[int]] = {}
        self.delegate_map: dict[int, dict[str, Any]] = {}
        for call in self._calls:
            if call.delegate is None:
                self.handle_map[call.index] = self._sources.handles_of(call.index)
                continue
            backend, handles, of_parts = self._sources.delegate(call.delegate)
            self.handle_map[call.index] = handles
            self.delegate_map[call.index] = {"name": backend, "delegate_map": of_parts}

    def associate(self, event: Event) -> None:
        """Gives an event the operators, lines and modules of its debug handles."""
        if event.name in FRAMEWORK_EVENTS or event.debug_handles is None:
            return
        instruction = event._instruction_id or 0
        delegate = self._calls[instruction].delegate if instruction < len(self._calls) else None
        for handle in handles_as_tuple(event.debug_handles):
            source = self._sources.source(handle, delegate)
            if source == Source():
                continue
            name = f"{source.operator} {handle}"
            event.op_types = [*event.op_types, source.operator]
            event.stack_traces[name] = source.line or None
            event.module_hierarchy[name] = {source.module: source.module} if source.module else None
