"""A backend that adds, and what can be wrong with one."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import numpy as np
import torch
from torch.fx.passes.operator_support import create_op_support

import pteron
from pteron.exir.backend.backend_details import BackendDetails, PreprocessResult
from pteron.exir.backend.canonical_partitioners.pattern_op_partitioner import generate_pattern_op_partitions
from pteron.exir.backend.constant_tagging import tag_mutated_buffer
from pteron.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult

NAME = "Adding"
MAGIC = b"ADDS"


class Adding(BackendDetails):
    @staticmethod
    def preprocess(program: Any, specs: Any) -> PreprocessResult:
        return PreprocessResult(MAGIC)


class AddingPartitioner(Partitioner):
    """Takes float32 sums of two tensors of one shape."""

    dtypes: ClassVar[tuple[torch.dtype, ...]] = (torch.float32,)

    def partition(self, program: Any) -> PartitionResult:
        def takes(_: Any, node: torch.fx.Node) -> bool:
            return getattr(node.target, "__name__", "") == "aten.add.Tensor" and all(
                isinstance(v, torch.fx.Node)
                and v.meta["val"].dtype in self.dtypes
                and v.meta["val"].shape == node.meta["val"].shape
                for v in node.args
            )

        tags = {}
        for part in generate_pattern_op_partitions(program.graph_module, op_support=create_op_support(takes)):
            tags[f"adding{part.id}"] = DelegationSpec(NAME, [])
            for node in part.nodes:
                node.meta["delegation_tag"] = f"adding{part.id}"
        tag_mutated_buffer(program)
        return PartitionResult(program, tags)


class EagerPartitioner(AddingPartitioner):
    """Takes what the run half cannot add."""

    dtypes = (torch.float32, torch.int64)


class AddingRuntime:
    """Init and execute in one; `fault` says what is wrong with it."""

    num_outputs = 1

    def __init__(self, fault: str = "") -> None:
        self._fault, self._last = fault, np.zeros(0, np.float32)

    def init(self, ctx: Any, processed: Any, specs: Any) -> AddingRuntime:
        blob = bytes(processed)
        if self._fault == "dies" and blob != MAGIC:
            os.abort()
        if self._fault != "dies" and blob != MAGIC:
            raise ValueError(f"the blob is {blob!r}")
        return self if self._fault == "shares" else AddingRuntime(self._fault)

    def execute(self, ctx: Any, inputs: Any, outputs: Any) -> None:
        x, y = (np.asarray(value) for value in inputs)
        if x.dtype != np.float32:
            raise TypeError(f"cannot add {x.dtype}")
        if self._fault != "keeps its shape":
            outputs[0].resize(x.shape)
        result = x + y
        if self._fault == "remembers":
            result, self._last = (result + self._last.sum() * 0 + (self._last.size > 0)), result
        np.copyto(
            np.asarray(outputs[0]),
            result if self._fault != "keeps its shape" else np.resize(result, outputs[0].shape),
        )


def register(runtime: pteron.Runtime | None = None, fault: str = "") -> None:
    pteron.register_backend(NAME, AddingRuntime(fault), runtime=runtime)


def register_one_that_dies() -> None:
    register(fault="dies")
