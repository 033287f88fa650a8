"""Mistakes in quantising are errors at export that name module and line."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pteron
from pteron.errors import ExportError, UnsupportedProgramError
from pteron.exir import to_edge

pytest.importorskip("torchao", reason="needs torchao")

from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from pteron.quant import PteronQuantizer

library = torch.ops.quantized_decomposed


class Model(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x)))


class Quantised(nn.Module):
    """Quantise and dequantise as written."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("scales", torch.tensor([0.5, 0.0, 0.25, 1.0]))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x) + self.scales.sum()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def prepared() -> Any:
    """The model with observers."""
    captured = torch.export.export(Model().eval(), (torch.randn(2, 4),)).module()
    return prepare_pt2e(captured, PteronQuantizer())


def refused(model: nn.Module) -> UnsupportedProgramError:
    """The error of `to_edge`."""
    with pytest.raises(UnsupportedProgramError) as raised:
        to_edge(torch.export.export(model, (torch.randn(2, 4),)))
    return raised.value


def per_tensor(x: Tensor, scale: float, low: int = -128, dtype: torch.dtype = torch.int8) -> Tensor:
    """To integers and back."""
    q = library.quantize_per_tensor(x, scale, 0, low, 127, dtype)
    return library.dequantize_per_tensor(q, scale, 0, low, 127, dtype)


def test_calibration_that_never_ran_is_named() -> None:
    error = refused(convert_pt2e(prepared()))
    (problem,) = error.problems
    assert "calibration never ran: every activation has the scale 1 and the zero point 0" in str(error)
    assert problem.source_line.startswith("tests/quant/test_export_errors.py:")
    assert "(module up)" in problem.source_line


def test_one_scale_of_one_is_no_mistake() -> None:
    model = prepared()
    model(torch.randn(2, 4))
    to_edge(torch.export.export(convert_pt2e(model), (torch.randn(2, 4),)))
    to_edge(torch.export.export(Quantised(lambda x: per_tensor(x, 1.0)), (torch.randn(2, 4),)))


def test_observers_that_were_left_in_are_named_before_the_capture() -> None:
    with pytest.raises(ExportError, match="observers were left in: ") as raised:
        pteron.export(prepared(), (torch.randn(2, 4),), report=False)
    assert raised.value.source_line is not None
    assert "(module up)" in raised.value.source_line


def test_fake_quantisation_that_was_left_in_is_named() -> None:
    class Trained(Model):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127))

    error = refused(Trained())
    assert "an observer or fake quantisation was left in; convert it first" in str(error)
    assert "tests/quant/test_export_errors.py:" in str(error.source_line)


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda x: per_tensor(x, 0.0), "scale is 0.0; expected finite numbers above 0"),
        (lambda x: per_tensor(x, float("nan")), "scale is nan; expected finite numbers above 0"),
        (lambda x: per_tensor(x, 0.1, -200), "the range -200 to 127 does not fit int8"),
        (
            lambda x: library.dequantize_per_tensor(
                library.quantize_per_tensor(x, 0.1, 0, -128, 127, torch.int8), 0.2, 0, -128, 127, torch.int8
            ),
            "mixed schemes: it dequantises by scale 0.2 and zero point 0 what quantize_per_tensor quantised "
            "by 0.1 and 0",
        ),
    ],
)
def test_wrong_numbers_are_named(function: Callable[[Tensor], Tensor], what: str) -> None:
    error = refused(Quantised(function))
    assert what in str(error)
    assert all("tests/quant/test_export_errors.py:" in problem.source_line for problem in error.problems)


def test_one_scale_of_many_is_named() -> None:
    class Channels(Quantised):
        def forward(self, x: Tensor) -> Tensor:
            zeros = torch.zeros(4, dtype=torch.int64)
            return library.quantize_per_channel(x, self.scales, zeros, 1, -128, 127, torch.int8)

    assert "scales is 0.0 (number 1 of 4); expected finite numbers above 0" in str(refused(Channels(abs)))


def test_a_stated_element_type_must_be_that_of_the_elements() -> None:
    def mixed(x: Tensor) -> Tensor:
        q = library.quantize_per_tensor(x, 0.1, 0, 0, 127, torch.uint8)
        return library.dequantize_per_tensor(q, 0.1, 0, 0, 127, torch.int8)

    with pytest.raises((UnsupportedProgramError, AssertionError)) as raised:
        to_edge(torch.export.export(Quantised(mixed), (torch.randn(2, 4),)))
    assert "uint8" in str(raised.value)
