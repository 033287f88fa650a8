"""Passes that rebuild a graph operator by operator."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses import FakeTensorMode
from torch.fx.passes.infra.pass_base import PassBase, PassResult
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from pteron.exir.edge.control_flow import attribute_of
from pteron.exir.edge.delegate_call import is_delegate_call
from pteron.exir.edge.edge_op_overload import EdgeOpOverload
from pteron.exir.edge.exir_ops import exir_ops
from pteron.exir.edge.propagate_values import depends_on_data, evaluate, fake_mode_of
from pteron.exir.edge.source_location import source_location
from pteron.exir.edge.symbolic_ops import is_symbolic_op
from pteron.exir.passes.pass_tracer import PassTracer
from pteron.exir.passes.proxy_value import ExportPassBaseError, NodeMetadata, ProxyValue

__all__ = ["ExportPass"]


class ExportPass(PassBase):
    """A pass whose hooks are called for each node and whose calls build the new graph.

    Override the hook of what you want to change and call `super()` with other arguments, several times, or
    return another value instead of calling it:

        class ReplaceAddWithMul(ExportPass):
            def call_operator(self, op, args, kwargs, meta):
                if op is exir_ops.edge.aten.add.Tensor:
                    op, kwargs = exir_ops.edge.aten.mul.Tensor, {}
                return super().call_operator(op, args, kwargs, meta)

    Arguments of hooks are `ProxyValue` where they come from other nodes. Fake results are computed as the
    graph is built, so dtype and shape are right for the operators that follow. Branches and loop bodies go
    through the same hooks. Inputs and outputs keep their number and the inputs their shapes.

    `call` can be overridden to edit the graph directly; `super().call(graph_module)` then recomputes what
    every node states about its result.
    """

    tracer: PassTracer
    fake_tensor_mode: FakeTensorMode | None

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """A new module, built by the hooks."""
        mode = fake_mode_of(graph_module) or FakeTensorMode(allow_non_fake_inputs=True)
        self.fake_tensor_mode = mode
        allowed, mode.allow_non_fake_inputs = mode.allow_non_fake_inputs, True
        try:
            # Not inside the mode: a tensor that a hook makes is a real one.
            with torch.no_grad():
                return self.call_submodule(graph_module, tuple(self.inputs(graph_module)))
        finally:
            mode.allow_non_fake_inputs = allowed

    def inputs(self, graph_module: torch.fx.GraphModule) -> list[Any]:
        """What the placeholders of the module stand for: their `meta["val"]`."""
        placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
        for node in placeholders:
            if "val" not in node.meta:
                raise ExportPassBaseError(
                    f'input {node.name} has no meta["val"], so shapes cannot be computed',
                    hint="take the graph from an exported program",
                )
        return [node.meta["val"] for node in placeholders]

    def call_submodule(self, graph_module: torch.fx.GraphModule, inputs: tuple[Any, ...]) -> PassResult:
        """The new form of a module, a branch or a loop body for the given inputs."""
        outer = getattr(self, "tracer", None)
        self.tracer = PassTracer(graph_module, self.on_attr)
        try:
            values: dict[torch.fx.Node, Any] = {}
            waiting = iter(tree_map_only(ProxyValue, lambda value: value.data, inputs))
            for node in graph_module.graph.nodes:
                values[node] = self._run_node(node, values, waiting)
            made = torch.fx.GraphModule(self.tracer.root, self.tracer.graph)
        finally:
            if outer is not None:
                self.tracer = outer
        made.meta = dict(graph_module.meta)
        are_symbols_kept = self.should_preserve_symbolic_input_metadata()
        _keep_inputs(graph_module, made, are_symbols_kept=are_symbols_kept)
        return PassResult(made, True)

    def should_preserve_symbolic_input_metadata(self) -> bool:
        """Whether an input whose extents vary must keep its shape; a pass that means to change one says
        False.
        """
        return True

    # Hooks

    def placeholder(self, name: str, arg: Any, meta: NodeMetadata) -> ProxyValue:
        """An input of the graph; `arg` is its fake tensor or number."""
        proxy = self.tracer.create_proxy("placeholder", name, (), {})
        proxy.node.meta = {**meta.data, "val": arg}
        return ProxyValue(arg, proxy)

    def on_attr(self, attr: ProxyValue) -> None:
        """A tensor became an attribute of the new module, since a pass used it as an argument."""

    def call_operator(
        self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], meta: NodeMetadata
    ) -> ProxyValue:
        """A call of an operator."""
        return self._fx(op, args, kwargs, meta)

    def call_sym(self, target: Callable[..., Any], args: tuple[Any, ...], meta: NodeMetadata) -> ProxyValue:
        """Arithmetic on symbolic numbers."""
        return self._fx(target, args, {}, meta)

    def call_size_operator(
        self, tensor: ProxyValue, dim: int, meta: NodeMetadata, *, edge_dialect: bool = False
    ) -> ProxyValue | int:
        """The extent of `tensor` along `dim` as an argument: an int, or a `sym_size` where it varies, of the
        edge dialect where asked.
        """
        extent: Any = tensor.to_tensor().shape[dim]
        if isinstance(extent, int):
            return extent
        dialect = exir_ops.edge.aten if edge_dialect else torch.ops.aten
        return self.call_sym(dialect.sym_size.int, (tensor, dim), meta)

    def call_size_operator_all(
        self, tensor: ProxyValue, meta: NodeMetadata, *, edge_dialect: bool = False
    ) -> list[ProxyValue | int]:
        """The extents of `tensor` along all dimensions, each as `call_size_operator` gives it."""
        rank = tensor.to_tensor().dim()
        return [self.call_size_operator(tensor, dim, meta, edge_dialect=edge_dialect) for dim in range(rank)]

    def call_getitem(self, value: ProxyValue, key: int, meta: NodeMetadata) -> ProxyValue:
        """One of several results of a call."""
        return self._fx(operator.getitem, (value, key), {}, meta)

    def call_cond(
        self,
        pred: ProxyValue,
        true_fn: torch.fx.GraphModule,
        false_fn: torch.fx.GraphModule,
        inputs: Sequence[Any],
        meta: NodeMetadata,
    ) -> ProxyValue:
        """`torch.cond`; the branches go through the hooks first."""
        branches = [self._body(branch, tuple(inputs)) for branch in (true_fn, false_fn)]
        return self._higher_order(torch.ops.higher_order.cond, (pred, *branches, tuple(inputs)), meta)

    def call_map(
        self,
        f: torch.fx.GraphModule,
        mapped_args: Sequence[Any],
        operands: Sequence[Any],
        meta: NodeMetadata,
    ) -> ProxyValue:
        """`map` over the first dimension of `mapped_args`."""
        body = self._body(f, self._own_inputs(f))
        return self._higher_order(torch.ops.higher_order.map_impl, (body, mapped_args, operands), meta)

    def call_while(
        self,
        cond_fn: torch.fx.GraphModule,
        body_fn: torch.fx.GraphModule,
        carried_inputs: Sequence[Any],
        additional_inputs: Sequence[Any],
        meta: NodeMetadata,
    ) -> ProxyValue:
        """`while_loop`."""
        bodies = [self._body(each, self._own_inputs(each)) for each in (cond_fn, body_fn)]
        target = torch.ops.higher_order.while_loop
        return self._higher_order(target, (*bodies, carried_inputs, additional_inputs), meta)

    def call_scan(
        self,
        combine_fn: torch.fx.GraphModule,
        init: Sequence[Any],
        xs: Sequence[Any],
        additional_inputs: Sequence[Any],
        meta: NodeMetadata,
    ) -> ProxyValue:
        """`scan`."""
        body = self._body(combine_fn, self._own_inputs(combine_fn))
        return self._higher_order(torch.ops.higher_order.scan, (body, init, xs, additional_inputs), meta)

    def call_delegate(
        self, lowered_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], meta: NodeMetadata
    ) -> ProxyValue:
        """A call of a lowered module."""
        return self._higher_order(self._target, (lowered_module, *args), meta, kwargs)

    def output(self, results: Any, meta: NodeMetadata) -> ProxyValue:
        """The results of the graph."""
        proxy = self.tracer.create_proxy("output", "output", (_proxies(results),), {})
        proxy.node.meta = dict(meta.data)
        return ProxyValue(tree_map(_data, results), proxy)

    # Building

    def _run_node(self, node: torch.fx.Node, values: dict[torch.fx.Node, Any], inputs: Any) -> Any:
        meta = NodeMetadata(node.meta)
        if node.op == "placeholder":
            return self.placeholder(str(node.target), next(inputs), meta)
        if node.op == "get_attr":
            return self._attribute(node)
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        if node.op == "output":
            return self.output(args[0], meta)
        if node.op != "call_function":
            raise ExportPassBaseError(
                f"a pass cannot run over a node of kind {node.op}: {node.format_node()}",
                hint="take the graph from an exported program",
            )
        self._target, self._old_value = node.target, node.meta.get("val")
        try:
            return self._call(node, args, dict(kwargs), meta)
        except ExportPassBaseError:
            raise
        except Exception as error:
            error.add_note(
                f"while {type(self).__name__} ran over {node.format_node()}, {source_location(node)}"
            )
            raise

    def _call(self, node: torch.fx.Node, args: Any, kwargs: dict[str, Any], meta: NodeMetadata) -> Any:
        target = node.target
        if target is operator.getitem:
            return self.call_getitem(args[0], args[1], meta)
        if is_delegate_call(node):
            return self.call_delegate(args[0], tuple(args[1:]), kwargs, meta)
        if isinstance(target, HigherOrderOperator):
            return self._control_flow(target, args, kwargs, meta)
        if isinstance(target, (EdgeOpOverload, OpOverload, OpOverloadPacket)) and not is_symbolic_op(target):
            return self.call_operator(target, tuple(args), kwargs, meta)
        if is_symbolic_op(target) or getattr(target, "__module__", None) in ("_operator", "math"):
            return self.call_sym(target, tuple(args), meta)  # type: ignore[arg-type]
        return self._fx(target, args, kwargs, meta)

    def _control_flow(
        self, target: HigherOrderOperator, args: Any, kwargs: dict[str, Any], meta: NodeMetadata
    ) -> Any:
        hooks = {
            "cond": self.call_cond,
            "map_impl": self.call_map,
            "while_loop": self.call_while,
            "scan": self.call_scan,
        }
        hook = hooks.get(target.__name__)
        if hook is None:
            return self._higher_order(target, tuple(args), meta, kwargs)
        return hook(*args, meta)  # type: ignore[operator]

    def _attribute(self, node: torch.fx.Node) -> Any:
        found = attribute_of(node)
        if isinstance(found, torch.nn.Module):
            self.tracer.prefer_name(found, str(node.target))
            return found
        proxy = self.tracer.create_proxy("get_attr", str(node.target), (), {})
        self.tracer.keep_attribute(str(node.target), found)
        proxy.node.meta = dict(node.meta)
        value = node.meta.get("val", found)
        proxy.node.meta["val"] = value
        attribute = ProxyValue(value, proxy)
        self.on_attr(attribute)
        return attribute

    def _fx(self, target: Any, args: Any, kwargs: dict[str, Any], meta: NodeMetadata) -> ProxyValue:
        proxy = self.tracer.create_proxy("call_function", target, *_proxies((tuple(args), kwargs)))
        # Computing a result again whose shape depends on data would invent new symbols.
        if target is self._target and depends_on_data(self._old_value):
            value = self._old_value
        else:
            assert self.fake_tensor_mode is not None
            with self.fake_tensor_mode, enable_python_dispatcher():
                value = evaluate(target, *tree_map(_data, (tuple(args), kwargs)))
        return self._with_meta(value, proxy, meta)

    def _higher_order(
        self, target: Any, args: tuple[Any, ...], meta: NodeMetadata, kwargs: dict[str, Any] | None = None
    ) -> ProxyValue:
        proxy = self.tracer.create_proxy("call_function", target, *_proxies((args, kwargs or {})))
        return self._with_meta(self._old_value, proxy, meta)

    def _with_meta(self, value: Any, proxy: torch.fx.Proxy, meta: NodeMetadata) -> ProxyValue:
        proxy.node.meta = {key: item for key, item in meta.data.items() if key != "tensor_meta"}
        proxy.node.meta["val"] = value
        return ProxyValue(value, proxy)

    def _own_inputs(self, body: torch.fx.GraphModule) -> tuple[Any, ...]:
        return tuple(self.inputs(body))

    def _body(self, body: torch.fx.GraphModule, inputs: tuple[Any, ...]) -> torch.fx.GraphModule:
        """The new form of a branch or loop body, under the name of the old one."""
        target, old_value = self._target, self._old_value
        made: torch.fx.GraphModule = self.call_submodule(body, inputs).graph_module
        self._target, self._old_value = target, old_value
        before, after = (_described(each) for each in (body, made))
        if before != after:
            raise ExportPassBaseError(
                f"a pass changed what a branch or loop body returns: {before} became {after}",
                expected=str(before),
                got=str(after),
                hint="keep dtype and shape of the results of a body",
            )
        self.tracer.prefer_name(made, self.tracer.name_of(body))
        return made


def _data(value: Any) -> Any:
    return value.data if isinstance(value, ProxyValue) else value


def _proxies(value: Any) -> Any:
    return tree_map(lambda leaf: leaf.proxy_or_node if isinstance(leaf, ProxyValue) else leaf, value)


def _described(body: torch.fx.GraphModule) -> list[str]:
    returned = tree_leaves(body.graph.output_node().args[0])
    values = [each.meta.get("val") if isinstance(each, torch.fx.Node) else each for each in returned]
    return [f"{v.dtype}{tuple(v.shape)}" if isinstance(v, torch.Tensor) else str(v) for v in values]


def _keep_inputs(
    before: torch.fx.GraphModule, after: torch.fx.GraphModule, *, are_symbols_kept: bool
) -> None:
    """Let the inputs of the new module state what those of the old one did; without `are_symbols_kept`,
    inputs whose extents vary may state another shape.
    """
    old, new = (
        [node for node in module.graph.nodes if node.op == "placeholder"] for module in (before, after)
    )
    if len(old) != len(new):
        raise ExportPassBaseError(
            f"a pass changed the number of inputs from {len(old)} to {len(new)}",
            hint="an ExportedProgramPassBase can change inputs, together with the signature",
        )
    for position, (old_node, new_node) in enumerate(zip(old, new, strict=True)):
        value, changed = old_node.meta.get("val"), new_node.meta.get("val")
        if isinstance(value, torch.Tensor) and not _is_of_shape(changed, value.shape):
            if not any(isinstance(extent, torch.SymInt) for extent in value.shape):
                raise ExportPassBaseError(f"a pass changed the shape of input {old_node.name}")
            if not are_symbols_kept:
                continue
            raise ExportPassBaseError(
                f"Input at position {position} did not preserve symbolic metadata: {old_node.name} has the "
                f"shape {tuple(value.shape)}, and a pass states another",
                hint="override should_preserve_symbolic_input_metadata where that is meant",
            )
        new_node.meta["val"] = value


def _is_of_shape(value: Any, shape: torch.Size) -> bool:
    """Whether `value` is a tensor of a shape, symbol for symbol. Extents are compared as expressions: `==`
    of a symbol and a number would bind the symbol to it.
    """
    return isinstance(value, torch.Tensor) and [*map(_expression, value.shape)] == [*map(_expression, shape)]


def _expression(extent: int | torch.SymInt) -> Any:
    return extent.node.expr if isinstance(extent, torch.SymInt) else extent
