"""`BackendWithDelegateMappingDemo`: how a backend reports steps that are fused from, or split out of, model
operators.

Convolution and relu become one step with two debug handles; tan becomes three steps (sin, cos, div) that
share one; every other operator goes into the delegate without a step. The blob lists the steps: ``<count>#``
and then ``<step>,<id>,`` for each. The run half reports an event for each step and computes nothing.
"""

from __future__ import annotations

from typing import final

import torch
from torch.export.exported_program import ExportedProgram

from pteron.exir.backend.backend_details import BackendDetails, PreprocessResult
from pteron.exir.backend.compile_spec import CompileSpec
from pteron.exir.backend.delegate_mapping_builder import DelegateMappingBuilder
from pteron.exir.edge.exir_ops import exir_ops
from pteron.exir.edge.source_location import source_location

_TAN_STEPS = ("sin_decomp_from_tan", "cos_decomp_from_tan", "div_decomp_from_tan")


class DummyOp:
    """One step of the blob: its name and the id under which its events are reported."""

    def __init__(self, op: str, delegate_debug_identifier: int | str) -> None:
        self.op = op
        self.delegate_debug_identifier = delegate_debug_identifier
        self.__name__ = op

    def __repr__(self) -> str:
        return self.op

    def serialize(self) -> str:
        """The step as it stands in the blob."""
        return f"{self.op},{self.delegate_debug_identifier},"


@final
class BackendWithDelegateMappingDemo(BackendDetails):
    """Has steps for convolution followed by relu, and for tan."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Writes the list of steps and the map from their ids to debug handles.

        Raises:
            RuntimeError: the program calls a module, which no edge program does.
        """
        aten = exir_ops.edge.aten
        mapping = DelegateMappingBuilder(generated_identifiers=True)
        steps: list[DummyOp] = []
        for node in edge_program.graph.nodes:
            if node.op in ("placeholder", "output", "get_attr"):
                continue
            if node.target == aten.tan.default:
                steps += [
                    DummyOp(name, mapping.insert_delegate_mapping_entry(nodes=node)) for name in _TAN_STEPS
                ]
            elif node.target == aten.relu.default and node.args[0].target == aten.convolution.default:
                identifier = mapping.insert_delegate_mapping_entry(nodes=[node.args[0], node])
                steps.append(DummyOp("conv_relu_op", identifier))
            elif node.op != "call_function":
                raise RuntimeError(
                    f"{node.op} is not supported in backend BackendWithDelegateMappingDemo; it comes from "
                    f"{source_location(node)}"
                )
        return PreprocessResult(
            processed_bytes=f"{len(steps)}#{''.join(step.serialize() for step in steps)}".encode(),
            debug_handle_map=mapping.get_delegate_mapping(),
        )

    @staticmethod
    def get_test_model_and_inputs() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
        """Convolution, relu, convolution, relu, tan, and a random input of shape 4x3x64x64."""
        return _ConvolutionsAndTan(), (torch.randn(4, 3, 64, 64),)


class _Convolutions(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 16, kernel_size=3, padding=1)
        self.relu1 = torch.nn.ReLU()
        self.conv2 = torch.nn.Conv2d(16, 32, kernel_size=3, padding=1)
        self.relu2 = torch.nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.relu2(self.conv2(self.relu1(self.conv1(x))))
        return result


class _ConvolutionsAndTan(torch.nn.Module):
    # Names of modules are those of the peer's model: they stand in debug information.
    def __init__(self) -> None:
        super().__init__()
        self.conv_layer = _Convolutions()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tan(self.conv_layer(x))
