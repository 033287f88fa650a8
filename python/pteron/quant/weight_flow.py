"""torchao's `quantize_` on the layers of a model: dynamic int8, and weights alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from pteron.errors import ExportError
from pteron.quant.group_scales import groups_of_4_bits, widen_scales
from pteron.quant.layer_errors import relative_error
from pteron.quant.report import LayerReport
from pteron.quant.torchao_parts import torchao

#: Columns that share a scale at 4 bits: what the packed formats of runtimes have.
GROUP = 32


@dataclass(frozen=True)
class _Plan:
    """How a layer is quantised: the name of that, bits of a weight, and torchao's configuration."""

    scheme: str
    bits: int
    group: int | None
    config: Any


def quantize_weights(
    model: nn.Module, examples: tuple[Any, ...], scheme: str, limit: float, leave: frozenset[str]
) -> tuple[nn.Module, list[LayerReport]]:
    """`model` with its layers replaced, those beyond `limit` as they were, and what became of each."""
    plans = {}
    for name, module in model.named_modules():
        plan = _plan(scheme, module)
        if plan is not None:
            plans[name] = plan
    if not plans:
        raise ExportError(
            f'quantize: the model has no layer that scheme="{scheme}" quantises',
            expected="linear layers with float32 weights" + (", embeddings" if "4" in scheme else ""),
        )
    records = _recorded(model, examples, plans)
    reports = []
    for name, plan in plans.items():
        layer = model.get_submodule(name)
        kind = type(layer).__name__.lower()
        weight = layer.weight
        assert isinstance(weight, torch.Tensor)  # of a linear layer or an embedding
        before, shape = 4 * weight.numel(), weight.shape
        after = weight.numel() * plan.bits // 8 + 4 * shape[0] * (shape[1] // (plan.group or shape[1]))
        reason, error = ("as asked" if _is_left(name, leave) else ""), None
        if not reason:
            error = _error(layer, plan, records.get(name))
            if error is not None and not error <= limit:
                reason = f"error {error:.1%} above {limit:.1%}"
        if reason:
            reports.append(LayerReport(name, kind, "float32", before, before, error, reason))
            continue
        _apply(layer, plan)
        reports.append(LayerReport(name, kind, plan.scheme, before, after, error))
    return model, reports


def _is_left(name: str, leave: frozenset[str]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in leave)


def _plan(scheme: str, module: nn.Module) -> _Plan | None:
    ao = torchao("quantization")
    weight = getattr(module, "weight", None)
    if not isinstance(module, (nn.Linear, nn.Embedding)) or not isinstance(weight, nn.Parameter):
        return None
    if weight.dtype != torch.float32:
        return None
    if scheme == "int8-dynamic":
        config = ao.Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int8, weight_granularity=ao.PerAxis(0)
        )
        return _Plan("int8-dynamic", 8, None, config) if isinstance(module, nn.Linear) else None
    if isinstance(module, nn.Embedding) or weight.shape[1] % GROUP:
        rows = ao.IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=ao.PerAxis(0))
        return _Plan("int8-weight", 8, None, rows)
    if scheme == "int4-dynamic":
        return _Plan(scheme, 4, GROUP, groups_of_4_bits(GROUP, is_dynamic=True))
    return _Plan("int4-weight", 4, GROUP, groups_of_4_bits(GROUP, is_dynamic=False))


def _recorded(
    model: nn.Module, examples: tuple[Any, ...], plans: dict[str, _Plan]
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Layer → input and result of its last call."""
    records = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, inputs: tuple[Any, ...], result: Any) -> None:
            records[name] = (inputs[0], result)

        return hook

    hooks = [model.get_submodule(name).register_forward_hook(keep(name)) for name in plans]
    try:
        model(*examples)
    finally:
        for hook in hooks:
            hook.remove()
    return records


def _error(layer: nn.Module, plan: _Plan, record: tuple[torch.Tensor, torch.Tensor] | None) -> float | None:
    if record is None:
        return None
    weight = layer.weight
    _apply(layer, plan)
    error = relative_error(record[1], layer(record[0]))
    layer.weight = weight
    return error


def _apply(layer: nn.Module, plan: _Plan) -> None:
    torchao("quantization").quantize_(layer, plan.config, filter_fn=lambda module, _name: module is layer)
    if plan.group is not None:
        widen_scales(layer.weight)
