"""`quantize`: one call from a float model to a quantised one."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from pteron.errors import ExportError
from pteron.quant.layer_errors import relative_error
from pteron.quant.report import QuantizationReport
from pteron.quant.static_flow import quantize_static
from pteron.quant.weight_flow import quantize_weights

Scheme = Literal["int8", "int8-dynamic", "int4-weight", "int4-dynamic", "auto"]

LAYER_LIMIT = 0.1
"""The error of a layer, as a part of its result, above which `quantize` does not quantise it so."""

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d)


def quantize(
    model: nn.Module,
    example_inputs: Sequence[Any],
    calibration: Iterable[Sequence[Any]] | None = None,
    scheme: Scheme = "auto",
    *,
    layer_limit: float = LAYER_LIMIT,
    leave: Iterable[str] = (),
) -> nn.Module:
    """A quantised copy of `model`, for `pteron.export(quantised, example_inputs)` or `torch.export`.

    - `"int8"`: weights of convolutions and linear layers are int8 by output channel, activations int8 with
      fixed scales, in the layers and between them (`PteronQuantizer`); needs calibration.
    - `"int8-dynamic"`: weights of linear layers are int8 by row, their inputs int8 with a scale for each row
      from its values in the call.
    - `"int4-weight"`: weights of linear layers have 4 bits in groups of 32, those of embeddings 8 bits by
      row; activations are float32.
    - `"int4-dynamic"`: as `"int4-weight"`, and inputs of linear layers of 4 bits as in `"int8-dynamic"`.
    - `"auto"`: `"int8"` where the model has convolutions and calibration is given, else `"int8-dynamic"`.

    A layer whose result changes by more than `layer_limit` stays in float32; with `"int8"`, a linear layer is
    tried as in `"int8-dynamic"` before. The report is an attribute of
    the result, `quantization_report`: bytes and error of every layer (`print` shows a table).

    Args:
        model: float32, in evaluation mode; it is not changed.
        example_inputs: positional inputs, as for `torch.export.export`; errors are measured on them.
        calibration: inputs of the kind of `example_inputs`, some dozens that are like those of use; all are
            run. For `"int8"`.
        scheme: see above.
        layer_limit: error of a layer as a part of its result (root mean squares), from 0 to 1.
        leave: names of modules that stay in float32 whatever their error.

    Raises:
        ValueError: an unknown scheme, `"int8"` without calibration, a name in `leave` that is no module.
        ExportError: the model is in training mode, or has nothing that the scheme quantises.
        ImportError: torchao is not installed.
    """
    examples, left = tuple(example_inputs), frozenset(leave)
    _check(model, scheme, left)
    chosen = _chosen(model, calibration is not None) if scheme == "auto" else scheme
    flow_model = copy.deepcopy(model)
    with torch.no_grad():
        expected = model(*examples)
        if chosen == "int8":
            if calibration is None:
                raise ValueError('quantize: scheme="int8" needs calibration=, an iterable of inputs')
            quantized, layers = quantize_static(flow_model, examples, calibration, layer_limit, left)
        else:
            quantized, layers = quantize_weights(flow_model, examples, chosen, layer_limit, left)
        result = quantized(*examples)
    pairs = zip(tree_leaves(expected), tree_leaves(result), strict=True)
    errors = [relative_error(a, b) for a, b in pairs if isinstance(a, torch.Tensor) and a.is_floating_point()]
    for module in quantized.modules():
        module.training = False  # a captured graph has no `eval()`
    report = QuantizationReport(chosen, tuple(layers), max(errors, default=0.0))
    quantized.quantization_report = report  # type: ignore[assignment]
    return quantized


def _chosen(model: nn.Module, has_calibration: bool) -> str:
    has_convolutions = any(isinstance(module, _CONVOLUTIONS) for module in model.modules())
    return "int8" if has_convolutions and has_calibration else "int8-dynamic"


def _check(model: nn.Module, scheme: str, leave: frozenset[str]) -> None:
    if scheme not in get_args(Scheme):
        raise ValueError(f"quantize: expected a scheme of {get_args(Scheme)}, got {scheme!r}")
    names = dict(model.named_modules())
    unknown = sorted(leave - names.keys())
    if unknown:
        raise ValueError(f"quantize: leave={unknown} are no modules of the model")
    training = [name or type(model).__name__ for name, module in names.items() if module.training]
    if training:
        raise ExportError(
            f"quantize: the model is in training mode ({training[0]} is the first module)",
            hint="call model.eval() before, or train with prepare_qat_pt2e and PteronQuantizer(is_qat=True)",
        )
