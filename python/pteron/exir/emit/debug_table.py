"""Debug handle → operator, module path and source line of the model, as the program file carries it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram

from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.debug_handles import debug_handles, origin_of
from pteron.exir.edge.edge_op_overload import EdgeOpOverload
from pteron.exir.edge.source_location import module_nearby, root_class, source_location

DEBUG_KEY = "pteron.debug"

_OPERATOR = re.compile(r"^\w+(\.\w+){2}$")


class SourceFiles:
    """The list of source files that debug tables refer to by index."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self._index: dict[str, int] = {}

    def index(self, file: str) -> int:
        """The index of `file`, which is added when it is new."""
        if file not in self._index:
            self._index[file] = len(self.files)
            self.files.append(file)
        return self._index[file]


def source_operator(node: torch.fx.Node) -> str:
    """The operator of the captured model that `node` was made from, such as `aten.linear.default`."""
    origins = node.meta.get("from_node") or []
    found = None
    while origins:
        origin = origins[0]
        target = str(origin.target)
        if _OPERATOR.match(target):
            found = target
        origins = origin.from_node
    if found is not None:
        return found
    if isinstance(node.target, EdgeOpOverload):
        return node.target.__name__
    if isinstance(node.target, OpOverload):
        return str(node.target)
    return getattr(node.target, "__name__", None) or str(node.target)


def handle_table(program: ExportedProgram, files: SourceFiles) -> dict[str, dict[str, Any]]:
    """Every debug handle of `program` with what is known about it; the first node of a handle speaks for
    it.
    """
    table: dict[str, dict[str, Any]] = {}
    for module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            if node.op != "call_function":
                continue
            for handle in debug_handles(node):
                if str(handle) not in table:
                    table[str(handle)] = _entry(node, origin_of(node, handle), files)
    return table


def _entry(at: torch.fx.Node, node: torch.fx.Node, files: SourceFiles) -> dict[str, Any]:
    """What is known of `node`, which stands in the graph itself or is one that `at` stands for."""
    location = source_location(node)
    entry: dict[str, Any] = {"operator": source_operator(node)}
    # The model itself has no path; its class says more than an empty text.
    module = location.module or root_class(node) or module_nearby(at)
    if module is not None:
        entry["module"] = module
    if location.file is not None:
        entry["file"] = files.index(location.file)
        entry["line"] = location.line
    return entry


def delegate_entry(lowered: Any, files: SourceFiles) -> dict[str, Any]:
    """The debug information of one lowered module: its own handles, and its backend's ids for them."""
    mapping = (lowered.meta or {}).get("debug_handle_map") or {}
    if not isinstance(mapping, Mapping):
        mapping = {}
    return {
        "backend": lowered.backend_id,
        "handles": handle_table(lowered.original_module, files),
        "map": {str(identifier): _as_list(handles) for identifier, handles in mapping.items()},
    }


def _as_list(handles: Any) -> list[int]:
    return [int(handle) for handle in handles] if isinstance(handles, (list, tuple, set)) else [int(handles)]
