"""`torch.ops.llama`, of ExecuTorch and without it: captured, lowered, run; caches written in place."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pteron
from pteron.errors import KernelError
from pteron.exir import to_edge

# Set in the process in which ExecuTorch is not installed, as far as imports can tell.
HIDDEN = "PTERON_TEST_WITHOUT_EXECUTORCH"
if os.environ.get(HIDDEN):
    sys.modules["executorch"] = None  # type: ignore[assignment]

with warnings.catch_warnings():
    # Of ExecuTorch's imports.
    warnings.simplefilter("ignore")
    from pteron.llm import custom_ops as ours

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

CAPACITY, DEPTH = 12, 8
LLAMA: Any = torch.ops.llama


class Attends(torch.nn.Module):
    """One layer's cache and attention."""

    def __init__(self, key_heads: int, form: str, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.form = form
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, CAPACITY, key_heads, DEPTH, dtype=dtype))

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, start: torch.Tensor
    ) -> torch.Tensor:
        at: Any = start[0].item()
        torch._check_is_size(at)
        torch._check(at + query.shape[1] <= CAPACITY)
        caches: Any = (self.keys, self.values)
        if self.form == "in one":
            rows = query.shape[1]
            return LLAMA.sdpa_with_kv_cache(query, key, value, *caches, at, rows, None, 0.0, True)
        if self.form == "indices":
            places = (torch.arange(query.shape[1]) + start).unsqueeze(0)
            for new, cache in zip((key, value), caches, strict=True):
                LLAMA.update_cache_with_indices(new, cache, at, places)
        else:
            for new, cache in zip((key, value), caches, strict=True):
                LLAMA.update_cache(new, cache, at)
        if self.form == "causal":
            return LLAMA.custom_sdpa(query, *caches, at, None, 0.0, True)
        seen = torch.arange(CAPACITY) <= (torch.arange(query.shape[1]) + start).unsqueeze(1)
        mask = torch.where(seen, 0.5, float("-inf"))
        return LLAMA.custom_sdpa(query, *caches, 0, mask, 0.0, False, 0.3)


def tensors(rows: int, heads: int, key_heads: int, seed: int) -> list[torch.Tensor]:
    drawn = torch.Generator().manual_seed(seed)
    return [torch.randn(1, rows, n, DEPTH, generator=drawn) for n in (heads, key_heads, key_heads)]


def lowered(model: torch.nn.Module, heads: int, key_heads: int, dtype: torch.dtype) -> bytes:
    rows = torch.export.Dim("rows", min=1, max=CAPACITY)
    example = [tensor.to(dtype) for tensor in tensors(3, heads, key_heads, 0)]
    shapes = ({1: rows}, {1: rows}, {1: rows}, None)
    program = torch.export.export(model, (*example, torch.tensor([0])), dynamic_shapes=shapes, strict=False)
    return to_edge(program).to_executorch().buffer


@pytest.mark.parametrize(
    ("heads", "key_heads", "form"),
    [(4, 2, "causal"), (3, 3, "causal"), (8, 1, "in one"), (4, 2, "mask"), (4, 2, "indices")],
)
def test_a_cache_is_filled_and_attended_to(heads: int, key_heads: int, form: str) -> None:
    model = Attends(key_heads, form)
    program = pteron.load(lowered(Attends(key_heads, form), heads, key_heads, torch.float32))
    assert any(name.startswith("attention.f32") for name in program.kernels("forward"))
    method, start = program.load_method("forward"), 0
    for rows in (5, 1, 2, 4):
        given = tensors(rows, heads, key_heads, rows)
        with torch.no_grad():
            expected = model(*given, torch.tensor([start]))
        [got] = method.execute([*(tensor.numpy() for tensor in given), np.array([start])])
        np.testing.assert_allclose(np.asarray(got), expected.numpy(), rtol=1e-5, atol=1e-5)
        start += rows
    assert start == CAPACITY
    for name, state in method.get_state().items():
        assert np.array_equal(state, model.get_buffer(name).numpy())
    with pytest.raises(KernelError):
        method.execute([*(tensor.numpy() for tensor in tensors(2, heads, key_heads, 1)), np.array([11])])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves(dtype: torch.dtype) -> None:
    model = Attends(2, "causal", dtype)
    method = pteron.load(lowered(Attends(2, "causal", dtype), 4, 2, dtype)).load_method("forward")
    for rows, start in ((5, 0), (1, 5)):
        given = [tensor.to(dtype) for tensor in tensors(rows, 4, 2, rows)]
        with torch.no_grad():
            expected = model(*given, torch.tensor([start]))
        [got] = method.execute([*given, torch.tensor([start])])
        torch.testing.assert_close(torch.as_tensor(got), expected, rtol=0.02, atol=0.01)


class Transforms(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return LLAMA.fallback(LLAMA.fast_hadamard_transform(x) + 1)


@pytest.mark.parametrize("size", [1, 16, 56])
def test_hadamard_and_fallback(size: int) -> None:
    x = torch.randn(3, size, generator=torch.Generator().manual_seed(size))
    expected = Transforms()(x)
    buffer = to_edge(torch.export.export(Transforms(), (x,))).to_executorch().buffer
    [got] = pteron.load(buffer).load_method("forward").execute([x])
    torch.testing.assert_close(torch.as_tensor(got), expected)
    identity = LLAMA.fast_hadamard_transform(LLAMA.fast_hadamard_transform(torch.eye(16)).T)
    torch.testing.assert_close(identity, torch.eye(16))


def quantised(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Numbers, zero points and scales, of each row."""
    low, high = tensor.amin(-1, keepdim=True), tensor.amax(-1, keepdim=True)
    scales = (high - low) / 255
    zero_points = (-128 - low / scales).round().clamp(-128, 127)
    numbers = (tensor / scales + zero_points).round().clamp(-128, 127)
    return numbers.to(torch.int8), zero_points.to(torch.int8), scales


class AttendsToNumbers(torch.nn.Module):
    def __init__(self, at: int, is_heads_first: bool) -> None:
        super().__init__()
        self.at, self.is_heads_first = at, is_heads_first

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        settings = (self.at, None, 0.0, True, None)
        return LLAMA.custom_quantized_sdpa(*tensors[:3], *settings, *tensors[3:], self.is_heads_first)


@pytest.mark.parametrize(("at", "is_heads_first"), [(0, False), (4, False), (8, True)])
def test_quantised_attention(at: int, is_heads_first: bool) -> None:
    query, _, _ = tensors(3, 4, 2, 1)
    _, key, value = tensors(CAPACITY, 4, 2, 2)
    parts = [quantised(tensor) for tensor in (query, key, value)]
    given = [*(numbers for numbers, _, _ in parts)]
    given += [parameter for _, zero_points, scales in parts for parameter in (zero_points, scales)]
    if is_heads_first:
        given = [tensor.transpose(1, 2).contiguous() for tensor in given]
    model = AttendsToNumbers(at, is_heads_first)
    expected = model(*given)
    floats = LLAMA.custom_sdpa(query, key, value, at, None, 0.0, True)
    rows_first = expected.transpose(1, 2) if is_heads_first else expected
    torch.testing.assert_close(rows_first, floats, rtol=0.1, atol=0.05)
    buffer = to_edge(torch.export.export(model, tuple(given))).to_executorch().buffer
    [got] = pteron.load(buffer).load_method("forward").execute(given)
    torch.testing.assert_close(torch.as_tensor(got), expected)


def test_calls_that_do_not_fit_are_refused() -> None:
    query, key, value = tensors(2, 4, 2, 1)
    mask = torch.zeros(2, 2)
    for call in (
        lambda: ours.update_cache(key, key.clone(), 1),
        lambda: ours.update_cache_with_indices(key, key.clone(), 0, torch.tensor([[0, -1]])),
        lambda: ours.custom_sdpa(query, key, value, 1, None, 0.0, True),
        lambda: ours.custom_sdpa(query, key, value, 0, mask, 0.0, True),
        lambda: ours.custom_sdpa(query, key, value, 0, None, 0.5, False),
        lambda: ours.fast_hadamard_transform(torch.zeros(12)),
    ):
        with pytest.raises(RuntimeError):
            call()


@pytest.mark.skipif(HIDDEN in os.environ, reason="this is that process")
def test_all_of_it_without_executorch() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__))]
    settings = os.environ | {HIDDEN: "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=settings)
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.peer
@pytest.mark.skipif(HIDDEN in os.environ, reason="ExecuTorch is not there")
def test_they_compute_what_executorchs_do() -> None:
    """In a process of its own: operators are registered once."""
    pytest.importorskip("executorch.extension.llm.custom_ops")
    script = """
import torch
from executorch.extension.llm.custom_ops import custom_ops
from pteron.llm import custom_ops as ours
theirs, mask = torch.ops.llama, torch.randn(2, 6)
query, key, value = torch.randn(1, 2, 4, 8), torch.randn(1, 6, 2, 8), torch.randn(1, 6, 2, 8)
for settings in ((3, None, 0.0, True), (3, None, 0.0, False), (0, mask, 0.0, False, 0.3)):
    tensors = (query, key, value)
    torch.testing.assert_close(ours.custom_sdpa(*tensors, *settings), theirs.custom_sdpa(*tensors, *settings))
for size in (8, 56):
    x = torch.randn(3, size)
    torch.testing.assert_close(ours.fast_hadamard_transform(x), theirs.fast_hadamard_transform(x))
for name, arguments in ours._ARGUMENTS.items():
    if name != "fallback":
        schema = torch._C.parse_schema(f"llama::{name}({arguments}) -> Tensor")
        assert str(getattr(theirs, name).default._schema) == str(schema), name
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, capture_output=True)
