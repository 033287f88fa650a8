"""Put the tensors of delegates on the devices that their compile specs name."""

from __future__ import annotations

import copy
import operator
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from pteron.errors import ExportError
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.delegate_call import is_delegate_call, lowered_module_of
from pteron.exir.edge.device_copies import (
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    NAMESPACE,
    is_device_copy,
)
from pteron.exir.edge.edge_op_overload import edge_op_by_name
from pteron.exir.edge.target_device import CPU, Device, target_device
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.memory.memory_planning_pass import MEMORY_ID
from pteron.exir.memory.spec_lifetimes import specs_in
from pteron.exir.passes.propagate_device_config import PropagateDeviceConfig


class PropagateDevicePass(PassBase):
    """Puts what a delegate reads and gives on its device, in place, over one graph with specs.

    The device stands in the compile spec `target_device` of the lowered module: `b"cuda:0"`. With
    `enable_non_cpu_memory_planning` each tensor that the delegate reads is copied to the device before the
    call, each that it gives is copied back behind it; a tensor that goes from one delegate to another on the
    same device stays there. Without it the tensors of the call are said to be on the device, and memory
    planning puts them into the host's memory like all others.

    `skip_h2d_for_method_inputs`, `skip_d2h_for_method_outputs`: see `PropagateDeviceConfig`.

    Raises:
        ValueError: a copy is skipped without `enable_non_cpu_memory_planning`.
    """

    def __init__(
        self,
        skip_h2d_for_method_inputs: bool = False,
        skip_d2h_for_method_outputs: bool = False,
        enable_non_cpu_memory_planning: bool = False,
    ) -> None:
        super().__init__()
        self.skip_h2d_for_method_inputs = skip_h2d_for_method_inputs
        self.skip_d2h_for_method_outputs = skip_d2h_for_method_outputs
        self.enable_non_cpu_memory_planning = enable_non_cpu_memory_planning
        if (skip_h2d_for_method_inputs or skip_d2h_for_method_outputs) and not enable_non_cpu_memory_planning:
            raise ValueError(
                "skip_h2d_for_method_inputs and skip_d2h_for_method_outputs are only meaningful when "
                "enable_non_cpu_memory_planning=True: without it nothing is copied between host and device"
            )

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Run over one graph, whose placeholders are the method's inputs.

        Raises:
            ExportError: an input whose copy is skipped has other readers.
            ValueError: a compile spec names no device.
        """
        inputs = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
        return PassResult(graph_module, self.run(graph_module, inputs))

    def run(
        self, module: torch.fx.GraphModule, inputs: Collection[torch.fx.Node], *, is_body: bool = False
    ) -> bool:
        """As `call`; `inputs`: the placeholders that the caller of the method gives. A body of control flow
        gives nothing to that caller. Returns whether a delegate names a device.
        """
        changed = False
        for call in [node for node in module.graph.nodes if is_delegate_call(node)]:
            device = target_device(lowered_module_of(call))
            if device is None or device == CPU:
                continue
            changed = True
            if not self.enable_non_cpu_memory_planning:
                _say_device(call, device)
                continue
            self._move_operands(call, device, inputs)
            _DeviceResults(call, device, may_stay=self.skip_d2h_for_method_outputs and not is_body).move()
        if changed:
            for node in reversed(list(module.graph.nodes)):
                if is_device_copy(node, DEVICE_TO_HOST) and not node.users:
                    module.graph.erase_node(node)
            module.graph.lint()
            module.recompile()
        return changed

    def _move_operands(self, call: torch.fx.Node, device: Device, inputs: Collection[torch.fx.Node]) -> None:
        for position, operand in enumerate(call.args):
            spec = operand.meta.get("spec") if isinstance(operand, torch.fx.Node) else None
            if not isinstance(operand, torch.fx.Node) or not isinstance(spec, TensorSpec):
                continue
            if self.skip_h2d_for_method_inputs and operand in inputs:
                _require_one_reader(operand)
                spec.device, spec.device_index = device
                continue
            there = _source_on(operand, device)
            call.update_arg(position, there or _copy_before(call, operand, spec, device))


def propagate_devices(
    program: ExportedProgram,
    method: str,
    config: PropagateDeviceConfig,
    is_enabled: bool,
    kernels: Collection[str],
) -> None:
    """Put what delegates read and give on the devices that their compile specs name, with copies from and to
    the host, in place.

    The compile spec is `target_device`; a program whose delegates have none stays as it is. `program` has
    specs. Delegates in branches and loops get their copies there.
    """
    skips_inputs, skips_outputs = config.of_method(method)
    devices = PropagateDevicePass(skips_inputs, skips_outputs, is_enabled)
    graph = program.graph_module.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    given = [
        node
        for spec, node in zip(program.graph_signature.input_specs, placeholders, strict=True)
        if spec.kind is InputKind.USER_INPUT
    ]
    changed = [
        devices.run(module, given, is_body=module is not program.graph_module)
        for module in graph_modules(program.graph_module)
    ]
    if any(changed) and is_enabled:
        _require_copies(program, method, kernels)


def _require_copies(program: ExportedProgram, method: str, kernels: Collection[str]) -> None:
    nodes = [node for module in graph_modules(program.graph_module) for node in module.graph.nodes]
    for name in (HOST_TO_DEVICE, DEVICE_TO_HOST):
        needed = f"{NAMESPACE}::{name}.out"
        if needed not in kernels and any(is_device_copy(node, name) for node in nodes):
            raise ExportError(
                f"method {method!r} copies tensors between the host and a device, and the target has no "
                f"kernel {needed}",
                method=method,
                operator=needed,
                hint="add it to ExecutorchBackendConfig(kernels=...), or plan all memory on the CPU: "
                "enable_non_cpu_memory_planning=False",
            )


def _say_device(call: torch.fx.Node, device: Device) -> None:
    for node in (*call.args, call):
        if isinstance(node, torch.fx.Node):
            for spec in specs_in(node.meta.get("spec")):
                spec.device, spec.device_index = device


def _require_one_reader(node: torch.fx.Node) -> None:
    if len(node.users) == 1:
        return
    raise ExportError(
        f"skip_h2d_for_method_inputs=True requires placeholder '{node.name}' to have exactly one user, but "
        f"it has {len(node.users)} users, which cannot all read it on the delegate's device",
        argument="skip_h2d_for_method_inputs",
        expected="one user",
        got=f"{len(node.users)} users",
        hint="leave skip_h2d_for_method_inputs out, or give the delegate an input of its own",
    )


def _on(spec: TensorSpec, device: Device) -> TensorSpec:
    """A tensor like that of `spec` in memory of its own on a device."""
    made = copy.copy(spec)
    made.init_mem_planning_fields()
    made.base = None
    made.is_constant = made.is_caller_owned = made.is_state = False
    made.device, made.device_index = device
    return made


def _source_on(operand: torch.fx.Node, device: Device) -> torch.fx.Node | None:
    """What `operand` is a copy of, where that is on `device` already."""
    source = operand.args[0] if is_device_copy(operand, DEVICE_TO_HOST) else None
    if not isinstance(source, torch.fx.Node):
        return None
    spec = source.meta["spec"]
    return source if (spec.device, spec.device_index) == device else None


def _copy_before(
    call: torch.fx.Node, operand: torch.fx.Node, spec: TensorSpec, device: Device
) -> torch.fx.Node:
    with call.graph.inserting_before(call):
        made = call.graph.call_function(edge_op_by_name(NAMESPACE, HOST_TO_DEVICE, "default"), (operand,))
    # Of the copy only its value is the operand's; where it comes from is the call.
    kept = ("stack_trace", "nn_module_stack", "from_node", "source_fn_stack")
    made.meta = {name: call.meta[name] for name in kept if name in call.meta}
    made.meta |= {name: operand.meta[name] for name in ("val", "tensor_meta") if name in operand.meta}
    made.meta["spec"] = _on(spec, device)
    return made


@dataclass
class _DeviceResults:
    """The results of one delegate call. `may_stay`: what only the method returns is left on the device."""

    call: torch.fx.Node
    device: Device
    may_stay: bool

    def move(self) -> None:
        """Say that the results are on the device, and copy each that somebody reads to the host."""
        given = self.call.meta.get("spec")
        if isinstance(given, TensorSpec):
            self.call.meta["spec"] = self._result(given, [self.call])
        elif isinstance(given, (list, tuple)):
            picks = [node for node in self.call.users if node.target is operator.getitem]
            moved = [
                self._result(spec, [node for node in picks if node.args[1] == index])
                for index, spec in enumerate(given)
            ]
            self.call.meta["spec"] = type(given)(moved)

    def _result(self, spec: Any, nodes: list[torch.fx.Node]) -> Any:
        """The spec of one result, which `nodes` stand for."""
        if not isinstance(spec, TensorSpec):
            return spec
        readers = {user for node in nodes for user in node.users}
        if self.may_stay and readers and all(user.op == "output" for user in readers):
            spec.device, spec.device_index = self.device
            return spec
        there = _on(spec, self.device)
        for node in nodes:
            node.meta["spec"] = there
        if readers:
            self._copy_behind(nodes, spec)
        return there

    def _copy_behind(self, nodes: list[torch.fx.Node], spec: TensorSpec) -> None:
        # The copy takes over the spec, which views, branches and the method's results refer to.
        first = nodes[0]
        with first.graph.inserting_after(first):
            made = first.graph.call_function(edge_op_by_name(NAMESPACE, DEVICE_TO_HOST, "default"), (first,))
        made.meta = {name: item for name, item in first.meta.items() if name != "delegation_tag"}
        made.meta["spec"] = spec
        for node in nodes:
            node.meta.pop(MEMORY_ID, None)
            node.replace_all_uses_with(made, delete_user_cb=lambda user: user is not made)
