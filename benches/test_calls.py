"""The cost of a call: one add with NumPy in and out, bound outputs, a Python delegate, a Rust delegate."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture
from torch.export import ExportedProgram

import pteron
import pteron.backends.demo.compiler_demo_backend
from pteron.backends.demo.registration import register_demo_backends
from pteron.exir import to_edge
from pteron.exir.backend.backend_api import to_backend
from pteron.exir.backend.backend_details import BackendDetails, PreprocessResult
from pteron.exir.backend.compile_spec import CompileSpec


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


class Nothing(BackendDetails):
    """The compile side of a backend that does nothing, to see what the call alone costs."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        return PreprocessResult(processed_bytes=b"nothing")


class NothingDelegate:
    num_outputs = 1

    def execute(self, ctx: object, inputs: list[object], outputs: list[object]) -> None:
        pass


class NothingRuntime:
    def is_available(self) -> bool:
        return True

    def init(self, ctx: object, processed: memoryview, compile_specs: dict[str, bytes]) -> NothingDelegate:
        return NothingDelegate()


def test_python_delegate_that_does_nothing(benchmark: BenchmarkFixture) -> None:
    """Its difference to `test_delegate_call[rust]` less that delegate's own work is the Python part."""
    runtime = pteron.Runtime()
    pteron.register_backend("Nothing", NothingRuntime(), runtime=runtime)
    edge = to_edge(torch.export.export(Sine(), (torch.ones(4),))).exported_program()
    program = pteron.load(to_backend("Nothing", edge, []).buffer(), runtime=runtime)
    method = program.load_method("forward")
    benchmark(method, np.ones(4, dtype=np.float32))


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
