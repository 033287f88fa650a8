"""Attention is found again after decomposition, whoever exported the program, and computes the same."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

import pteron
from tests.models.exporters import EXPORTERS, exported_here

Exported = torch.export.ExportedProgram


class Layer(nn.Module):
    """Self-attention as encoders have it: linear, heads split, attention, heads joined, linear."""

    def __init__(self, width: int = 32, heads: int = 4, mask: str = "none") -> None:
        super().__init__()
        self.heads, self.mask = heads, mask
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        if self.mask == "softmax":
            scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
            y = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ v
        elif self.mask == "bool":
            y = scaled_dot_product_attention(q, k, v, attn_mask=mask)
        elif self.mask == "float":
            y = scaled_dot_product_attention(q, k, v, attn_mask=mask * 1.5)
        else:
            y = scaled_dot_product_attention(q, k, v, is_causal=self.mask == "causal")
        result: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return result


def agree(buffer: bytes, model: nn.Module, *inputs: Tensor) -> str:
    """Runs with the rule and without; returns the plan with it."""
    with torch.no_grad():
        expected = model(*inputs)
    plans = []
    for disabled in ([], ["fuse_attention"]):
        runtime = pteron.Runtime(isa=None, num_threads=1, disabled_rules=disabled)
        program = pteron.load(buffer, runtime=runtime)
        got = program.run("forward", *inputs)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-5 * max(1.0, float(expected.abs().max())))
        plans.append(program.plan_listing("forward"))
    assert "attention(" not in plans[1]
    return plans[0]


@pytest.mark.parametrize(("exporter", "export"), EXPORTERS)
@pytest.mark.parametrize(
    ("mask", "is_dynamic"),
    [("none", False), ("causal", False), ("bool", False), ("none", True), ("causal", True), ("float", True)],
)
def test_layers_have_one_step_and_no_permute(
    exporter: str, export: Callable[[Exported], bytes], mask: str, is_dynamic: bool
) -> None:
    torch.manual_seed(0)
    model = Layer(mask=mask).eval()
    tokens = 9
    inputs = (torch.randn(2, tokens, 32), torch.rand(2, 1, 1, tokens) > 0.3)
    length = torch.export.Dim("length", min=2, max=16)
    shapes: tuple[object, object] | None = ({1: length}, {3: length}) if is_dynamic else None
    if is_dynamic and mask in ("none", "causal"):
        # An input that nothing reads keeps no relation to the others.
        inputs, shapes = (inputs[0], torch.ones(1)), ({1: length}, None)
    with torch.no_grad():
        exported = torch.export.export(model, inputs, dynamic_shapes=shapes)
    buffer = export(exported)
    plan = agree(buffer, model, *inputs)
    assert plan.count("attention(") == 1
    for gone in ("softmax", "permute_copy", "logical_not", "aten::mul.Scalar_out"):
        assert gone not in plan
    if is_dynamic:
        for tokens in (2, 16, 5):
            other = torch.rand(1) if mask in ("none", "causal") else torch.rand(2, 1, 1, tokens) > 0.3
            agree(buffer, model, torch.randn(2, tokens, 32), other)


def test_a_query_that_sees_nothing_gets_what_the_program_says() -> None:
    inputs = (torch.randn(1, 3, 32), torch.tensor([False, False, False]).reshape(1, 1, 1, 3))
    for mask, is_zero in (("bool", True), ("softmax", False)):
        model = Layer(mask=mask).eval()
        buffer = exported_here(torch.export.export(model, inputs))
        program = pteron.load(buffer)
        got = program.run("forward", *inputs)
        if is_zero:
            torch.testing.assert_close(got, model.out(torch.zeros(1, 3, 32)))
        else:
            assert got.isnan().all()


class Random(nn.Module):
    """Attention of some form on tensors in some order."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.batch, self.heads = rng.choice([1, 2]), rng.choice([1, 3, 4])
        self.rows, self.keys = rng.choice([1, 5, 40]), rng.choice([1, 7, 33])
        self.depth, self.width = rng.choice([1, 8, 20]), rng.choice([8, 17])
        self.order = rng.choice([(0, 1, 2, 3), (0, 2, 1, 3), (2, 0, 1, 3)])
        self.scale = rng.choice([None, 0.3, 1.0])
        self.mask = rng.choice(["none", "row", "full", "seen"])
        self.form = rng.choice(["sdpa", "softmax", "joined"])
        self.is_read = rng.random() < 0.2
        self.is_swapped = rng.random() < 0.5

    def inputs(self) -> tuple[Tensor, ...]:
        back = torch.tensor(self.order).argsort().tolist()
        sizes = [(self.rows, self.depth), (self.keys, self.depth), (self.keys, self.width)]
        tensors = [torch.randn(self.batch, self.heads, *s).permute(back).contiguous() for s in sizes]
        shape = {"row": (1, 1, 1, self.keys), "seen": (self.batch, 1, self.rows, self.keys)}
        mask = torch.randn(shape.get(self.mask, (self.batch, self.heads, self.rows, self.keys)))
        return (*tensors, mask > -0.5 if self.mask == "seen" else mask)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        q, k, v = (t.permute(self.order) for t in (q, k, v))
        scale = self.depth**-0.5 if self.scale is None else self.scale
        added = torch.where(mask, 0.0, -math.inf) if self.mask == "seen" else mask
        if self.form == "sdpa":
            y = scaled_dot_product_attention(q, k, v, None if self.mask == "none" else mask, scale=scale)
        elif self.form == "softmax":
            scores = (q @ k.transpose(-1, -2)) * scale
            if self.mask != "none":
                scores = added + scores if self.is_swapped else scores + added
            y = torch.softmax(scores, -1) @ v
        else:
            q, k, v = (t.reshape(-1, *t.shape[2:]) for t in (q, k, v))
            y = torch.softmax(torch.bmm(q * scale, k.transpose(1, 2)), -1).bmm(v)
            y = y.reshape(self.batch, self.heads, self.rows, self.width)
        return (y.transpose(1, 2), k.transpose(-1, -2) * 2) if self.is_read else y.transpose(1, 2) + 0.0


@pytest.mark.parametrize("seed", range(12))
def test_random_forms_agree_with_eager_with_and_without_the_rule(seed: int) -> None:
    torch.manual_seed(seed)
    model = Random(random.Random(seed)).eval()
    inputs = model.inputs()
    buffer = exported_here(torch.export.export(model, inputs))
    with torch.no_grad():
        expected = model(*inputs)
    for disabled in ([], ["fuse_attention"]):
        program = pteron.load(buffer, runtime=pteron.Runtime(num_threads=2, disabled_rules=disabled))
        got = program.run("forward", *inputs)
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5, equal_nan=True)
