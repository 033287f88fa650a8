"""What cannot run on the target is found at export, all of it at once."""

from __future__ import annotations

import pytest
import torch

from pteron.errors import ExportError, UnsupportedProgramError
from pteron.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
from pteron.exir.config.backend_config import DynamicMemoryPlanningMode
from pteron.exir.memory.memory_planning_pass import MemoryPlanningPass
from pteron.exir.target.kernel_lists import EXECUTORCH_PORTABLE
from tests.exir.small_models import PORTABLE, Function, edge_of, random


def test_every_missing_kernel_is_listed_with_its_source_line() -> None:
    edge = edge_of(lambda x: (x.sin() + x.cos()).exp().sin(), random(3))
    with pytest.raises(UnsupportedProgramError) as caught:
        edge.to_executorch(ExecutorchBackendConfig(kernels=["aten::add.out"]))
    text = str(caught.value)
    for name in ("aten::sin.out", "aten::cos.out", "aten::exp.out"):
        assert f"the target has no kernel {name}" in text
    assert "aten::add.out" not in text
    assert text.count("small_models.py:") >= 3
    assert [problem.operator for problem in caught.value.problems] == [
        "aten.sin.default",
        "aten.cos.default",
        "aten.exp.default",
    ]
    assert caught.value.hint is not None


def test_all_methods_are_looked_at() -> None:
    captured = {name: torch.export.export(Function(f), (random(2),)) for name, f in _ROOTS.items()}
    with pytest.raises(UnsupportedProgramError) as caught:
        to_edge(captured).to_executorch(ExecutorchBackendConfig(kernels=[]))
    assert [problem.method for problem in caught.value.problems] == ["first", "second"]


_ROOTS = {"first": torch.sin, "second": torch.cos}


def test_an_operator_that_can_have_no_out_variant_is_a_problem() -> None:
    with torch.library._scoped_library("pteron_test_problems", "FRAGMENT") as library:
        library.define("mixed(Tensor x) -> (Tensor, Tensor[])")
        library.impl("mixed", lambda x: (x + x, [x]), "CompositeExplicitAutograd")
        edge = edge_of(lambda x: torch.ops.pteron_test_problems.mixed(x)[0], random(2))
        with pytest.raises(UnsupportedProgramError, match=r"mixed\.default: returns a list beside"):
            edge.to_executorch(PORTABLE)


def test_a_dimension_without_bound_is_a_problem() -> None:
    edge = edge_of(lambda x: x + 1, random(3), dynamic_shapes=(({0: torch.export.Dim("n", min=2)},),))
    with pytest.raises(
        UnsupportedProgramError, match=r"dimension 0 .* has no upper bound; give it one with"
    ) as caught:
        edge.to_executorch(PORTABLE)
    assert len(caught.value.problems) >= 1


def test_symbolic_arithmetic_without_instruction_is_a_problem() -> None:
    edge = edge_of(
        lambda x: x.sum() * (x.shape[0] ** 2),
        random(3),
        dynamic_shapes=(({0: torch.export.Dim("n", min=2, max=9)},),),
    )
    problems = []
    try:
        edge.to_executorch(PORTABLE)
    except UnsupportedProgramError as error:
        problems = [problem.what for problem in error.problems]
    # PyTorch writes small powers as products in some versions; then nothing is wrong.
    assert all("on symbolic numbers has no instruction" in what for what in problems)


def test_a_loop_needs_the_operators_that_it_is_made_of() -> None:
    from torch._higher_order_ops.map import map as map_over

    def function(xs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return map_over(lambda x, y: torch.special.spherical_bessel_j0(x) + y, xs, y)

    edge = edge_of(function, random(3, 2), random(2))
    kernels = EXECUTORCH_PORTABLE - {"executorch_prim::et_copy_index.tensor"}
    with pytest.raises(UnsupportedProgramError) as caught:
        edge.to_executorch(ExecutorchBackendConfig(kernels=kernels))
    found = {problem.operator: problem for problem in caught.value.problems}
    assert "executorch_prim::et_copy_index.tensor" in found["map_impl"].what
    # The body is looked at as well.
    assert "aten.special_spherical_bessel_j0.default" in found
    assert all(".py:" in problem.source_line for problem in found.values())


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(ExportError, match="kernels='npu' is not a known target"):
        ExecutorchBackendConfig(kernels="npu")


@pytest.mark.parametrize(
    "options",
    [
        {"do_quant_fusion_and_const_prop": True},
        {"propagate_device_config": {"device": "cuda"}},
        {"to_out_var_pass": lambda module: module},
        {"sym_shape_eval_pass": lambda module: module},
        {"dynamic_memory_planning_mode": DynamicMemoryPlanningMode.SYMBOLIC},
        {"reinplace_extra_ops": frozenset()},
        {"segment_alignment": 100},
        {"delegate_alignment": 0},
        {"memory_planning_pass": lambda module: module},
    ],
)
def test_settings_that_are_not_supported_are_refused(options) -> None:
    with pytest.raises(ExportError, match=next(iter(options))):
        ExecutorchBackendConfig(**options)


def test_a_refused_setting_says_what_it_would_do_and_the_way_without_it() -> None:
    with pytest.raises(ExportError, match=r"would find memory .* Dim\(max=...\) states; leave it at"):
        ExecutorchBackendConfig(dynamic_memory_planning_mode=DynamicMemoryPlanningMode.SYMBOLIC)


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(TypeError, match="speed"):
        ExecutorchBackendConfig(speed=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="preserve_ops: expected PyTorch operator overloads"):
        EdgeCompileConfig(preserve_ops=["aten.linear.default"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="preserve_ops: expected a list of PyTorch operator overloads, got"):
        EdgeCompileConfig(preserve_ops=torch.ops.aten.linear.default)  # type: ignore[arg-type]
    with pytest.raises(
        ExportError, match=r"memory_planning_pass=...\): no method 'run'; methods: \['forward'\]"
    ):
        edge_of(torch.sin, random(2)).to_executorch(
            ExecutorchBackendConfig(memory_planning_pass={"run": MemoryPlanningPass()})
        )
