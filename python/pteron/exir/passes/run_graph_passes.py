"""Run passes that rewrite a `GraphModule` over an exported program."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.passes.infra.pass_base import PassResult

from pteron.errors import ExportError
from pteron.exir.edge.control_flow import attribute_of, graph_modules
from pteron.exir.passes.constant_values import add_constants
from pteron.exir.passes.exported_program_pass import ExportedProgramPassBase
from pteron.exir.passes.sync_output_names import sync_output_names

GraphPass = Callable[[torch.fx.GraphModule], PassResult | None] | ExportedProgramPassBase


def copy_program(program: ExportedProgram) -> ExportedProgram:
    """A program whose graph and signature can be changed without changing `program`; weights are shared."""
    module = copy_graph_module(program.graph_module)
    copied = copy.copy(program)
    copied._graph_module = module
    copied._graph_signature = copy.deepcopy(program.graph_signature)
    copied._constants = dict(program.constants)
    copied._state_dict = dict(program.state_dict)
    return copied


def copy_graph_module(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A `GraphModule` with a graph of its own; lowered modules and tensors are shared, branch graphs
    copied.

    Its Python code is generated when somebody calls the module or looks at the code, not after every pass
    that changes the graph: generating it would take more time than most passes do.
    """
    graph = torch.fx.Graph()
    mapping: dict[torch.fx.Node, torch.fx.Node] = {}
    result = graph.graph_copy(module.graph, mapping)
    for node, twin in mapping.items():
        # A copy renames what has the name of something of Python's own, as the input of `nn.Sequential`;
        # signatures name inputs, too.
        twin.name = node.name
    graph._codegen = copy.deepcopy(module.graph._codegen)
    old_output = module.graph.output_node()
    new_output = graph.output(result)
    new_output.meta = old_output.meta.copy()
    copied = _LazyGraphModule(module, graph)
    copied.meta = dict(module.meta)
    for node in graph.nodes:
        node.meta = node.meta.copy()
        if node.op == "get_attr":
            attribute: Any = getattr(copied, str(node.target), None)
            if isinstance(attribute, torch.fx.GraphModule):
                setattr(copied, str(node.target), copy_graph_module(attribute))
    return copied


def graph_passes(given: Any, where: str) -> list[GraphPass]:
    """One pass or several as a list; `TypeError` for anything that cannot be called, `where` names the
    argument.
    """
    # A module that is a pass can be iterated too, over its parts.
    listed = [given] if callable(given) or not isinstance(given, Iterable) else list(given)
    for each in listed:
        if not callable(each):
            raise TypeError(
                f"{where}: expected a graph pass, or a list of them, got {type(each).__name__} {each!r}; a "
                "pass is called with a GraphModule and returns a PassResult, or None"
            )
    return listed


def run_graph_passes(program: ExportedProgram, passes: Sequence[GraphPass]) -> ExportedProgram:
    """A copy of `program` over which `passes` ran in order; passes over exported programs may change
    constants and signature too.

    Raises `ExportError` where a pass changes the number of inputs or outputs, since the signature could not
    follow.
    """
    changed = copy_program(program)
    run_in_place(changed, passes)
    return changed


@contextmanager
def working_copy(program: ExportedProgram) -> Iterator[None]:
    """Within it, `program` itself has a graph, signature and state of its own, which may be changed;
    afterwards, those that it had.

    Passes may hold the program and change its constants and signature: a copy beside it would not see that.
    """
    held = dict(vars(program))
    vars(program).update(vars(copy_program(program)))
    try:
        yield
    finally:
        vars(program).clear()
        vars(program).update(held)


def run_held_passes(program: ExportedProgram, passes: Sequence[GraphPass]) -> ExportedProgram:
    """As `run_graph_passes`, for passes that may hold `program`; it is as it was afterwards."""
    with working_copy(program):
        run_in_place(program, passes)
        return copy.copy(program)


def run_in_place(changed: ExportedProgram, passes: Sequence[GraphPass]) -> None:
    """As `run_graph_passes`, over `changed` itself, which stays one object whatever the passes return."""
    for apply in passes:
        if isinstance(apply, ExportedProgramPassBase):
            returned = apply(changed).exported_program
            if returned is not changed:
                vars(changed).update(vars(returned))
            continue
        result = apply(changed.graph_module)
        if result is not None:
            changed._graph_module = result.graph_module
        _lift_attributes(changed)
    graph = changed.graph_module.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    signature = changed.graph_signature
    if len(placeholders) != len(signature.input_specs):
        raise ExportError(
            "a pass changed the number of graph inputs: "
            f"{len(signature.input_specs)} before, {len(placeholders)} after",
            hint="leave placeholders in place, or rebuild the ExportedProgram yourself",
        )
    if len(graph.output_node().args[0]) != len(signature.output_specs):
        raise ExportError("a pass changed the number of graph outputs", hint="keep the outputs of the graph")
    for spec, node in zip(signature.input_specs, placeholders, strict=True):
        if hasattr(spec.arg, "name"):
            spec.arg.name = node.name
    sync_output_names(changed)
    changed.graph_module.recompile()


def _lift_attributes(program: ExportedProgram) -> None:
    """Make inputs of the tensors that a pass put into the module, as export does, in place."""
    graph = program.graph_module.graph
    read = [(attribute_of(node), node) for node in graph.nodes if node.op == "get_attr"]
    found = [(value, node) for value, node in read if isinstance(value, torch.Tensor)]
    for (_, node), placeholder in zip(found, add_constants(program, found), strict=True):
        node.replace_all_uses_with(placeholder)
        graph.erase_node(node)
    for module in graph_modules(program.graph_module):
        if module is not program.graph_module:
            _require_no_tensor_attributes(module)


def _require_no_tensor_attributes(body: torch.fx.GraphModule) -> None:
    for node in body.graph.nodes:
        if node.op == "get_attr" and isinstance(attribute_of(node), torch.Tensor):
            raise ExportError(
                f"a pass put the tensor {node.target} into a branch or loop body, which cannot own constants",
                hint="make the tensor with aten.full there, or use it outside",
            )
