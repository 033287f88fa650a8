"""Passes for people: logs of a graph, debug handles, and passes by name."""

from __future__ import annotations

import logging
import re
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from pteron.compat.exir.common import override_logger
from pteron.compat.exir.debug_handle_utils import (
    DEBUG_HANDLE_KEY,
    FROM_NODE_KEY,
    get_greatest_ancestor_node_identifier,
)
from pteron.compat.exir.error import ExportError, ExportErrorType
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.source_location import source_location
from pteron.exir.memory.spec_lifetimes import specs_in


class DebugPass(PassBase):
    """Logs the nodes of a graph, how often each operator is called, and with `show_src` their source lines,
    with `show_spec` their specs. `log_filename`: a file that gets the text too.
    """

    def __init__(
        self,
        msg: str = "",
        enable_debug_pass: bool = True,
        show_src: bool = False,
        show_full_path: bool = False,
        show_all_frames: bool = False,
        path_filter: str | None = None,
        show_spec: bool = False,
        log_filename: str | None = None,
    ) -> None:
        self.msg = msg
        self.enable_debug_pass = enable_debug_pass
        self.show_src = show_src
        self.show_full_path = show_full_path
        self.show_all_frames = show_all_frames
        self.path_filter_re = re.compile(path_filter) if path_filter else None
        self.show_spec = show_spec
        self.log_filename = log_filename

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Log `graph_module`; it stays as it is."""
        if not self.enable_debug_pass:
            return PassResult(graph_module, False)
        with override_logger(filename=self.log_filename):
            for line in self._lines(graph_module):
                logging.debug(line)
        return PassResult(graph_module, True)

    def _lines(self, graph_module: torch.fx.GraphModule) -> list[str]:
        graph_module.recompile()
        lines = [*([self.msg] if self.msg else []), "Enter debug_pass", f"Code is:\n{graph_module.code}"]
        lines.append("Nodes:")
        for index, node in enumerate(graph_module.graph.nodes):
            lines.append(f"{index:4}: {node.format_node()}")
            if self.show_spec:
                lines += [f"      {spec.debug()}" for spec in specs_in(node.meta.get("spec"))]
                lines.append(f"      val: {node.meta.get('val')}")
            lines += self._source(node)
        calls = [node for node in graph_module.graph.nodes if node.op == "call_function"]
        counted = Counter(node.op for node in graph_module.graph.nodes)
        lines += ["-- node op type stat --", *(f" op {op}, cnt {count}" for op, count in counted.items())]
        targets = Counter(str(node.target) for node in calls)
        return [*lines, "-- call_function stat --", *(f" fn {fn}, cnt {n}" for fn, n in targets.items())]

    def _source(self, node: torch.fx.Node) -> list[str]:
        trace = node.meta.get("stack_trace")
        if not self.show_src or not trace:
            return []
        if self.show_all_frames:
            return [trace]
        line = str(source_location(node))
        if self.path_filter_re is not None and not self.path_filter_re.search(line):
            return []
        return [f"      > {line}"]


class DebugHandleGeneratorPass(PassBase):
    """Numbers the nodes from 1; those that one captured operator was decomposed into share a number."""

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Set `meta["debug_handle"]` in every graph, in place; AssertionError where a node has no origin."""
        handles: dict[str, int] = {}
        for module in graph_modules(graph_module):
            for node in module.graph.nodes:
                if node.op in ("placeholder", "output"):
                    continue
                if FROM_NODE_KEY not in node.meta:
                    raise AssertionError(f"Node {node} does not have meta key {FROM_NODE_KEY}")
                origin = get_greatest_ancestor_node_identifier(node)
                node.meta[DEBUG_HANDLE_KEY] = handles.setdefault(origin, len(handles) + 1)
        return PassResult(graph_module, True)


def generate_missing_debug_handles(ep: ExportedProgram) -> None:
    """Give each node without a debug handle one of its own, after the largest that is there, in place."""
    nodes = [node for module in graph_modules(ep.graph_module) for node in module.graph.nodes]
    largest = max((node.meta.get(DEBUG_HANDLE_KEY) or 0 for node in nodes), default=0)
    for node in nodes:
        if not node.meta.get(DEBUG_HANDLE_KEY):
            largest += 1
            node.meta[DEBUG_HANDLE_KEY] = largest


class PassRegistry:
    """Passes by name, for lists that are put together from names."""

    registry: dict[str, list[Any]] = {}  # noqa: RUF012 -- one for the process, as callers expect

    @classmethod
    def register(cls, pass_name: str | None = None) -> Callable[[Any], Any]:
        """A decorator: the pass under `pass_name`, or under its own name in lower case with underscores."""

        def registered(one_pass: Any) -> Any:
            name = pass_name or re.sub(r"(?<!^)(?=[A-Z])", "_", one_pass.__name__).lower()
            cls.register_list(name, [one_pass])
            return one_pass

        return registered

    @classmethod
    def register_list(cls, pass_name: str, pass_list: list[Any]) -> None:
        """Several passes under one name; a name that is taken stays as it is, with a warning."""
        if pass_name in cls.registry:
            warnings.warn(
                f"Pass {pass_name} already exists inside of the PassRegistry. Will ignore.", stacklevel=1
            )
            return
        cls.registry[pass_name] = pass_list

    @classmethod
    def get(cls, key: str) -> list[Any]:
        """The passes of a name; ExportError where there is none."""
        if key not in cls.registry:
            raise ExportError(
                ExportErrorType.MISSING_PROPERTY, f"Pass {key} does not exists inside of the PassRegistry"
            )
        return cls.registry[key]
