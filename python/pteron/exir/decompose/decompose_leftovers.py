"""Decompose operators that were kept whole and that neither a backend nor the target's kernels take."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch._export.verifier import Verifier
from torch._ops import OperatorBase, OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
)
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from pteron.errors import ExportError, MissingOutVariantError
from pteron.exir.backend.flat_calling_convention import argument_for, flat_call_graph
from pteron.exir.config.compile_config import EdgeCompileConfig
from pteron.exir.decompose.core_decompositions import KEPT_FOR_KERNELS
from pteron.exir.decompose.torch_decompositions import decomposed_by_default
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.edge_op_overload import EdgeOpOverload, edge_op_by_name, emitted_name
from pteron.exir.edge.out_variant import out_variant
from pteron.exir.edge.propagate_values import fake_mode_of
from pteron.exir.edge.source_location import source_location
from pteron.exir.edge.stages import EDGE
from pteron.exir.edge.verify import verify
from pteron.exir.passes.in_edge_dialect import in_edge_dialect
from pteron.exir.passes.lift_constant import lift_constant
from pteron.exir.passes.run_graph_passes import copy_program
from pteron.exir.passes.sync_output_names import sync_output_names

# What says where a node comes from; the parts of an operator take it over from the operator.
_ORIGIN = ("debug_handle", "stack_trace", "nn_module_stack", "from_node", "torch_fn", "source_fn_stack")


def decompose_leftovers(
    program: ExportedProgram,
    kernels: Collection[str],
    config: EdgeCompileConfig,
    method: str,
    to_edge: Callable[..., ExportedProgram],
) -> ExportedProgram:
    """`program` with every operator that could be decomposed and that no kernel runs decomposed to core ATen.

    Operators are left whole on the way to edge for backends (`Partitioner.ops_to_not_decompose`) or because
    the caller asked for it (`EdgeCompileConfig.preserve_ops`). Those that were not delegated stay where they
    have a kernel; the others become what `to_edge` would have made of them, with their debug handle and
    source line. Branches are entered; lowered modules stay as they are. `program` is never changed, and
    returned as it is where there is nothing to do.

    Args:
        program: in the edge dialect.
        kernels: names of what the target can run.
        config: what the program was brought into the edge dialect with.
        method: its name, for errors.
        to_edge: brings the leftovers, as a program, into the edge dialect: called with the program, a
            config and `method`, it keeps whole what that config says and nothing else.
    """
    if not any(_leftovers(module, kernels) for module in graph_modules(program.graph_module)):
        return program
    changed = copy_program(program)
    for module in graph_modules(changed.graph_module):
        leftovers = _leftovers(module, kernels)
        if leftovers:
            parts = _in_edge_dialect(leftovers, module, changed, config, partial(to_edge, method=method))
            _splice(changed, module, parts)
            module.recompile()
    sync_output_names(changed)
    finished = in_edge_dialect(changed)
    if config._check_ir_validity:
        verify(finished, EDGE, method=method)
    return finished


@dataclass
class _Parts:
    """Calls as a program of their own, in which calls that differ in their operands alone are one.

    Attributes:
        program: the program, one output per result of a call.
        operands: the nodes that its inputs stand for.
        kinds: of each of its calls the indices of its operands among the inputs, and of its results among the
            outputs; a call that returns several values has several.
        calls: all calls in order, each with the index of its kind and its operands.
    """

    program: ExportedProgram
    operands: list[torch.fx.Node] = field(default_factory=list)
    kinds: list[tuple[list[int], list[int]]] = field(default_factory=list)
    calls: list[tuple[torch.fx.Node, int, list[torch.fx.Node]]] = field(default_factory=list)


def _leftovers(module: torch.fx.GraphModule, kernels: Collection[str]) -> list[torch.fx.Node]:
    candidates = [
        node
        for node in module.graph.nodes
        if node.op == "call_function"
        and isinstance(node.target, EdgeOpOverload)
        and torch.Tag.core not in node.target.aten_overload.tags
        and all("val" in operand.meta for operand in node.all_input_nodes)
        and not _has_kernel(node.target.aten_overload, kernels)
    ]
    if not candidates:
        return []
    table = decomposed_by_default()
    return [node for node in candidates if _is_decomposable(node.target.aten_overload, table)]


def _has_kernel(op: OpOverload, kernels: Collection[str]) -> bool:
    try:
        name, overload = emitted_name(out_variant(op))
    except MissingOutVariantError:
        return False
    return (f"{name}.{overload}" if overload else name) in kernels


def _is_decomposable(op: OpOverload, table: Collection[OperatorBase]) -> bool:
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    return op in table or op in KEPT_FOR_KERNELS or bool(op.has_kernel_for_dispatch_key(composite))


def _in_edge_dialect(
    calls: Sequence[torch.fx.Node],
    module: torch.fx.GraphModule,
    program: ExportedProgram,
    config: EdgeCompileConfig,
    to_edge: Callable[..., ExportedProgram],
) -> _Parts:
    """The calls as one program, decomposed and in the edge dialect."""
    graph = torch.fx.Graph()
    twins: dict[torch.fx.Node, torch.fx.Node] = {}
    parts = _Parts(program)
    mode = fake_mode_of(module)
    # A hundred layers have as many kinds of calls as one, and torch takes tens of milliseconds for each.
    kinds: dict[tuple[Any, ...], int] = {}
    examples: list[torch.fx.Node] = []
    for node in calls:
        kind = kinds.setdefault(_signature(node), len(kinds))
        parts.calls.append((node, kind, node.all_input_nodes))
        if kind == len(examples):
            examples.append(node)
    for node in examples:
        for operand in node.all_input_nodes:
            if operand not in twins:
                twins[operand] = graph.placeholder(f"operand_{len(twins)}")
                twins[operand].meta["val"] = _without_gradient(operand.meta["val"], mode)
                parts.operands.append(operand)
    results: list[torch.fx.Node] = []
    for node in examples:
        call = graph.call_function(
            node.target.aten_overload,  # type: ignore[union-attr]
            *torch.fx.node.map_arg((node.args, node.kwargs), twins.__getitem__),
        )
        call.meta = {key: node.meta[key] for key in ("val", *_ORIGIN) if key in node.meta}
        inputs = [parts.operands.index(operand) for operand in node.all_input_nodes]
        parts.kinds.append((inputs, _add_results(graph, call, results)))
    graph.output(tuple(results))
    alone = ExportedProgram(
        root=torch.fx.GraphModule(torch.nn.Module(), graph),
        graph=graph,
        graph_signature=ExportGraphSignature(
            input_specs=[InputSpec(InputKind.USER_INPUT, argument_for(n), None) for n in twins.values()],
            output_specs=[OutputSpec(OutputKind.USER_OUTPUT, argument_for(n), None) for n in results],
        ),
        state_dict={},
        range_constraints=dict(program.range_constraints),
        module_call_graph=flat_call_graph(len(twins), len(results)),
        verifiers=[Verifier],
    )
    # `preserve_ops` would keep them whole once more.
    plain = EdgeCompileConfig(
        _check_ir_validity=config._check_ir_validity,
        _skip_dim_order=config._skip_dim_order,
        _core_aten_ops_exception_list=[
            op
            for op in config._core_aten_ops_exception_list
            if all(op is not getattr(node.target, "aten_overload", None) for node in calls)
        ],
    )
    parts.program = to_edge(alone, plain)
    return parts


def _signature(call: torch.fx.Node) -> tuple[Any, ...]:
    """Equal for calls that become the same parts: operator, attributes, what is known of operands, and
    which of these are the same.
    """
    if free_unbacked_symbols(call.meta["val"]):
        # Its extents are known when it has run, and are its own.
        return (call,)
    places = {operand: place for place, operand in enumerate(call.all_input_nodes)}
    arguments = torch.fx.node.map_arg((call.args, call.kwargs), lambda node: f"operand {places[node]}")
    return (call.target, repr(arguments), *(_facts(operand.meta["val"]) for operand in places))


def _facts(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return f"{type(value)} {value}"
    place = (tuple(value.shape), value.stride(), value.storage_offset())
    # A fake tensor may know its elements, and a decomposition may compute with them.
    constant = getattr(value, "constant", None)
    elements = "" if constant is None else id(constant)
    return f"{value.dtype} {place} {value.device} {value.requires_grad} {elements}"


def _without_gradient(value: Any, mode: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.requires_grad and mode is not None:
        with mode:
            return value.detach()
    return value


def _add_results(graph: torch.fx.Graph, call: torch.fx.Node, results: list[torch.fx.Node]) -> list[int]:
    value = call.meta["val"]
    first = len(results)
    if not isinstance(value, (list, tuple)):
        results.append(call)
        return [first]
    for index, item in enumerate(value):
        picked = graph.call_function(operator.getitem, (call, index))
        picked.meta = {**call.meta, "val": item}
        results.append(picked)
    return list(range(first, len(results)))


def _splice(program: ExportedProgram, module: torch.fx.GraphModule, parts: _Parts) -> None:
    """Puts the parts of every call in its place, in order."""
    inner = parts.program.graph_module.graph
    outputs = list(inner.output_node().args[0])
    inputs, constants = _inputs(program, module, parts)
    order = {node: index for index, node in enumerate(module.graph.nodes)}
    cones = [_cone(inner, [outputs[index] for index in results]) for _, results in parts.kinds]
    replaced: dict[torch.fx.Node, torch.fx.Node] = {}
    shared = dict(constants)
    for call, kind, operands in parts.calls:
        places, results = parts.kinds[kind]
        twins = dict(zip(inputs, parts.operands, strict=True))
        twins |= {inputs[place]: operand for place, operand in zip(places, operands, strict=True)}
        # Results of one call may be operands of the next.
        twins = {part: replaced.get(twin, twin) for part, twin in twins.items()} | shared
        origin = {key: call.meta[key] for key in _ORIGIN if key in call.meta}
        with module.graph.inserting_before(call):
            for part in cones[kind]:
                if part not in twins:
                    copied = module.graph.node_copy(part, twins.__getitem__)
                    _read_before(copied, part, call, twins, order)
                    copied.meta = {k: v for k, v in part.meta.items() if k not in _ORIGIN} | origin
                    twins[part] = copied
                    if _is_of_extents(part, shared):
                        shared[part] = copied
        replaced |= _replace(call, [twins[outputs[index]] for index in results])


def _is_of_extents(part: torch.fx.Node, shared: Collection[torch.fx.Node]) -> bool:
    """Is it an extent of an operand, or computed from such? These are equal in all calls."""
    if not isinstance(part.meta.get("val"), (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)):
        return False
    if part.target is torch.ops.aten.sym_size.int:
        return part.all_input_nodes[0].op == "placeholder"
    return all(operand in shared for operand in part.all_input_nodes)


def _read_before(
    copied: torch.fx.Node,
    part: torch.fx.Node,
    call: torch.fx.Node,
    twins: dict[torch.fx.Node, torch.fx.Node],
    order: dict[torch.fx.Node, int],
) -> None:
    """An extent is read from an operand of `call` where the parts read it from one that comes later.

    The parts of all calls have one reading of an extent that their operands share, from any of them.
    """
    read = part.args[0] if part.target is torch.ops.aten.sym_size.int else None
    if not isinstance(read, torch.fx.Node) or order.get(twins[read], -1) < order[call]:
        return
    for operand in call.all_input_nodes:
        for dim, extent in enumerate(getattr(operand.meta["val"], "shape", ())):
            if str(extent) == str(part.meta["val"]):
                copied.args = (operand, dim)
                return


def _inputs(
    program: ExportedProgram, module: torch.fx.GraphModule, parts: _Parts
) -> tuple[list[torch.fx.Node], dict[torch.fx.Node, torch.fx.Node]]:
    """The inputs of the parts that stand for operands, and the new constants of `module` for all others."""
    inner = parts.program
    specs = {spec.arg.name: spec for spec in inner.graph_signature.input_specs}
    inputs = []
    constants: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in inner.graph_module.graph.nodes:
        if node.op != "placeholder":
            continue
        spec = specs[node.name]
        if spec.kind is InputKind.USER_INPUT:
            inputs.append(node)
        elif node.users:
            value = inner.constants[str(spec.target)]
            constants[node] = _new_constant(program, module, value, node, parts.calls[0][0])
    return inputs, constants


def _new_constant(
    program: ExportedProgram,
    module: torch.fx.GraphModule,
    value: Any,
    placeholder: torch.fx.Node,
    before: torch.fx.Node,
) -> torch.fx.Node:
    if module is program.graph_module:
        return lift_constant(program, value, before)
    if value.dim() > 0:
        location = source_location(before)
        raise ExportError(
            f"{before.target} in a branch of control flow has no kernel, and decomposing it needs a constant "
            f"of shape {tuple(value.shape)}, which a branch cannot hold",
            operator=str(before.target),
            source_line=str(location),
            hint="compute it before the control flow, or do not keep the operator whole",
        )
    # A branch has no constants of its own; it makes numbers where it needs them.
    with module.graph.inserting_before(before):
        full = module.graph.call_function(
            edge_op_by_name("aten", "full", "default"), ([], value.item()), {"dtype": value.dtype}
        )
    full.meta = {key: before.meta[key] for key in _ORIGIN if key in before.meta}
    full.meta["val"] = placeholder.meta["val"]
    return full


def _cone(graph: torch.fx.Graph, ends: Sequence[Any]) -> list[torch.fx.Node]:
    """The calls that `ends` depend on, with them, in graph order."""
    waiting = [end for end in ends if isinstance(end, torch.fx.Node)]
    seen: set[torch.fx.Node] = set()
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting.extend(node.all_input_nodes)
    return [node for node in graph.nodes if node in seen and node.op != "placeholder"]


def _replace(call: torch.fx.Node, results: Sequence[torch.fx.Node]) -> dict[torch.fx.Node, torch.fx.Node]:
    """Puts `results` in the place of what `call` returns, and says what replaced what."""
    replaced: dict[torch.fx.Node, torch.fx.Node] = {}
    if not isinstance(call.meta["val"], (list, tuple)):
        call.replace_all_uses_with(results[0])
        replaced[call] = results[0]
    for user in list(call.users):
        if user.target is not operator.getitem:
            raise AssertionError(f"{user} reads the results of {call} as a whole")
        result = results[user.args[1]]  # type: ignore[index]
        user.replace_all_uses_with(result)
        user.graph.erase_node(user)
        replaced[user] = result
    call.graph.erase_node(call)
    return replaced
