"""Calls that no kernel of the target takes, inputs and structures that no file can hold: all in one error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pteron.errors import UnsupportedProgramError
from pteron.exir import EdgeProgramManager, ExecutorchBackendConfig
from pteron.exir.lower_program import lower_programs
from pteron.exir.passes.problem import Problem, problems_text
from pteron.exir.serialize.check_load import check_load
from pteron.exir.target.kernel_lists import kernel_names
from tests.exir.small_models import CASES, PORTABLE, edge_of, edge_program_of, random


def _problems(
    edge: EdgeProgramManager, config: ExecutorchBackendConfig | None = None
) -> UnsupportedProgramError:
    with pytest.raises(UnsupportedProgramError) as caught:
        edge.to_executorch(config)
    return caught.value


def test_an_element_type_that_no_kernel_takes_is_listed_with_the_call() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.special.spherical_bessel_j0(x),
            x.to(torch.float8_e4m3fn).sum(0, dtype=torch.float32),
            y.relu(),
        )

    error = _problems(edge_of(function, random(2, 3), random(4)))
    by_operator = {problem.operator: problem for problem in error.problems}
    # A missing kernel and a refused element type, in one error; what is fine is not in it.
    assert (
        "the target has no kernel aten::special_spherical_bessel_j0.out"
        in by_operator["aten.special_spherical_bessel_j0.default"].what
    )
    refused = by_operator["aten.sum.dim_IntList"]
    assert "no kernel takes this call" in refused.what
    assert "float8_e4m3fn" in refused.what
    assert refused.call.startswith("(float8_e4m3fn[2, 3], [0]")
    assert "small_models.py:" in refused.source_line
    assert "aten.relu.default" not in by_operator
    assert f"\n    method forward: node {refused.node} {refused.call}, from {refused.source_line}" in str(
        error
    )


def test_calls_in_branches_are_checked() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(
            x.sum() > 0,
            lambda x: x.to(torch.float8_e5m2).sum(0, dtype=torch.float32),
            lambda x: x[0].clone(),
            (x,),
        )

    problems = _problems(edge_of(function, random(2, 3))).problems
    assert "aten.sum.dim_IntList" in [problem.operator for problem in problems]


def test_a_call_is_asked_about_once_per_kind_of_argument(monkeypatch) -> None:
    from pteron import _native

    asked = []

    def check_call(*call: Any) -> None:
        asked.append(call)
        original(*call)

    original = _native.check_call
    monkeypatch.setattr(_native, "check_call", check_call)

    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            x = torch.sin(x)
        return x

    edge_of(function, random(3)).to_executorch()
    assert len(asked) == 1


@pytest.mark.parametrize("name", sorted(CASES))
def test_nothing_is_wrong_with_what_runs(name: str) -> None:
    for config in (None, PORTABLE):
        assert edge_program_of(name).to_executorch(config).buffer


_RARE: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], bool]] = {
    "clone": (lambda x: x.clone(), True),
    "slice": (lambda x: x[1:].clone(), True),
    "cat": (lambda x: torch.cat([x, x]), False),
    "add": (lambda x: x + x, False),
}


@pytest.mark.parametrize("name", _RARE)
@pytest.mark.parametrize("dtype", [torch.uint16, torch.float8_e4m3fn])
def test_what_the_portable_kernels_refuse_is_known(name: str, dtype: torch.dtype) -> None:
    """The list is what ExecuTorch's own runtime says."""
    runtime = pytest.importorskip("executorch.runtime").Runtime.get()
    function, is_taken = _RARE[name]
    value = torch.ones(2, 2).to(dtype)
    edge = edge_of(function, value)
    if is_taken:
        buffer = edge.to_executorch(PORTABLE).buffer
    else:
        text = str(_problems(edge, PORTABLE))
        assert f"takes no {dtype}; cast before the call" in text
        # With the names of its operators alone the file is written, and the runtime refuses to run it.
        names = kernel_names("executorch-portable")
        buffer = edge.to_executorch(ExecutorchBackendConfig(kernels=names)).buffer
    method = runtime.load_program(buffer).load_method("forward")
    if is_taken:
        method.execute([value])
    else:
        with pytest.raises(RuntimeError):
            method.execute([value])


def test_a_call_that_leaves_out_a_result_is_listed() -> None:
    class WeightGradients(torch.nn.Module):
        def forward(self, gradient, x, weight):
            return torch.ops.aten.convolution_backward(
                gradient, x, weight, None, [1], [0], [1], False, [0], 1, [False, True, False]
            )[1]

    edge = edge_of(WeightGradients(), random(1, 2, 3), random(1, 2, 5), random(2, 2, 3))
    with pytest.raises(UnsupportedProgramError, match="leaves out its result 'out0'"):
        edge.to_executorch(PORTABLE)


def test_an_input_is_named_by_its_place() -> None:
    def function(x: torch.Tensor, settings: dict[str, Any]) -> torch.Tensor:
        return x + settings["scale"][1].to(torch.float32)

    settings = {"scale": [torch.ones(3), torch.ones(3).to(torch.float8_e8m0fnu)]}
    problems = _problems(edge_of(function, random(3), settings)).problems
    whats = [problem.what for problem in problems]
    assert any(
        what.startswith("input args[1]['scale'][1]: element type torch.float8_e8m0fnu cannot be stored")
        for what in whats
    ), whats


def test_keys_that_cannot_be_stored_are_listed_beside_other_problems() -> None:
    def function(d: dict[Any, torch.Tensor]) -> torch.Tensor:
        return torch.special.spherical_bessel_j0(d[(1, 2)])

    problems = _problems(edge_of(function, {(1, 2): random(3)})).problems
    whats = " ".join(problem.what for problem in problems)
    assert "dict key (1, 2) in the inputs or outputs cannot be stored" in whats
    assert "the target has no kernel aten::special_spherical_bessel_j0.out" in whats


def test_a_list_of_problems_is_grouped_by_reason() -> None:
    same = [
        Problem("forward", "aten.sin.default", "is bad", f"m.py:{n}", "(float32[2])", f"sin_{n}")
        for n in range(10)
    ]
    text = problems_text([*same, Problem("encode", None, "is odd", "m.py:99")])
    lines = text.splitlines()
    assert lines[0] == "  aten.sin.default: is bad"
    assert lines[1] == "    method forward: node sin_0 (float32[2]), from m.py:0"
    assert lines[9] == "    and 2 more places"
    assert lines[10:] == ["  program: is odd", "    method encode: from m.py:99"]


def test_what_load_would_refuse_is_an_error_of_export(monkeypatch) -> None:
    """Calls are fine one by one; should they not fit together, the export says so, not the first load."""
    from pteron.exir import lower_program

    def emit_badly(*args: Any, **kwargs: Any) -> Any:
        emitted = emit_program(*args, **kwargs)
        instructions = emitted.program.execution_plan[0].chains[0].instructions
        instructions[0].instr_args.args[-1] = 0
        return emitted

    emit_program = lower_program.emit_program
    monkeypatch.setattr(lower_program, "emit_program", emit_badly)
    error = _problems(edge_of(lambda x: x.exp().cumsum(0), random(5)))
    assert "the runtime would refuse to load it" in str(error)
    assert "the return of a call is not its output" in str(error)
    assert "small_models.py:" in error.problems[0].source_line


def test_load_is_asked_without_the_bytes_of_weights() -> None:
    edge = edge_program_of("mlp")
    config = ExecutorchBackendConfig()
    emitted, _ = lower_programs({"forward": edge.exported_program()}, {}, config)
    assert check_load(emitted.program, config.serialization_options()) == []
    plan = emitted.program.execution_plan[0]
    call = next(i.instr_args for i in plan.chains[0].instructions)
    call.args.pop()
    [error] = check_load(emitted.program, config.serialization_options())
    assert "a call has the wrong number of arguments" in str(error)
    assert (error.method, error.instruction) == ("forward", 0)
    assert "linear.py:" in str(error.source_line)
