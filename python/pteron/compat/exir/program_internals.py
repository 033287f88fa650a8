"""What passes of vendors call of ExecuTorch's program module: a program after a pass over its graph, its
signature, constants of the graph made inputs, and programs for partitioners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._export.verifier import Verifier
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputSpec,
    TensorArgument,
)

from pteron.exir.backend.partitioner import Partitioner
from pteron.exir.config.compile_config import EdgeCompileConfig
from pteron.exir.edge.edge_op_overload import EdgeOpOverload
from pteron.exir.edge.propagate_values import fake_mode_of
from pteron.exir.passes.exported_program_pass import ExportedProgramPassBase
from pteron.exir.program import EdgeProgramManager
from pteron.exir.to_edge_transform_and_lower import to_edge_for

Pass = Callable[[torch.fx.GraphModule], Any] | ExportedProgramPassBase


def _transform(
    self: ExportedProgram, *passes: Pass, override_verifiers: list[type[Verifier]] | None = None
) -> ExportedProgram:
    """The program after the passes, one after the other. A pass over a `GraphModule` is given the graph of
    the program itself, not of a copy, so it may hold the program and change its constants and signature;
    `self` is returned where no pass says that it changed anything.

    Raises:
        ValueError: a pass changed how many inputs or outputs the graph has, and not the signature.
    """
    if any(isinstance(each, (list, Verifier)) for each in passes):
        raise AssertionError(
            "Expected all passes to be of PassType, not list or Verifier. Use override_verifiers kwarg "
            "instead. "
            f"Got: {list(passes)}"
        )
    program = self
    for each in passes:
        if isinstance(each, ExportedProgramPassBase):
            program = each(program).exported_program
            continue
        result = each(program.graph_module)
        if result is not None and result.modified:
            program = _update_exported_program_graph_module(program, result.graph_module, override_verifiers)
    return program


def _gen_edge_manager_for_partitioners(
    partitioner: Mapping[str, list[Partitioner]],
    aten_programs: Mapping[str, ExportedProgram],
    config: EdgeCompileConfig,
    constant_methods: Mapping[str, Any] | None,
    generate_etrecord: bool = False,
) -> EdgeProgramManager:
    """The edge programs that `to_edge_transform_and_lower` gives to the partitioners of each method."""
    manager = to_edge_for(partitioner, aten_programs, config, constant_methods)
    if generate_etrecord:
        manager.begin_etrecord(aten_programs)
    return manager


def _copy_module(new_prog: torch.fx.GraphModule, new_gm: torch.fx.GraphModule) -> None:
    """Gives `new_prog` the graph, the metadata, the submodules and the read tensors of `new_gm`, in place."""
    new_prog.meta.update(new_gm.meta)
    new_prog.graph = new_gm.graph
    for name in [name for name, _ in new_prog.named_children()]:
        delattr(new_prog, name)
    for name, module in new_gm.named_children():
        setattr(new_prog, name, module)
    for node in new_gm.graph.nodes:
        held = getattr(new_gm, str(node.target), None) if node.op == "get_attr" else None
        if isinstance(held, torch.Tensor):
            setattr(new_prog, str(node.target), held)


def _update_exported_program_graph_module(
    exported_program: ExportedProgram,
    gm: torch.fx.GraphModule,
    override_verifiers: list[type[Verifier]] | None = None,
) -> ExportedProgram:
    """A program with another graph and the constants of `exported_program`, under the names of the new
    graph.
    """
    made = ExportedProgram(
        root=gm,
        graph=gm.graph,
        graph_signature=_get_updated_graph_signature(exported_program.graph_signature, gm),
        state_dict=exported_program.state_dict,
        range_constraints=exported_program.range_constraints,
        module_call_graph=exported_program.module_call_graph,
        example_inputs=exported_program.example_inputs,
        constants=exported_program.constants,
        verifiers=override_verifiers or exported_program.verifiers,
    )
    made.graph_module.meta.update(exported_program.graph_module.meta)
    made.graph_module.meta.update(gm.meta)
    return made


def _get_updated_graph_signature(
    old_signature: ExportGraphSignature, new_gm: torch.fx.GraphModule
) -> ExportGraphSignature:
    """The signature with the names that inputs and outputs have in another graph."""
    inputs = [node for node in new_gm.graph.nodes if node.op == "placeholder"]
    returned: Any = new_gm.graph.output_node().args[0]
    outputs = list(returned)
    for kind, nodes, specs in (
        ("inputs", inputs, old_signature.input_specs),
        ("outputs", outputs, old_signature.output_specs),
    ):
        if len(nodes) > len(specs):
            raise ValueError(f"Number of {kind} changed after transformation: {len(specs)}, now {len(nodes)}")
    return ExportGraphSignature(
        input_specs=[
            InputSpec(spec.kind, _renamed(spec.arg, node), spec.target, persistent=spec.persistent)
            for spec, node in zip(old_signature.input_specs, inputs, strict=False)
        ],
        output_specs=[
            OutputSpec(spec.kind, _renamed(spec.arg, node), spec.target)
            for spec, node in zip(old_signature.output_specs, outputs, strict=False)
        ],
    )


def _renamed(argument: Any, node: Any) -> Any:
    if isinstance(argument, ConstantArgument) or not isinstance(node, torch.fx.Node):
        return argument
    return type(argument)(name=node.name)


def lift_constant_tensor_pass(ep: ExportedProgram) -> ExportedProgram:
    """Make an input of the program of each tensor that its graph reads as an attribute, in place."""
    signature = ep.graph_signature
    read = [
        node
        for node in ep.graph.nodes
        if node.op == "get_attr" and isinstance(getattr(ep.graph_module, node.target, None), torch.Tensor)
    ]
    placeholders = [node for node in ep.graph.nodes if node.op == "placeholder"]
    if not read or not placeholders:
        return ep
    mode = fake_mode_of(ep.graph_module)
    position = next(
        (i for i, spec in enumerate(signature.input_specs) if spec.kind is InputKind.USER_INPUT),
        len(signature.input_specs),
    )
    where = (
        placeholders[position]
        if position < len(placeholders)
        else next(node for node in ep.graph.nodes if node.op != "placeholder")
    )
    lifted = []
    for number, node in enumerate(read, start=len(signature.buffers)):
        value = getattr(ep.graph_module, node.target)
        name = f"_lifted_tensor_constant{number}"
        with ep.graph.inserting_before(where):
            constant = ep.graph.placeholder(name)
        constant.meta = dict(node.meta)
        constant.meta["val"] = value if mode is None else mode.from_tensor(value, static_shapes=True)
        constant.meta["val"].constant = value
        node.replace_all_uses_with(constant)
        ep.graph.erase_node(node)
        argument = TensorArgument(name=constant.name)
        lifted.append(InputSpec(InputKind.BUFFER, argument, target=name, persistent=True))
        ep.state_dict[name] = value
    signature.input_specs[position:position] = lifted
    ep.graph_module.recompile()
    return ep


def _remove_invalid_ops_for_not_decompose(preserve_ops: list[Any]) -> list[Any]:
    """Those of the operators that can be kept whole: no views, nothing that writes, no edge operators."""

    def is_kept(op: Any) -> bool:
        if isinstance(op, EdgeOpOverload) or op._schema.is_mutable:
            return False
        return all(argument.alias_info is None for argument in op._schema.arguments)

    return [op for op in preserve_ops if is_kept(op)]
