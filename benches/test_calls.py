"""The cost of a call: one add with NumPy in and out, bound outputs, a Python delegate, a Rust delegate."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

import pteron
import pteron.backends.demo.compiler_demo_backend
from pteron.backends.demo.registration import register_demo_backends
from pteron.exir import to_edge
from pteron.exir.backend.backend_api import to_backend


class Add(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class Sine(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x)


@pytest.fixture(scope="module")
def add_program() -> pteron.Program:
    x = torch.ones(4)
    return pteron.load(to_edge(torch.export.export(Add(), (x, x))).to_executorch().buffer)


def test_one_add_with_numpy(benchmark: BenchmarkFixture, add_program: pteron.Program) -> None:
    method = add_program.load_method("forward")
    x = np.ones(4, dtype=np.float32)
    assert benchmark(method, x, x).tolist() == [2, 2, 2, 2]


def test_one_add_in_numpy_itself(benchmark: BenchmarkFixture) -> None:
    """The peer: what NumPy's own add costs from Python."""
    x = np.ones(4, dtype=np.float32)
    benchmark(np.add, x, x)


@pytest.mark.parametrize("language", ["python", "rust"])
def test_delegate_call(benchmark: BenchmarkFixture, language: Literal["python", "rust"]) -> None:
    """One demo delegate that computes sin of 4 elements."""
    runtime = pteron.Runtime()
    register_demo_backends(runtime, language=language)
    edge = to_edge(torch.export.export(Sine(), (torch.ones(4),))).exported_program()
    program = pteron.load(to_backend("BackendWithCompilerDemo", edge, []).buffer(), runtime=runtime)
    method = program.load_method("forward")
    x = np.ones(4, dtype=np.float32)
    assert benchmark(method, x) == pytest.approx(np.full(4, 1 - 1 / 6))
