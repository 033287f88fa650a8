"""Which inputs of a program are constants, and their tensors."""

from __future__ import annotations

import torch
from torch._ops import OpOverload
from torch._subclasses import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, TensorArgument

from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.edge_op_overload import EdgeOpOverload
from pteron.exir.edge.propagate_values import fake_mode_of

#: Of a placeholder's meta: the data file that its constant goes to, as ExecuTorch's passes say it.
CONSTANT_TAG = "constant_tag"
#: The data file of tensors whose settings name none.
DEFAULT_TAG = "_default_external_constant"
#: Of a placeholder's meta: a method of the file updates this buffer, so it may be state of all (True).
UPDATED_ELSEWHERE = "updated_elsewhere"

_STORED = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_UPDATES = tuple(kind for kind in OutputKind if kind.name.endswith("_MUTATION"))


def written_operands(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The operands that a call writes into; none for functional operators."""
    target = node.target.aten_overload if isinstance(node.target, EdgeOpOverload) else node.target
    if node.op != "call_function" or not isinstance(target, OpOverload) or not target._schema.is_mutable:
        return []
    found = []
    for position, argument in enumerate(target._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            if isinstance(value, torch.fx.Node):
                found.append(value)
    return found


def updated_placeholders(program: ExportedProgram) -> set[torch.fx.Node]:
    """Inputs of `program` whose memory changes in a run: by the signature, or by a call that writes."""
    placeholders = [node for node in program.graph_module.graph.nodes if node.op == "placeholder"]
    updated = {str(spec.target) for spec in program.graph_signature.output_specs if spec.kind in _UPDATES}
    found = {
        node
        for spec, node in zip(program.graph_signature.input_specs, placeholders, strict=True)
        if str(spec.target) in updated or spec.arg.name in updated
    }
    for module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            found.update(operand for operand in written_operands(node) if operand.op == "placeholder")
    return found


def constant_values(program: ExportedProgram) -> dict[torch.fx.Node, torch.Tensor]:
    """Placeholder → tensor for each parameter, buffer and constant that no run of any method changes;
    those that a pass put into a data file stay as they are, and are left out.
    """
    placeholders = [node for node in program.graph_module.graph.nodes if node.op == "placeholder"]
    updated = updated_placeholders(program)
    found = {}
    for spec, node in zip(program.graph_signature.input_specs, placeholders, strict=True):
        if spec.kind not in _STORED or spec.target is None or node in updated:
            continue
        if node.meta.get(CONSTANT_TAG) is not None or node.meta.get(UPDATED_ELSEWHERE):
            continue
        store = program.state_dict if spec.target in program.state_dict else program.constants
        value = store.get(spec.target)
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
            found[node] = value
    return found


def add_constants(
    program: ExportedProgram,
    values: list[tuple[torch.Tensor, torch.fx.Node]],
    prefix: str = "_folded_constant",
) -> list[torch.fx.Node]:
    """Add tensors to the constants of `program`, in front of the user inputs; their placeholders, in order.
    They are called `prefix` and a number.

    Each tensor comes with the node that it stands for, whose source line its placeholder takes over.
    """
    if not values:
        return []
    specs = program.graph_signature.input_specs
    placeholders = [node for node in program.graph_module.graph.nodes if node.op == "placeholder"]
    index = next(
        (i for i, spec in enumerate(specs) if spec.kind in (InputKind.USER_INPUT, InputKind.TOKEN)),
        len(specs),
    )
    graph = program.graph_module.graph
    first_call = next(node for node in graph.nodes if node.op != "placeholder")
    mode = fake_mode_of(program.graph_module)
    number = len(program.constants)
    made = []
    with graph.inserting_before(placeholders[index] if index < len(placeholders) else first_call):
        for value, origin in values:
            while f"{prefix}{number}" in program.constants:
                number += 1
            name = f"{prefix}{number}"
            node = graph.placeholder(name)
            node.meta = {
                key: origin.meta[key] for key in ("stack_trace", "nn_module_stack") if key in origin.meta
            }
            node.meta["val"] = (
                value.to("meta") if mode is None else mode.from_tensor(value, static_shapes=True)
            )
            program.constants[name] = value
            made.append(node)
    specs[index:index] = [
        InputSpec(
            InputKind.CONSTANT_TENSOR, TensorArgument(node.name), target=str(node.target), persistent=True
        )
        for node in made
    ]
    return made


def remove_unread_constants(program: ExportedProgram, candidates: set[torch.fx.Node]) -> None:
    """Remove those of `candidates`, placeholders of constants, that nobody reads, with their signature."""
    placeholders = [node for node in program.graph_module.graph.nodes if node.op == "placeholder"]
    kept = []
    for spec, node in zip(program.graph_signature.input_specs, placeholders, strict=True):
        if node in candidates and not node.users:
            program.graph_module.graph.erase_node(node)
        else:
            kept.append(spec)
    program.graph_signature.input_specs[:] = kept
