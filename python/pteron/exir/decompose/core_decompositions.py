"""Bring a captured program into core ATen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch._ops import OpOverload
from torch.export import ExportedProgram

from pteron.errors import ExportError, PteronError
from pteron.exir.decompose.changed_arguments import call_functional_forms
from pteron.exir.decompose.missing_decompositions import MISSING_DECOMPOSITIONS
from pteron.exir.decompose.prims_as_aten import PRIMS_AS_ATEN, SCALAR_OPS_OF_ONE_NODE
from pteron.exir.decompose.torch_decompositions import run_decompositions
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.found_numbers import bound_found_numbers
from pteron.exir.edge.stages import is_core_aten

# A decomposition may introduce operators that need one themselves; PyTorch's nest at most three deep.
_MOST_ROUNDS = 4

# `select_scatter` is core, yet PyTorch's table makes a choice over all rows of one row that changes.
_KEPT = (torch.ops.aten.select_scatter.default, *SCALAR_OPS_OF_ONE_NODE)

KEPT_FOR_KERNELS: tuple[OpOverload, ...] = (
    torch.ops.aten.cumprod.default,
    torch.ops.aten.var_mean.correction,
    torch.ops.aten.uniform.default,
    torch.ops.aten.normal.Tensor_float,
    torch.ops.aten.normal.float_Tensor,
    torch.ops.aten.normal.Tensor_Tensor,
    torch.ops.aten.normal.float_float,
    torch.ops.aten.exponential.default,
    torch.ops.aten.cauchy.default,
    torch.ops.aten.log_normal.default,
    torch.ops.aten.geometric.default,
)
"""Operators with a kernel here that do far less work whole; `to_executorch` decomposes them for targets that
have none."""


def kept_for_backends(program: ExportedProgram) -> frozenset[OpOverload]:
    """torchao's operators in `program`: backends look for quantised tables and weights by them, and
    `to_executorch` decomposes those that no backend took.
    """
    return frozenset(
        node.target
        for module in graph_modules(program.graph_module)
        for node in module.graph.nodes
        if isinstance(node.target, OpOverload) and node.target.namespace == "torchao"
    )


def decompose_to_core(
    program: ExportedProgram, preserved: Collection[OpOverload], method: str
) -> ExportedProgram:
    """A new, functional program of core ATen operators; `preserved` operators stay whole.

    It has tables of constants of its own: passes replace tensors in them, and those of the program that was
    given must not change.

    PyTorch's default table leaves a few operators that are not core though it has a decomposition for them
    (`linalg_vector_norm` is one); those are decomposed as well. What has none stays, for the verifier to
    report, and so does what only a primitive could stand for (`erfc`), for the target to know.

    Raises `ExportError`, with what PyTorch raised as its cause, where PyTorch cannot decompose the program.
    """
    # What is known to need more from the start saves a second trace.
    preserved = frozenset({*preserved, *_KEPT})
    with torch_failures_named(method):
        core = run_decompositions(
            program, {**PRIMS_AS_ATEN, **_with_decomposition(program, preserved)}, preserved
        )
        for _ in range(_MOST_ROUNDS):
            rest = _with_decomposition(core, preserved)
            if not rest:
                break
            core = core.run_decompositions({**PRIMS_AS_ATEN, **rest})
    call_functional_forms(core)
    bound_found_numbers(core)
    core._state_dict = dict(core.state_dict)
    core._constants = dict(core.constants)
    return core


def decompose_around(program: ExportedProgram, kept: Collection[OpOverload], method: str) -> ExportedProgram:
    """`program`, with the operators of `kept` that come out of other operators too: an LSTM has linear layers
    inside. As it is where every operator is core or kept; else as `decompose_to_core`, which raises the same.
    """
    has_more = any(
        isinstance(node.target, OpOverload)
        and node.target not in kept
        and torch.Tag.core not in node.target.tags
        for module in graph_modules(program.graph_module)
        for node in module.graph.nodes
    )
    return decompose_to_core(program, kept, method) if has_more else program


@contextlib.contextmanager
def torch_failures_named(method: str) -> Iterator[None]:
    """What PyTorch raises inside becomes an `ExportError` that names the method, with it as the cause."""
    try:
        yield
    except PteronError:
        raise
    except Exception as error:
        first_line = next(iter(str(error).strip().splitlines()), "")
        raise ExportError(
            "PyTorch fails to decompose the captured program into core ATen operators: "
            f"{type(error).__name__}: {first_line}",
            method=method,
            hint="try torch.export.export(..., strict=True), and example inputs that do not share memory; if "
            "program.run_decompositions() fails in the same way, the fault is in PyTorch or in the model",
        ) from error


def _with_decomposition(
    program: ExportedProgram, preserved: Collection[OpOverload]
) -> dict[OpOverload, Callable[..., Any]]:
    left = {
        node.target
        for module in graph_modules(program.graph_module)
        for node in module.graph.nodes
        if node.op == "call_function"
        and isinstance(node.target, OpOverload)
        and node.target.namespace == "aten"
        and node.target not in preserved
        and not is_core_aten(node.target)
        and torch.Tag.core not in node.target.tags
    }
    known = {op: rule for op, rule in get_decompositions(list(left)).items() if isinstance(op, OpOverload)}
    return known | {op: MISSING_DECOMPOSITIONS[op] for op in left & MISSING_DECOMPOSITIONS.keys()}
