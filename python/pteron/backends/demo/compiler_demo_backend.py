"""`BackendWithCompilerDemo`, compile half: from an edge program to the blob and wiring of
`compiler_demo_format`.
"""

from __future__ import annotations

from typing import Any, final

import torch
import torch.utils._pytree as pytree
from torch.export.exported_program import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from pteron.backends.demo.compiler_demo_format import (
    DemoConstant,
    DemoInstruction,
    DemoOperation,
    DemoWiring,
    constant_key,
    wiring_key,
    write_blob,
    write_wiring,
)
from pteron.exir.backend.backend_details import BackendDetails, PreprocessResult
from pteron.exir.backend.compile_spec import CompileSpec
from pteron.exir.backend.named_data_store import NamedDataStore
from pteron.exir.edge.source_location import source_location

#: Operators that lowering accepts. The runtime executes sin, mm and add; the rest are here to show what
#: happens when a backend finds out at run time only.
ACCEPTED_OPERATORS = frozenset(
    {
        "aten.sin.default",
        "aten.mm.default",
        "aten.add.Tensor",
        "aten.linear.default",
        "aten.scaled_dot_product_attention.default",
        "aten.upsample_nearest2d.vec",
        "aten.tan.default",
    }
)


@final
class BackendWithCompilerDemo(BackendDetails):
    """Lowers sin, mm and add; see `compiler_demo_format` for what it writes and what the runtime computes."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Writes the program as text.

        Raises:
            RuntimeError: the program holds an operator that the demo does not accept, or updates its own
                state.
        """
        _refuse_state(edge_program)
        store = NamedDataStore()
        writer = _Writer(edge_program, store)
        blob = write_blob(writer.instructions)
        store.add_named_data(wiring_key(blob), write_wiring(writer.wiring()))
        return PreprocessResult(
            processed_bytes=blob,
            debug_handle_map={
                instruction.debug_handle: (instruction.debug_handle,)
                for instruction in writer.instructions
                if instruction.debug_handle >= 0
            },
            data_store_output=store.get_named_data_store_output(),
            _delegate_info_meta="test",
        )


class _Writer:
    """Numbers the values of a program and collects its instructions."""

    def __init__(self, program: ExportedProgram, store: NamedDataStore) -> None:
        self.instructions: list[DemoInstruction] = []
        self._operations: list[DemoOperation] = []
        self._constants: list[DemoConstant] = []
        self._value_of: dict[torch.fx.Node, int] = {}
        specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
        inputs = [node for node in placeholders if specs[node.name].kind is InputKind.USER_INPUT]
        self._inputs = len(inputs)
        for node in inputs:
            self._value_of[node] = len(self._value_of)
        for node in placeholders:
            if node not in self._value_of and node.users:
                self._add_constant(node, _tensor(program, str(specs[node.name].target)), store)
        for node in program.graph.nodes:
            if node.op == "call_function":
                self._add_instruction(node)
            elif node.op not in ("placeholder", "output", "get_attr"):
                raise RuntimeError(
                    f"{node.op} {node.target} is not supported in backend BackendWithCompilerDemo"
                )
        leaves = pytree.tree_leaves(program.graph.output_node().args[0])
        self._outputs = tuple(self._value_of[leaf] for leaf in leaves if isinstance(leaf, torch.fx.Node))

    def wiring(self) -> DemoWiring:
        return DemoWiring(self._inputs, self._outputs, tuple(self._operations), tuple(self._constants))

    def _add_constant(self, node: torch.fx.Node, tensor: torch.Tensor, store: NamedDataStore) -> None:
        data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        key = constant_key(data)
        store.add_named_data(key, data, alignment=16)
        self._value_of[node] = len(self._value_of)
        self._constants.append(
            DemoConstant(key, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        )

    def _add_instruction(self, node: torch.fx.Node) -> None:
        name = str(getattr(node.target, "__name__", node.target))
        if name not in ACCEPTED_OPERATORS:
            raise RuntimeError(
                f"{node.op} {name} is not supported in backend BackendWithCompilerDemo; it comes from "
                f"{source_location(node)}"
            )
        value = node.meta["val"]
        self.instructions.append(
            DemoInstruction(
                operator=name,
                # Commas end a field of the blob; Max(1, s0) has one.
                numel=str(value.numel()).replace(" ", "").replace(",", ";"),
                dtype=str(value.dtype),
                debug_handle=node.meta.get("debug_handle", -1),
            )
        )
        arguments = (self._argument(argument) for argument in pytree.tree_leaves(node.args))
        self._operations.append(DemoOperation(tuple(a for a in arguments if a is not None), _alpha(node)))
        self._value_of[node] = len(self._value_of)

    def _argument(self, argument: Any) -> int | float | None:
        if isinstance(argument, torch.fx.Node):
            return self._value_of[argument]
        # None, strings and so on are arguments of operators that the runtime refuses anyway.
        return float(argument) if isinstance(argument, (int, float)) else None


def _alpha(node: torch.fx.Node) -> float:
    alpha = node.kwargs.get("alpha", 1)
    if not isinstance(alpha, (int, float)):
        raise RuntimeError(
            f"{node.op} {node.target}: a dynamic alpha is not supported in backend BackendWithCompilerDemo; "
            "it comes "
            f"from {source_location(node)}"
        )
    return alpha


def _tensor(program: ExportedProgram, target: str) -> torch.Tensor:
    found = program.state_dict[target] if target in program.state_dict else program.constants[target]
    if not isinstance(found, torch.Tensor):
        raise RuntimeError(f"constant {target}: expected a tensor, got {type(found).__name__}")
    return found


def _refuse_state(program: ExportedProgram) -> None:
    for spec in program.graph_signature.output_specs:
        if spec.kind not in (OutputKind.USER_OUTPUT, OutputKind.USER_INPUT_MUTATION):
            raise RuntimeError(
                f"updating {spec.target} is not supported in backend BackendWithCompilerDemo: it keeps no "
                "state. "
                "Leave the buffer out of the partition"
            )
