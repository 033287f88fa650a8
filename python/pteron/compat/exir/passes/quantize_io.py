"""Passes that let a quantised program take and return quantised tensors, and what their numbers are."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx.passes.infra.pass_base import PassResult

from pteron.compat.exir.tensor import scalar_type_enum
from pteron.exir.edge.exir_ops import exir_ops
from pteron.exir.passes.export_pass import ExportPass
from pteron.exir.program import EdgeProgramManager

__all__ = [
    "QuantizeInputs",
    "QuantizeOutputs",
    "extract_io_quant_params",
    "get_config_method_name",
    "quantize_input",
    "quantize_output",
]

_log = logging.getLogger(__name__)

_EDGE, _ATEN = exir_ops.edge.quantized_decomposed, torch.ops.quantized_decomposed
#: Quantise → dequantise, of the edge dialect and of PyTorch.
_DEQUANTIZE: dict[Any, Any] = {
    _EDGE.quantize_per_tensor.default: _EDGE.dequantize_per_tensor.default,
    _ATEN.quantize_per_tensor.default: _ATEN.dequantize_per_tensor.default,
}
_REQUANTIZED = (torch.int8, torch.uint8, torch.bool, torch.int16, torch.uint16)
_KEYS = ("scale", "zp", "quant_min", "quant_max", "dtype")


def quantize_input(
    exported_program: ExportedProgram, input_index: int, qparams: Mapping[str, Any] | None = None
) -> tuple[Any, ...]:
    """Let a program take its input `input_index` quantised, in place.

    Args:
        exported_program: its first use of the input quantises it.
        input_index: among the inputs of the user.
        qparams: `scale`, `zp` and `dtype` of the quantised input; None for those of the program. With others
            the input is quantised again in the program.

    Returns:
        (scale, zero point, smallest and largest number, dtype) that the caller is to quantise with.

    Raises:
        ValueError: somebody else uses the input, or the two element types have no way between them.
    """
    name = exported_program.graph_signature.user_inputs[input_index]
    [placeholder] = [
        node for node in exported_program.graph.nodes if node.op == "placeholder" and node.name == name
    ]
    if len(placeholder.users) != 1:
        raise ValueError(f"Input {input_index} has more than one users")
    quantize = next(iter(placeholder.users))
    if quantize.target not in _DEQUANTIZE:
        raise ValueError(f"Input {input_index} is not used by a quantize op. It's used by {quantize.target}")
    parameters: tuple[Any, ...] = tuple(quantize.args[1:])
    given = None if qparams is None else _other_parameters(qparams, parameters)
    if given is None:
        target: Any = quantize.target
        placeholder.meta["val"] = target(placeholder.meta["val"], *parameters)
        quantize.replace_all_uses_with(placeholder)
    else:
        parameters = given
        with exported_program.graph.inserting_before(quantize):
            dequantize = exported_program.graph.call_function(
                _DEQUANTIZE[quantize.target], (placeholder, *parameters)
            )
        names = ("scale", "zero_point", "qmin", "qmax", "dtype")
        dequantize.meta["input_qparams"] = [dict(zip(names, parameters, strict=True))]
        dequantize.meta["val"] = placeholder.meta["val"]
        placeholder.meta["val"] = placeholder.meta["val"].to(parameters[4])
        quantize.replace_input_with(placeholder, dequantize)
    _log.info("input %d is taken quantised: %s", input_index, parameters)
    exported_program.graph.eliminate_dead_code()
    return parameters


def _other_parameters(given: Mapping[str, Any], own: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The parameters given in full, where they are not the program's own."""
    if not {"scale", "zp", "dtype"} <= given.keys():
        raise AssertionError("dtype/scale/zp must be specified in qparam for input requantization")
    dtype, wanted = given["dtype"], own[4]
    is_same = (
        dtype == wanted
        and math.isclose(given["scale"], own[0], rel_tol=1e-5, abs_tol=1e-8)
        and given["zp"] == own[1]
    )
    if is_same:
        return None
    if dtype != wanted and not {dtype, wanted} <= set(_REQUANTIZED):
        raise ValueError(
            f"Only limited data types are supported for requantization, but got {dtype} -> {wanted}"
        )
    limits = torch.iinfo(dtype)
    return given["scale"], given["zp"], limits.min, limits.max, dtype


def quantize_output(exported_program: ExportedProgram, output_index: int) -> tuple[Any, ...]:
    """Let a program return its output `output_index` quantised, in place.

    Returns:
        (scale, zero point, smallest and largest number, dtype) of the output.

    Raises:
        ValueError: there is no such output, or the program does not dequantise it last.
    """
    output = exported_program.graph.output_node()
    results: list[Any] = list(output.args[0])
    if output_index >= len(results):
        raise ValueError(f"{len(results)} outputs available, output index out of bounds: {output_index}")
    dequantize = results[output_index]
    if dequantize.target not in _DEQUANTIZE.values():
        raise ValueError(f"Output {output_index} is not a dequantize op")
    results[output_index] = dequantize.args[0]
    output.args = (results,)
    parameters = tuple(dequantize.args[1:6])
    exported_program.graph.eliminate_dead_code()
    _log.info("output %d is returned quantised: %s", output_index, parameters)
    return parameters


def get_config_method_name(
    prefix: str | None = "forward", arg_type: str = "input", index: int = 0, key: str = "scale"
) -> str:
    """The name of the method that returns a number of an input or output: `forward_input0_scale`."""
    if arg_type not in ("input", "output"):
        raise AssertionError("arg_type must be either input or output")
    if index < 0:
        raise AssertionError("index must be non-negative")
    if key not in _KEYS:
        raise AssertionError(f"key must be one of {', '.join(_KEYS)}")
    return f"{'' if prefix is None else prefix + '_'}{arg_type}{index}_{key}"


class _QuantizeInterface(ExportPass):
    """What the two passes share: the program, and methods of its manager that return the parameters."""

    _kind = ""

    def __init__(
        self,
        edge_program_manager: EdgeProgramManager | None,
        method_name: str | None,
        exported_program: ExportedProgram | None,
    ) -> None:
        super().__init__()
        self.edge_program_manager = edge_program_manager
        self.param_prefix_name = method_name
        self.exported_program = exported_program

    def _program(self) -> ExportedProgram:
        if self.edge_program_manager is not None:
            return self.edge_program_manager.exported_program()
        if self.exported_program is None:
            raise ValueError("give an edge_program_manager or an exported_program")
        return self.exported_program

    def _changed(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """The result, which the manager that the pass was made with gets too: `transform` gives it back its
        own program otherwise.
        """
        manager = self.edge_program_manager
        if manager is not None:
            manager._edge_programs["forward"] = copy.copy(manager.exported_program())
        return PassResult(graph_module, True)

    def edge_manager_update_quant_config_method(self, idx: int, quant_args: Sequence[Any]) -> None:
        """Add methods to the manager, where there is one, that return the parameters of a value."""
        if self.edge_program_manager is None:
            return
        *numbers, dtype = quant_args
        for key, value in zip(_KEYS, (*numbers, scalar_type_enum(dtype)), strict=True):
            name = get_config_method_name(self.param_prefix_name, self._kind, idx, key)
            self.edge_program_manager._config_methods[name] = value


class QuantizeInputs(_QuantizeInterface):
    """Let inputs of a program be quantised tensors, and add methods that return how they are quantised.

    Args:
        edge_program_manager: the program's manager; it is changed.
        quantized_inputs_idx: which inputs, or a dict from them to parameters as `quantize_input` takes them.
        method_name: the beginning of the methods' names.
        exported_program: the program, where there is no manager.
    """

    _kind = "input"

    def __init__(
        self,
        edge_program_manager: EdgeProgramManager | None,
        quantized_inputs_idx: Mapping[int, Mapping[str, Any] | None] | Sequence[int],
        method_name: str | None = None,
        exported_program: ExportedProgram | None = None,
    ) -> None:
        super().__init__(edge_program_manager, method_name, exported_program)
        self.quantized_inputs_idx_dict: dict[int, Mapping[str, Any] | None] = (
            dict(quantized_inputs_idx)
            if isinstance(quantized_inputs_idx, Mapping)
            else dict.fromkeys(quantized_inputs_idx)
        )
        self.quant_args: dict[int, tuple[Any, ...]] = {}

    def edge_manager_update_quant_config_methods_all(self) -> None:
        """Add the methods of all inputs again."""
        for index, parameters in self.quant_args.items():
            self.edge_manager_update_quant_config_method(index, parameters)

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Run over the program that the pass was made with."""
        for index, qparams in self.quantized_inputs_idx_dict.items():
            self.quant_args[index] = quantize_input(self._program(), index, qparams)
            self.edge_manager_update_quant_config_method(index, self.quant_args[index])
        return self._changed(graph_module)


class QuantizeOutputs(_QuantizeInterface):
    """Let outputs of a program be quantised tensors; arguments as for `QuantizeInputs`."""

    _kind = "output"

    def __init__(
        self,
        edge_program_manager: EdgeProgramManager | None,
        quantized_outputs_idx_list: Sequence[int],
        method_name: str | None = None,
        exported_program: ExportedProgram | None = None,
    ) -> None:
        super().__init__(edge_program_manager, method_name, exported_program)
        self.quantized_outputs_idx_list = list(quantized_outputs_idx_list)
        self.dequant_args: dict[int, tuple[Any, ...]] = {}

    def edge_manager_update_quant_config_methods_all(self) -> None:
        """Add the methods of all outputs again."""
        for index, parameters in self.dequant_args.items():
            self.edge_manager_update_quant_config_method(index, parameters)

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Run over the program that the pass was made with."""
        for index in self.quantized_outputs_idx_list:
            self.dequant_args[index] = quantize_output(self._program(), index)
            self.edge_manager_update_quant_config_method(index, self.dequant_args[index])
        return self._changed(graph_module)


def extract_io_quant_params(
    edge_prog: EdgeProgramManager, *, input_idxs: Sequence[int] = (0,), output_idxs: Sequence[int] = (0,)
) -> dict[str, dict[str, dict[str, Any]]]:
    """How inputs and outputs of `forward` are quantised: "inputs" and "outputs" → name of the node →
    `scale`, `zero_point`, `quant_min`, `quant_max` and `dtype` (its number). The manager given is left as
    it is.
    """
    kinds: list[tuple[str, QuantizeInputs | QuantizeOutputs]] = []
    kinds += [("inputs", QuantizeInputs(None, [index], None, None)) for index in input_idxs]
    kinds += [("outputs", QuantizeOutputs(None, [index], None, None)) for index in output_idxs]
    program = EdgeProgramManager(edge_prog.exported_program()).transform([]).exported_program()
    found: dict[str, dict[str, dict[str, Any]]] = {"inputs": {}, "outputs": {}}
    names = ("scale", "zero_point", "quant_min", "quant_max")
    for kind, each in kinds:
        each.exported_program = program
        each.call(program.graph_module)
        made = each.quant_args if isinstance(each, QuantizeInputs) else each.dequant_args
        for index, (*numbers, dtype) in made.items():
            node = (
                program.graph_signature.user_inputs[index]
                if kind == "inputs"
                else program.graph.output_node().args[0][index].name
            )
            found[kind][str(node)] = {
                **dict(zip(names, numbers, strict=True)),
                "dtype": scalar_type_enum(dtype),
            }
    return found
