"""Quantised inputs and outputs of a program, and the validator of calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed
from pteron.compat.executorch.exir.passes.quantize_io_pass import (
    QuantizeInputs,
    QuantizeOutputs,
    extract_io_quant_params,
    get_config_method_name,
    quantize_input,
)
from pteron.compat.executorch.exir.verification.arg_validator import (
    EdgeOpArgValidator,
    RunHigherOrderOperatorError,
)

import pteron
from pteron.exir import EdgeProgramManager, to_edge
from pteron.exir.edge.exir_ops import exir_ops

_q = torch.ops.quantized_decomposed
INPUT, OUTPUT = (0.05, 3, -128, 127, torch.int8), (0.1, -2, -128, 127, torch.int8)


class _Quantised(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        taken = _q.dequantize_per_tensor(_q.quantize_per_tensor(x, *INPUT), *INPUT)
        return _q.dequantize_per_tensor(_q.quantize_per_tensor(taken + y, *OUTPUT), *OUTPUT)


def _manager() -> EdgeProgramManager:
    return to_edge(torch.export.export(_Quantised(), (torch.ones(4), torch.ones(4))))


def test_a_program_takes_and_returns_quantised_tensors() -> None:
    given = torch.tensor([0.3, -1.0, 2.0, 5.0]), torch.tensor([1.0, 0.25, -0.5, 0.0])
    expected = _Quantised()(*given)
    manager = _manager()
    made = manager.transform(
        [QuantizeInputs(manager, [0], "forward"), QuantizeOutputs(manager, [0], "forward")]
    )
    file = pteron.load(made.to_executorch().buffer)
    quantised = _q.quantize_per_tensor(given[0], *INPUT)
    [result] = file.load_method("forward").execute([quantised.numpy(), given[1].numpy()])
    assert result.dtype.name == "int8"
    torch.testing.assert_close(_q.dequantize_per_tensor(torch.from_numpy(result), *OUTPUT), expected)
    names = [get_config_method_name("forward", "input", 0, key) for key in ("scale", "zp", "dtype")]
    values = [file.load_method(name).execute([])[0] for name in names]
    assert values == [0.05, 3, 1]
    assert {"forward_output0_quant_max", "forward_input0_scale"} <= manager.config_methods


def test_parameters_of_the_caller_are_quantised_again() -> None:
    program = _manager().exported_program()
    mine = {"scale": 0.02, "zp": 0, "dtype": torch.uint8}
    assert quantize_input(program, 0, mine) == (0.02, 0, 0, 255, torch.uint8)
    x, y = torch.tensor([0.3, 1.0, 2.0, 0.5]), torch.zeros(4)
    taken = _q.quantize_per_tensor(x, 0.02, 0, 0, 255, torch.uint8)
    torch.testing.assert_close(program.module()(taken, y), _Quantised()(x, y))
    assert (
        quantize_input(
            _manager().exported_program(),
            0,
            dict(zip(("scale", "zp"), INPUT, strict=False)) | {"dtype": torch.int8},
        )
        == INPUT
    )


@pytest.mark.parametrize(
    ("index", "qparams", "says"),
    [
        (1, None, "not used by a quantize op"),
        (0, {"scale": 1.0, "zp": 0, "dtype": torch.int32}, "Only limited data types"),
    ],
)
def test_what_cannot_be_quantised_is_refused(index: int, qparams: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        quantize_input(_manager().exported_program(), index, qparams)
    manager = to_edge(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))
    quantize = QuantizeOutputs(manager, [0])
    with pytest.raises(ValueError, match="not a dequantize op"):
        quantize(manager.exported_program().graph_module)


def test_parameters_are_told_and_the_program_is_left_alone() -> None:
    manager = _manager()
    before = str(manager.exported_program().graph)
    found = extract_io_quant_params(manager)
    assert found["inputs"] == {
        "x": {"scale": 0.05, "zero_point": 3, "quant_min": -128, "quant_max": 127, "dtype": 1}
    }
    [output] = found["outputs"].values()
    assert (output["scale"], output["zero_point"]) == (0.1, -2)
    assert str(manager.exported_program().graph) == before


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_the_validator_notes_calls_that_no_kernel_takes() -> None:
    class Sum(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + x

    graph = to_edge(torch.export.export(Sum(), (torch.ones(2),))).exported_program().graph_module
    validator = EdgeOpArgValidator(graph)
    validator.run(torch.ones(2))
    assert validator.violating_ops == {}
    validator.run(torch.ones(2, dtype=torch.complex32))
    [(op, (types, node))] = validator.violating_ops.items()
    assert op is node.target is exir_ops.edge.aten.add.Tensor
    assert types == dict.fromkeys(("self", "other", "__ret_0"), torch.complex32)


def test_the_validator_does_not_run_branches() -> None:
    class Branches(torch.nn.Module):
        def forward(self, flag: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(flag, torch.sin, torch.cos, (x,))

    inputs = torch.tensor(True), torch.ones(2)
    graph = to_edge(torch.export.export(Branches(), inputs)).exported_program().graph_module
    with pytest.raises(RunHigherOrderOperatorError):
        EdgeOpArgValidator(graph).run(*inputs)
