"""Programs made here, in ExecuTorch's runtime and beside ExecuTorch's own exporter."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

from pteron.exir import ExecutorchBackendConfig, to_edge
from pteron.exir.target.kernel_lists import EXECUTORCH_PORTABLE
from tests.exir.small_models import CASES, PORTABLE

pytestmark = pytest.mark.peer

runtime = pytest.importorskip("executorch.runtime", reason="needs the executorch wheel")


def _run(method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    leaves = tree_leaves((args, kwargs), is_leaf=lambda value: value is None)
    outputs: list[Any] = method.execute(leaves)
    return outputs


def test_the_list_of_portable_kernels_is_the_wheels() -> None:
    # In a process of its own: another test may have loaded a library of ExecuTorch's with more kernels.
    names = "print(*Runtime.get().operator_registry.operator_names)"
    command = [sys.executable, "-c", f"from executorch.runtime import Runtime; {names}"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert frozenset(printed.split()) == EXECUTORCH_PORTABLE


@pytest.mark.parametrize("name", CASES)
def test_executorch_runs_the_program(name: str) -> None:
    case = CASES[name]
    buffer = to_edge(case.export()).to_executorch(PORTABLE).buffer
    method = runtime.Runtime.get().load_program(buffer).load_method("forward")
    model = case.model()
    with torch.no_grad():
        for args in (case.args, *case.more_args):
            expected = tree_leaves(
                model(*copy.deepcopy(args), **case.kwargs), is_leaf=lambda value: value is None
            )
            for got, want in zip(_run(method, args, case.kwargs), expected, strict=True):
                if not isinstance(want, torch.Tensor):
                    assert got == want
                    continue
                assert got.dtype is want.dtype
                assert got.shape == want.shape
                largest = float(want.double().abs().max()) if want.numel() else 0.0
                torch.testing.assert_close(got, want, rtol=0, atol=1e-5 * largest)


@pytest.mark.parametrize("name", ["mlp", "mlp_dynamic", "convolutional", "depthwise"])
def test_the_instructions_are_those_that_executorch_emits(name: str) -> None:
    from executorch.exir import to_edge as peer_to_edge

    with torch.no_grad():
        captured = CASES[name].export()
        plain = ExecutorchBackendConfig(kernels="executorch-portable", optimize=False)
        ours = to_edge(captured).to_executorch(plain).executorch_program
        theirs = peer_to_edge(captured).to_executorch().executorch_program
    assert _calls(ours) == _calls(theirs)


# Where ExecuTorch casts or copies at run time, this exporter has a constant of the right dtype or nothing
# to copy.
_ELIDED = ("dim_order_ops::_to_dim_order_copy", "dim_order_ops::_clone_dim_order")


def _calls(program: Any) -> list[tuple[str, str, list[str]]]:
    plan = program.execution_plan[0]
    found = []
    for instruction in plan.chains[0].instructions:
        call = instruction.instr_args
        operator = plan.operators[call.op_index]
        if operator.name not in _ELIDED:
            kinds = [type(plan.values[index].val).__name__ for index in call.args]
            found.append((operator.name, operator.overload, kinds))
    return found
