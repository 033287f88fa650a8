"""The smallest complete program around a lowered module: its arguments, one delegate call, its results."""

from __future__ import annotations

import copy
import operator
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree
from torch.export.exported_program import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
)

from pteron.exir.backend.delegate_call import attach_lowered_module, executorch_call_delegate
from pteron.exir.backend.flat_calling_convention import argument_for

if TYPE_CHECKING:
    from pteron.exir.backend.lowered_backend_module import LoweredBackendModule

#: Outputs that the caller of a lowered module sees; the others are state that the delegate keeps.
_VISIBLE_OUTPUTS = (OutputKind.USER_OUTPUT, OutputKind.USER_INPUT_MUTATION)


def build_delegate_call_program(
    lowered_module: LoweredBackendModule, in_spec: pytree.TreeSpec, out_spec: pytree.TreeSpec
) -> ExportedProgram:
    """An edge program that does nothing but call `lowered_module`.

    Parameters, buffers and constants (plain tensor attributes of the module among them) belong to the
    delegate, so the arguments are the user inputs alone. `in_spec` and `out_spec` are the structures that
    callers see.
    """
    original = lowered_module.original_module
    root = torch.fx.GraphModule(torch.nn.Module(), torch.fx.Graph())
    graph = root.graph
    input_specs, arguments = _copy_user_inputs(original, graph)
    target = graph.get_attr(attach_lowered_module(root, lowered_module))
    call = graph.call_function(executorch_call_delegate, (target, *arguments))
    call.meta["debug_handle"] = 1
    results, output_specs = _add_outputs(original, graph, call)
    graph.output(tuple(results))
    return ExportedProgram(
        root=root,
        graph=graph,
        graph_signature=ExportGraphSignature(input_specs=input_specs, output_specs=output_specs),
        state_dict={},
        range_constraints=copy.copy(original.range_constraints),
        module_call_graph=[
            ModuleCallEntry(
                fqn="",
                signature=ModuleCallSignature(inputs=[], outputs=[], in_spec=in_spec, out_spec=out_spec),
            )
        ],
        verifiers=list(original.verifiers),
    )


def _copy_user_inputs(
    original: ExportedProgram, graph: torch.fx.Graph
) -> tuple[list[InputSpec], list[torch.fx.Node]]:
    specs = {spec.arg.name: spec for spec in original.graph_signature.input_specs}
    kept, nodes = [], []
    for node in original.graph.nodes:
        if node.op != "placeholder" or specs[node.name].kind is not InputKind.USER_INPUT:
            continue
        duplicate = graph.placeholder(node.name)
        # Callers pass arguments by this name; fx would rename one that is called like a builtin.
        duplicate.name = node.name
        duplicate.meta = dict(node.meta)
        duplicate.meta.pop("delegation_tag", None)
        kept.append(InputSpec(InputKind.USER_INPUT, argument_for(duplicate), None))
        nodes.append(duplicate)
    return kept, nodes


def _add_outputs(
    original: ExportedProgram, graph: torch.fx.Graph, call: torch.fx.Node
) -> tuple[list[Any], list[OutputSpec]]:
    leaves = pytree.tree_leaves(original.graph.output_node().args[0], is_leaf=lambda leaf: leaf is None)
    results: list[Any] = []
    specs: list[OutputSpec] = []
    values: list[Any] = []
    for leaf, spec in zip(leaves, original.graph_signature.output_specs, strict=True):
        if spec.kind not in _VISIBLE_OUTPUTS:
            continue
        if not isinstance(leaf, torch.fx.Node):
            # A Python constant in the result is known here; the delegate returns tensors only.
            results.append(leaf)
            specs.append(copy.copy(spec))
            continue
        item = graph.call_function(operator.getitem, (call, len(values)))
        item.meta = {"val": leaf.meta["val"], "debug_handle": 1}
        values.append(leaf.meta["val"])
        results.append(item)
        specs.append(OutputSpec(spec.kind, argument_for(item), spec.target))
    call.meta["val"] = tuple(values)
    return results, specs
