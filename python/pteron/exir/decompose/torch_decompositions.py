"""Run PyTorch's decompositions with tables that are made once.

`ExportedProgram.run_decompositions` looks up every composite operator of every library at each call, and puts
a Python function in the way of each of them. Here the lookup happens once per process, and only those
composite operators get a function that do not decompose by their own kernel: those with a decomposition in
Python, and those that stay whole. A composite operator that calls another (`linear` calls `matmul`) thus
calls the kernel of that, not its decomposition in Python, which expands the weight of a transposed input to
a batch of copies.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._decomp import global_decomposition_table
from torch._export.utils import _is_preservable_cia_op, _special_op_to_preserve_cia
from torch._ops import OperatorBase
from torch.export import ExportedProgram, default_decompositions, exported_program

from pteron.exir.decompose.lu_qr_with_checks import CHECKED_FACTORIZATIONS

Rule = Callable[..., Any]
Rules = Mapping[Any, Rule]


@dataclass(frozen=True)
class _Tables:
    """`composite`: for operators that decompose before autograd; `python`: for all others; `known`: every
    operator that PyTorch's default table decomposes.
    """

    composite: Rules
    python: Rules
    known: frozenset[OperatorBase]


def run_decompositions(
    program: ExportedProgram, extra: Rules, whole: Collection[OperatorBase]
) -> ExportedProgram:
    """A new, functional program: PyTorch's default decompositions but for checked factorisations, and those
    of `extra` for operators that these do not cover; calls of operators in `whole` stay.
    """
    default = _current_tables()
    composite, python = dict(default.composite), dict(default.python)
    for op, rule in extra.items():
        if op not in default.known:
            (composite if _is_preservable_cia_op(op) else python)[op] = rule
    for op, rule in CHECKED_FACTORIZATIONS.items():
        (composite if _is_preservable_cia_op(op) else python)[op] = rule
    for op in whole:
        python.pop(op, None)
        if _is_preservable_cia_op(op):
            composite[op] = _special_op_to_preserve_cia
    # What `ExportedProgram.run_decompositions` calls: private, but only one torch version is supported.
    internals: Any = exported_program
    decompose = internals._disable_prexisiting_fake_mode(internals._decompose_exported_program)
    with warnings.catch_warnings():
        # PyTorch's copy of the program warns its users of a class that PyTorch itself deprecated.
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)
        core: ExportedProgram = decompose(
            program,
            cia_to_decomp=composite,
            python_decomp_table=python,
            joint_loss_index=None,
            decompose_custom_triton_ops=False,
        )
    return core


def decomposed_by_default() -> frozenset[OperatorBase]:
    """The operators of PyTorch's default table."""
    return _current_tables().known


def _current_tables() -> _Tables:
    return _default_tables(len(global_decomposition_table["post_autograd"]), len(torch.ops._dir))


@functools.lru_cache(maxsize=1)
def _default_tables(registered: int, libraries: int) -> _Tables:
    """PyTorch's default table, split; made anew when a decomposition or a library was registered since."""
    table = default_decompositions().materialize()
    known = frozenset(table)
    composite, python = exported_program._split_decomp_table_to_cia_and_python_decomp(table)
    # A partial runs the operator's own kernel, which is what happens without it, too.
    kept = {op: rule for op, rule in composite.items() if not isinstance(rule, functools.partial)}
    return _Tables(kept, python, known)
