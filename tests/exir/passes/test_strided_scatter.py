"""`as_strided_scatter` writes places in memory, whatever order of memory its tensor has."""

from __future__ import annotations

import pytest
import torch

import pteron
from pteron.exir import to_edge

ORDERS = [[0, 1, 2, 3], [0, 2, 3, 1], [3, 1, 0, 2]]


class Scattered(torch.nn.Module):
    def forward(self, x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return torch.as_strided_scatter(x * 2, source, (2, 3), (4, 2), 1)


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_places_are_those_in_memory(order: list[int]) -> None:
    x, source = torch.arange(48.0).reshape(2, 3, 4, 2), -torch.arange(6.0).reshape(2, 3) - 1
    back = sorted(range(4), key=order.__getitem__)
    x = x.permute(order).contiguous().permute(back)
    program = torch.export.export(Scattered(), (x, source))
    edge = to_edge(program)
    assert torch.equal(edge.exported_program().module()(x, source), Scattered()(x, source))
    method = pteron.load(edge.to_executorch().buffer).load_method()
    assert torch.equal(torch.as_tensor(method.execute([x, source])[0]), Scattered()(x, source))
