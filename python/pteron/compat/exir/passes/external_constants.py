"""Passes that name the data file of a constant, for code of others: programs of this package are sorted into
files by the settings `external_constants` and `external_mutable_weights`, and by these marks.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch._export.utils import is_buffer, is_lifted_tensor_constant, is_param
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx.passes.infra.pass_base import PassResult

from pteron.compat.exir.tensor import TensorSpec
from pteron.exir.passes.constant_values import CONSTANT_TAG, DEFAULT_TAG

TagOfNode = Callable[[torch.fx.Node], str | None]

#: Key, below the metadata that exporting keeps, of the data file of a constant that a delegate takes over.
DELEGATE_CONSTANT_TAG = "delegate_constant_tag"


def is_param_node(exp_prog: ExportedProgram, node: torch.fx.Node) -> bool:
    """Whether a placeholder is a parameter, a buffer or a constant of the program."""
    return is_param(exp_prog, node) or is_buffer(exp_prog, node) or is_lifted_tensor_constant(exp_prog, node)


def external_constants_pass(gm: torch.fx.GraphModule, gen_tag_fn: TagOfNode | None = None) -> PassResult:
    """Marks constants with the data file that `gen_tag_fn` names, in place; without it with the default one.

    Constants that were written into the code stay. Needs specs with `const` on the placeholders.
    """
    found = [node for node in _constants_with_spec(gm) if "_lifted_tensor" not in node.name]
    for node in found:
        node.meta[CONSTANT_TAG] = DEFAULT_TAG if gen_tag_fn is None else gen_tag_fn(node)
    return PassResult(gm, bool(found))


def external_mutable_weights_pass(gm: torch.fx.GraphModule, ep: ExportedProgram) -> PassResult:
    """Marks parameters that have a gradient among the program's outputs with the default data file, in
    place. Needs specs with `const` on the placeholders.
    """
    signature = ep.graph_signature
    trained = {
        spec.target for spec in signature.output_specs if spec.kind is OutputKind.GRADIENT_TO_PARAMETER
    }
    found = [
        node
        for node in _constants_with_spec(gm)
        if signature.inputs_to_parameters.get(str(node.target)) in trained
    ]
    for node in found:
        node.meta[CONSTANT_TAG] = DEFAULT_TAG
    return PassResult(gm, bool(found))


def delegate_external_constants_pass_unlifted(
    module: torch.nn.Module, gen_tag_fn: TagOfNode | None = None
) -> PassResult:
    """Marks the constants that a graph reads by name, in place, for delegates that keep them in a data file:
    `meta["custom"]["delegate_constant_tag"]`, which exporting keeps. For `program.module()`, where constants
    are not yet inputs. Without `gen_tag_fn` nothing is marked.
    """
    if gen_tag_fn is None:
        return PassResult(module, False)
    found = [
        node
        for each in module.modules()
        if isinstance(each, torch.fx.GraphModule)
        for node in each.graph.nodes
        if node.op == "get_attr"
    ]
    for node in found:
        node.meta.setdefault("custom", {})[DELEGATE_CONSTANT_TAG] = gen_tag_fn(node)
    return PassResult(module, bool(found))


def _constants_with_spec(module: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [
        node
        for each in module.modules()
        if isinstance(each, torch.fx.GraphModule)
        for node in each.graph.nodes
        if node.op == "placeholder"
        and isinstance(node.meta.get("spec"), TensorSpec)
        and node.meta["spec"].const
    ]
