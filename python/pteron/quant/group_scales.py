"""Weights of 4 bits whose groups have scales of bfloat16, as in ExecuTorch's files: half the bytes."""

from __future__ import annotations

from typing import Any

import torch

from pteron.quant.torchao_parts import torchao

_INT4: torch.dtype = getattr(torch, "int4")  # noqa: B009 -- torch's stubs do not know it


def groups_of_4_bits(group: int, *, is_dynamic: bool) -> Any:
    """torchao's configuration of a linear layer.

    Args:
        group: columns that share a scale.
        is_dynamic: inputs are quantised, too, 8 bits with scales of the call.
    """
    ao = torchao("quantization")
    if is_dynamic:
        return ao.Int8DynamicActivationIntxWeightConfig(
            weight_dtype=_INT4,
            weight_granularity=ao.PerGroup(group),
            weight_scale_dtype=torch.bfloat16,
        )
    return ao.IntxWeightOnlyConfig(
        weight_dtype=_INT4, granularity=ao.PerGroup(group), scale_dtype=torch.bfloat16
    )


def widen_scales(weight: Any) -> None:
    """Makes the scales of a quantised weight float32 of the same numbers: graphs compute in that."""
    weight.scale = weight.scale.float()
