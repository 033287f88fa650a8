"""Programs of the edge dialect and planned ones as graphs that PyTorch's serializer takes, and back.

PyTorch writes its own operators and higher-order operators. An edge operator becomes the overload that it
wraps, an allocation becomes `empty`, a lowered module becomes the number under which it is kept beside the
graph. What a node was is noted in its `custom` meta data, which PyTorch keeps.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram

from pteron.exir.backend.lowered_backend_module import LoweredBackendModule
from pteron.exir.edge.backend_ops import BackendOpOverload, backend_packet
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.delegate_call import is_delegate_call, lowered_module_of
from pteron.exir.edge.edge_op_overload import EdgeOpOverload, edge_op_by_name
from pteron.exir.edge.memory_nodes import alloc, view
from pteron.exir.passes.run_graph_passes import copy_program
from pteron.exir.passes.sync_output_names import sync_output_names

_CUSTOM = "custom"
_NOTE = "pteron"
_EMPTY = torch.ops.aten.empty.memory_format


@dataclass
class PlainProgram:
    """`program` without operators of ours; `lowered`: attribute name and module by number."""

    program: ExportedProgram
    lowered: list[tuple[str, LoweredBackendModule]] = field(default_factory=list)


def to_plain(program: ExportedProgram) -> PlainProgram:
    """A copy of `program` that PyTorch can write."""
    plain = PlainProgram(copy_program(program))
    # A copy renames nodes that are called like Python's own functions.
    for node, copied in zip(program.graph.nodes, plain.program.graph.nodes, strict=True):
        copied.name = node.name
    inputs = [node for node in plain.program.graph.nodes if node.op == "placeholder"]
    for spec, node in zip(plain.program.graph_signature.input_specs, inputs, strict=True):
        if hasattr(spec.arg, "name"):
            spec.arg.name = node.name
    for module in graph_modules(plain.program.graph_module):
        for node in list(module.graph.nodes):
            if node.op == "call_function":
                _write_node(plain, node)
        _remove_lowered_attributes(module)
    sync_output_names(plain.program)
    return plain


def _write_node(plain: PlainProgram, node: torch.fx.Node) -> None:
    note: dict[str, Any] = {}
    if "debug_handle" in node.meta:
        note["debug_handle"] = node.meta["debug_handle"]
    if isinstance(node.meta.get("val"), list):
        note["results"] = "list"
    target: Any = node.target
    if isinstance(target, EdgeOpOverload):
        kind = "backend" if isinstance(target, BackendOpOverload) else "edge"
        note[kind] = [target.namespace, target.overloadpacket.opname, target.overload_name]
        node.target = target.aten_overload
    elif target is view:
        note["memory"] = "view"
        node.target = torch.ops.aten.view.default
    elif target is alloc:
        _write_alloc(node, note)
        return
    elif is_delegate_call(node):
        node.args = (str(_number(plain, node)), *node.args[1:])
        if isinstance(node.meta["val"], list):
            node.meta["val"] = tuple(node.meta["val"])
    _keep_note(node, note)


def _keep_note(node: torch.fx.Node, note: dict[str, Any]) -> None:
    if note:
        node.meta[_CUSTOM] = {**node.meta.get(_CUSTOM, {}), _NOTE: note}


def _number(plain: PlainProgram, call: torch.fx.Node) -> int:
    module = lowered_module_of(call)
    for number, (_, known) in enumerate(plain.lowered):
        if known is module:
            return number
    attribute: Any = call.args[0]
    plain.lowered.append((str(attribute.target), module))
    return len(plain.lowered) - 1


def _remove_lowered_attributes(module: torch.fx.GraphModule) -> None:
    for node in list(module.graph.nodes):
        if node.op == "get_attr" and isinstance(
            getattr(module, str(node.target), None), LoweredBackendModule
        ):
            module.graph.erase_node(node)


def _write_alloc(node: torch.fx.Node, note: dict[str, Any]) -> None:
    spec: Any = node.args[0]
    if not isinstance(spec, list):
        shape, dtype = spec
        node.target, node.args, node.kwargs = _EMPTY, (list(shape),), {"dtype": dtype}
        _keep_note(node, {**note, "memory": "alloc"})
        return
    made: list[torch.fx.Node] = []
    with node.graph.inserting_before(node):
        for position, (shape, dtype) in enumerate(spec):
            each = node.graph.call_function(_EMPTY, (list(shape),), {"dtype": dtype})
            each.meta = {**node.meta, "val": node.meta["val"][position]}
            _keep_note(each, {**note, "memory": "alloc", "list": node.name})
            made.append(each)
    for user in list(node.users):
        _replace_argument(user, node, made)
        # An operator that returns nothing is read as if it returned what it wrote.
        for picked in [each for each in user.users if each.target is operator.getitem]:
            index: Any = picked.args[1]
            part = made[index]
            part.meta[_CUSTOM][_NOTE] |= {"call": user.name, "picked": picked.name}
            picked.replace_all_uses_with(part)
            node.graph.erase_node(picked)
    node.graph.erase_node(node)


def _replace_argument(user: torch.fx.Node, old: torch.fx.Node, new: Any) -> None:
    user.args, user.kwargs = torch.fx.node.map_arg(
        (user.args, user.kwargs), lambda node: new if node is old else node
    )


def from_plain(program: ExportedProgram, lowered: list[tuple[str, LoweredBackendModule]]) -> None:
    """Undo `to_plain` in the graph of `program`, in place."""
    for module in graph_modules(program.graph_module):
        lists: dict[str, list[torch.fx.Node]] = {}
        for node in list(module.graph.nodes):
            if node.op != "call_function":
                continue
            note = _take_note(node)
            if is_delegate_call(node):
                _read_delegate(module, node, lowered)
            elif node.target is operator.getitem:
                _read_getitem(node, note)
                continue
            if "list" in note:
                lists.setdefault(note["list"], []).append(node)
                node.meta[_NOTE] = note
            else:
                _read_node(node, note)
        for name, parts in lists.items():
            _read_alloc_list(name, parts)
        module.graph.lint()
        module.recompile()
    sync_output_names(program)


def _take_note(node: torch.fx.Node) -> dict[str, Any]:
    custom = dict(node.meta.get(_CUSTOM) or {})
    note: dict[str, Any] = custom.pop(_NOTE, {})
    if custom:
        node.meta[_CUSTOM] = custom
    else:
        node.meta.pop(_CUSTOM, None)
    return note


def _read_node(node: torch.fx.Node, note: dict[str, Any]) -> None:
    _read_handle(node, note)
    if note.get("results") == "list" and "val" in node.meta:
        node.meta["val"] = list(node.meta["val"])
    if "edge" in note:
        node.target = edge_op_by_name(*note["edge"])
    elif "backend" in note:
        namespace, opname, overload = note["backend"]
        node.target = getattr(backend_packet(namespace, opname), overload)
    elif note.get("memory") == "view":
        node.target = view
    elif note.get("memory") == "alloc":
        node.target, node.args, node.kwargs = alloc, (_alloc_spec(node),), {}


def _read_handle(node: torch.fx.Node, note: dict[str, Any]) -> None:
    handle = note.get("debug_handle")
    if handle is not None:
        node.meta["debug_handle"] = tuple(handle) if isinstance(handle, list) else handle


def _read_getitem(node: torch.fx.Node, note: dict[str, Any]) -> None:
    """PyTorch's reader makes one for every result of a call, with the call's meta data."""
    source: Any = node.args[0]
    if not node.users and node.name.startswith(f"{source.name}_unused_"):
        node.graph.erase_node(node)
    else:
        _read_handle(node, note)


def _alloc_spec(node: torch.fx.Node) -> Any:
    shape: Any = node.args[0]
    return tuple(shape), node.kwargs["dtype"]


def _read_delegate(
    module: torch.fx.GraphModule, call: torch.fx.Node, lowered: list[tuple[str, LoweredBackendModule]]
) -> None:
    name, compiled = lowered[int(str(call.args[0]))]
    if not hasattr(module, name):
        module.register_module(name, compiled)
    with module.graph.inserting_before(call):
        attribute = module.graph.get_attr(name)
    call.args = (attribute, *call.args[1:])


def _read_alloc_list(name: str, parts: list[torch.fx.Node]) -> None:
    """One allocation in place of `parts`; whoever reads one of them picks it."""
    graph, first = parts[0].graph, parts[0]
    notes = [part.meta.pop(_NOTE) for part in parts]
    with graph.inserting_before(first):
        made = graph.create_node("call_function", alloc, ([_alloc_spec(part) for part in parts],), {}, name)
    made.meta = {**first.meta, "val": [part.meta["val"] for part in parts]}
    if "debug_handle" in notes[0]:
        made.meta["debug_handle"] = notes[0]["debug_handle"]
    readers = dict.fromkeys(user for part in parts for user in part.users)
    for reader in readers:
        # Operators write into a list that is given by keyword; elsewhere the same list means its tensors.
        reader.kwargs = {
            name: made if isinstance(value, (list, tuple)) and list(value) == parts else value
            for name, value in reader.kwargs.items()
        }
    calls = {node.name: node for node in graph.nodes}
    for position, (part, note) in enumerate(zip(parts, notes, strict=True)):
        if part.users:
            call = calls[note["call"]]
            with graph.inserting_after(call):
                picked = graph.create_node(
                    "call_function", operator.getitem, (call, position), {}, note["picked"]
                )
            picked.meta = {**call.meta, "val": part.meta["val"]}
            part.replace_all_uses_with(picked)
        graph.erase_node(part)
    _restate_results(made)


def _restate_results(allocated: torch.fx.Node) -> None:
    """Calls that write `allocated` and return nothing have what they wrote as their value."""
    for call in allocated.users:
        call.meta["val"] = list(allocated.meta["val"])
