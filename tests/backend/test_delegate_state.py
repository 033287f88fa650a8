"""A buffer that a backend owns: from the model through the file into the state of a method."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.export import ExportedProgram, export

import pteron
from pteron.backends.demo.executor_backend import ExecutorBackend
from pteron.backends.demo.registration import register_demo_backends
from pteron.exir import to_edge
from pteron.exir.backend.constant_tagging import tag_constant_data, tag_mutated_buffer
from pteron.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.tensor([10.0, 20.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total += x
        return self.total * 2


class EverythingPartitioner(Partitioner):
    """All operators, and the buffers that they update."""

    def __init__(self) -> None:
        super().__init__()
        self.delegation_spec = DelegationSpec(ExecutorBackend.__name__, [])

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        for node in exported_program.graph.nodes:
            if node.op == "call_function":
                node.meta["delegation_tag"] = "all"
        tag_constant_data(exported_program)
        tag_mutated_buffer(exported_program)
        return PartitionResult(
            tagged_exported_program=exported_program, partition_tags={"all": self.delegation_spec}
        )


@pytest.fixture(scope="module")
def program_bytes() -> bytes:
    manager = to_edge(export(Counter(), (torch.ones(2),))).to_backend(EverythingPartitioner())
    return manager.to_executorch().buffer


def test_the_file_says_whose_buffers_they_are(program_bytes: bytes) -> None:
    program = pteron.load(program_bytes)
    assert program.backends("forward") == ("ExecutorBackend",)
    assert b'"delegate_buffers":{"0":["total"]}' in program_bytes.replace(b" ", b"")


@pytest.mark.parametrize("language", ["rust", "python"])
def test_state_of_a_nested_program_is_state_of_the_method(
    program_bytes: bytes, language: str, tmp_path: Path
) -> None:
    runtime = pteron.Runtime()
    register_demo_backends(runtime, language=language)
    program = pteron.load(program_bytes, runtime=runtime)
    method, other = program.load_method(), program.load_method()
    one = np.ones(2, np.float32)
    np.testing.assert_array_equal(method(one), [22, 42])
    np.testing.assert_array_equal(method.get_state()["total"], [11, 21])
    method.save_state(tmp_path / "s.ptd")
    np.testing.assert_array_equal(other(one), [22, 42])
    method.set_state({"total": np.zeros(2, np.float32)})
    np.testing.assert_array_equal(method(one), [2, 2])
    other.load_state(tmp_path / "s.ptd")
    np.testing.assert_array_equal(other(one), [24, 44])
    method.reset_state()
    np.testing.assert_array_equal(method(one), [22, 42])
    with pytest.raises(pteron.InputError, match="load_method"):
        program.run("forward", one)


def test_a_backend_without_the_methods_is_named(program_bytes: bytes) -> None:
    class Delegate:
        num_outputs = 1

        def execute(self, ctx: object, inputs: object, outputs: object) -> None:
            raise AssertionError("never called")

    class Backend:
        def init(self, ctx: object, processed: memoryview, specs: object) -> Delegate:
            return Delegate()

    runtime = pteron.Runtime()
    pteron.register_backend("ExecutorBackend", Backend(), runtime=runtime)
    method = pteron.load(program_bytes, runtime=runtime).load_method()
    with pytest.raises(pteron.DelegateError, match=r"ExecutorBackend.*for total"):
        method.get_state()
