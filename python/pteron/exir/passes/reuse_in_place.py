"""Let the operators that compute a buffer's new value write it into the buffer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram

from pteron.exir.edge.edge_op_overload import emitted_name
from pteron.exir.edge.memory_nodes import alloc
from pteron.exir.edge.out_variant import out_argument_names
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.memory.memory_planning_pass import MEMORY_ID
from pteron.exir.memory.spec_lifetimes import execution_order, specs_in, written_arguments

_ATEN = torch.ops.aten

# They copy argument 0 and change a part of the copy; where both are the same memory there is nothing to copy.
_UPDATES = frozenset(
    {
        _ATEN.index_put.out,
        _ATEN.slice_scatter.out,
        _ATEN.select_scatter.out,
        _ATEN.scatter.src_out,
        _ATEN.scatter.value_out,
        _ATEN.scatter_add.out,
    }
)
# Each element of the result depends on the operands' elements at the same place only.
_ELEMENTWISE = frozenset(
    getattr(getattr(_ATEN, name), overload)
    for overload, names in {
        "out": (
            *("add", "sub", "mul", "div", "maximum", "minimum", "neg", "abs", "exp", "sqrt", "rsqrt", "relu"),
            *("reciprocal", "sigmoid", "tanh", "clamp", "logical_not", "bitwise_not"),
        ),
        "Scalar_out": ("add", "sub", "mul", "div"),
        "Tensor_out": ("bitwise_and", "bitwise_or", "bitwise_xor"),
    }.items()
    for name in names
)
_INDEX_PUT_IN_PLACE = _ATEN.index_put_.default


def reuse_in_place(program: ExportedProgram, kernels: frozenset[str]) -> None:
    """Remove write-backs (`copy_` into a buffer or input) whose new value can be made where it belongs.

    `program`: out variants with specs; changed in place. The operator that makes the new value gets the
    buffer as its output where nothing reads the buffer's old value later, also not through a view or in a
    branch, and the value is not returned. If that operator changes a part of an earlier value (the rows of a
    cache that it updates), so does the operator that makes the earlier value, and so on to the buffer
    itself. `kernels`: what the target can run; `index_put` of rows on the buffer itself becomes `index_put_`
    where that is among them.
    """
    graph = program.graph_module.graph
    uses = _Uses.of(graph)
    for copy in list(graph.nodes):
        if copy.target is not _ATEN.copy_.default or copy.users:
            continue
        target, value = copy.args[0], copy.args[1]
        if not isinstance(target, torch.fx.Node) or not isinstance(value, torch.fx.Node):
            continue
        if target.op == "placeholder" and uses.writes.get(target.meta["spec"].root) == 1:
            _place(graph, uses, copy, target, value)
    if ".".join(filter(None, emitted_name(_INDEX_PUT_IN_PLACE))) in kernels:
        for node in graph.nodes:
            if node.target is _ATEN.index_put.out and _replaces_rows(node):
                node.target = _INDEX_PUT_IN_PLACE
                node.kwargs = {}
    graph.lint()
    program.graph_module.recompile()


def _replaces_rows(node: torch.fx.Node) -> bool:
    """Whether an `index_put` on its own first argument has one index, of one dimension, and a value for each
    element that it chooses: `index_put_` of ExecuTorch takes others for wrong.
    """
    target, indices, values = node.args[:3]
    assert isinstance(target, torch.fx.Node)
    assert isinstance(indices, (list, tuple))
    assert isinstance(values, torch.fx.Node)
    given = [(dim, index) for dim, index in enumerate(indices) if isinstance(index, torch.fx.Node)]
    if node.kwargs["out"] is not target or len(given) != 1:
        return False
    dim, chosen = given[0][0], given[0][1].meta["spec"]
    replaced = list(target.meta["spec"].shape)
    if len(chosen.shape) != 1 or chosen.dtype is torch.bool or chosen.is_dynamic:
        return False
    replaced[dim] = chosen.shape[0]
    return list(values.meta["spec"].shape) == replaced and not values.meta["spec"].is_dynamic


@dataclass
class _Uses:
    """Who reads what when. `position`: of a node in the order of execution; `reads`: positions at which the
    memory of a root spec is read; `writes`: how many write-backs go to it; `bases`: specs of views by root;
    `returned`: root specs of results.
    """

    position: dict[torch.fx.Node, int]
    reads: dict[TensorSpec, list[int]]
    writes: dict[TensorSpec, int]
    views: dict[TensorSpec, list[TensorSpec]]
    returned: set[TensorSpec]

    @classmethod
    def of(cls, graph: torch.fx.Graph) -> _Uses:
        uses = cls({}, {}, {}, {}, set())
        seen: set[TensorSpec] = set()
        for position, node in enumerate(execution_order(graph)):
            uses.position.setdefault(node, position)
            written = set(written_arguments(node))
            if node.target is _ATEN.copy_.default:
                for operand in written:
                    root = operand.meta["spec"].root
                    uses.writes[root] = uses.writes.get(root, 0) + 1
            for spec in specs_in(node.meta.get("spec")):
                if spec.base is not None and spec not in seen:
                    seen.add(spec)
                    uses.views.setdefault(spec.root, []).append(spec)
            for operand in node.all_input_nodes:
                if operand in written and operand not in node.args[1:]:
                    continue
                for spec in specs_in(operand.meta.get("spec")):
                    uses.reads.setdefault(spec.root, []).append(position)
                    if node.op == "output" and node.graph is graph:
                        uses.returned.add(spec.root)
        return uses

    def last_read(self, spec: TensorSpec) -> int:
        return max(self.reads.get(spec, ()), default=-1)


def _place(
    graph: torch.fx.Graph, uses: _Uses, copy: torch.fx.Node, buffer: torch.fx.Node, value: torch.fx.Node
) -> None:
    """Make `value`, and what it is an update of, in the memory of `buffer`."""
    place: TensorSpec = buffer.meta["spec"]
    last_read = uses.last_read(place)
    is_first = True
    made: torch.fx.Node | None = value
    while made is not None and _may_move(uses, made, place):
        position = uses.position[made]
        if last_read > position or (last_read == position and not _works_over(made, place)):
            return
        earlier = _earlier_value(uses, made, place) if last_read < position else None
        _move(graph, uses, made, buffer)
        if is_first:
            graph.erase_node(copy)
            is_first = False
        made = earlier


def _may_move(uses: _Uses, made: torch.fx.Node, place: TensorSpec) -> bool:
    """Whether `made` is one result in memory that was allocated for it, is not returned and fits `place`."""
    if not isinstance(made.target, OpOverload) or len(out_argument_names(made.target)) != 1:
        return False
    spec = made.meta["spec"]
    return (
        _allocated(made) is not None
        and spec.base is None
        and spec not in uses.returned
        and made.meta.get(MEMORY_ID) is None
        and _is_alike(spec, place)
        and math.prod(spec.shape) > 0
    )


def _allocated(made: torch.fx.Node) -> torch.fx.Node | None:
    assert isinstance(made.target, OpOverload)
    out = made.kwargs.get(out_argument_names(made.target)[0])
    if isinstance(out, torch.fx.Node) and out.target is alloc and len(out.users) == 1:
        return out
    return None


def _is_alike(spec: TensorSpec, other: TensorSpec) -> bool:
    return not (spec.is_dynamic or other.is_dynamic) and (spec.dtype, spec.shape, spec.dim_order) == (
        other.dtype,
        other.shape,
        other.dim_order,
    )


def _works_over(made: torch.fx.Node, place: TensorSpec) -> bool:
    """Whether `made` gives the right result if its output is the memory `place`, which it reads."""
    readers = [
        spec
        for operand in made.all_input_nodes
        for spec in specs_in(operand.meta.get("spec"))
        if spec.root is place.root and operand is not _allocated(made)
    ]
    if made.target in _UPDATES:
        first = made.args[0]
        assert isinstance(first, torch.fx.Node)
        occurrences = sum(value is first for value in torch.utils._pytree.tree_leaves(made.args))
        return (
            occurrences == 1
            and len(readers) == 1
            and _is_alike(first.meta["spec"], place)
            and (first.meta["spec"].root is place.root)
        )
    if made.target in _ELEMENTWISE:
        sizes = {
            spec.dtype.itemsize
            for operand in made.all_input_nodes
            for spec in specs_in(operand.meta.get("spec"))
        }
        return len(sizes) == 1 and all(_is_alike(spec, place) for spec in readers)
    return False


def _earlier_value(uses: _Uses, made: torch.fx.Node, place: TensorSpec) -> torch.fx.Node | None:
    """The operand that `made` can be written over, if that is its last use."""
    for operand in made.all_input_nodes:
        spec = operand.meta.get("spec")
        if (
            isinstance(spec, TensorSpec)
            and operand is not _allocated(made)
            and spec.base is None
            and uses.last_read(spec) == uses.position[made]
            and operand.op == "call_function"
            and _may_move(uses, operand, place)
            and _works_over(made, spec)
        ):
            return operand
    return None


def _move(graph: torch.fx.Graph, uses: _Uses, made: torch.fx.Node, buffer: torch.fx.Node) -> None:
    place: TensorSpec = buffer.meta["spec"]
    spec: TensorSpec = made.meta["spec"]
    out = _allocated(made)
    assert out is not None
    made.meta["spec"] = place
    # Views of the value may be in branches; their specs say whose memory they are.
    for shared in uses.views.pop(spec, []):
        if shared.base is spec:
            shared.base = place
        uses.views.setdefault(place, []).append(shared)
    for user in list(out.users):
        user.replace_input_with(out, buffer)
    graph.erase_node(out)
