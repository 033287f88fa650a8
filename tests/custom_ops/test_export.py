"""Custom operators of torch.library from model to run, without a list of kernels or an out variant."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.library import custom_op

import pteron
from pteron.errors import UnsupportedProgramError, VerificationError
from pteron.exir import ExecutorchBackendConfig, to_edge
from pteron.exir.emit import operator_origins
from tests.custom_ops import keep
from tests.support.own_interpreter import run_alone


@custom_op("pteron_tests::scaled", mutates_args=())
def scaled(x: Tensor, factor: float, *, shift: int = 0) -> Tensor:
    return x * factor + shift


@scaled.register_fake
def _(x: Tensor, factor: float, *, shift: int = 0) -> Tensor:
    return torch.empty_like(x)


@custom_op("pteron_tests::split_signs", mutates_args=())
def split_signs(x: Tensor, names: list[int] | None = None) -> tuple[Tensor, Tensor]:
    return x.clamp(min=0), (x < 0).to(torch.int64)


@split_signs.register_fake
def _(x: Tensor, names: list[int] | None = None) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.int64)


@custom_op("pteron_tests::rows", mutates_args=())
def rows(tables: list[Tensor]) -> list[Tensor]:
    return [table[:1].clone() for table in tables]


@rows.register_fake
def _(tables: list[Tensor]) -> list[Tensor]:
    return [table.new_empty(1, *table.shape[1:]) for table in tables]


@custom_op("pteron_tests::kept", mutates_args=())
def kept(x: Tensor) -> Tensor:
    return x[x > 0]


@kept.register_fake
def _(x: Tensor) -> Tensor:
    count = torch.library.get_ctx().new_dynamic_size(max=x.numel())
    return x.new_empty(count)


@custom_op("pteron_tests::packed_linear", mutates_args=())
def packed_linear(x: Tensor, packed: Tensor, scales: Tensor, columns: int) -> Tensor:
    low, high = packed & 15, packed >> 4
    weight = torch.stack([low, high], dim=-1).reshape(columns, -1).to(torch.float32) - 8
    return x @ (weight * scales[:, None]).T


@packed_linear.register_fake
def _(x: Tensor, packed: Tensor, scales: Tensor, columns: int) -> Tensor:
    return x.new_empty(*x.shape[:-1], columns)


KERNELS: dict[str, Callable[..., Any]] = {
    "pteron_tests::scaled": lambda x, factor, shift: (x * factor + shift).astype(x.dtype),
    "pteron_tests::split_signs": lambda x, names: (np.maximum(x, 0), (x < 0).astype("int64")),
    "pteron_tests::rows": lambda tables: [table[:1] for table in tables],
    "pteron_tests::kept": lambda x: x[x > 0],
}


@custom_op("pteron_tests::add_to", mutates_args=("x",))
def add_to(x: Tensor, y: Tensor, *, by: float = 1.0) -> None:
    x.add_(y * by)


@custom_op("pteron_tests::push", mutates_args=("cache", "count"))
def push(rows: Tensor, cache: Tensor, count: Tensor) -> Tensor:
    cache.copy_(torch.cat([cache[len(rows) :], rows]))
    count.add_(len(rows))
    return rows.sum(0)


@push.register_fake
def _(rows: Tensor, cache: Tensor, count: Tensor) -> Tensor:
    return rows.new_empty(rows.shape[1])


CHANGING: dict[str, Callable[..., Any]] = {
    "pteron_tests::add_to": lambda x, y, by: x + y * np.float32(by),
    "pteron_tests::push": lambda rows, cache, count: (
        rows.sum(0),
        np.concatenate([cache[len(rows) :], rows]),
        count + len(rows),
    ),
}


@pytest.fixture(autouse=True)
def registered() -> None:
    for name, kernel in (KERNELS | CHANGING).items():
        pteron.register_kernel(name, kernel, replace=True)


class Model(torch.nn.Module):
    def __init__(self, compute: Callable[..., Any]) -> None:
        super().__init__()
        self.compute = compute
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, *args: Any) -> Any:
        return self.compute(self, *args)


def _exported(compute: Callable[..., Any], *args: Any, **options: Any) -> Any:
    torch.manual_seed(0)
    return _made(Model(compute), *args, **options)


def _made(module: torch.nn.Module, *args: Any, **options: Any) -> Any:
    return pteron.export(module.eval(), args, report=False, **options)


MODELS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "between layers": (lambda m, x: m.linear(scaled(m.linear(x), 0.5, shift=3)).relu(), (torch.randn(2, 4),)),
    "alone": (lambda m, x: scaled(x, 2.0), (torch.randn(3),)),
    "of a view": (lambda m, x: scaled(x.t(), 2.0), (torch.randn(2, 3),)),
    "in channels last": (
        lambda m, x: scaled(x, 2.0) + 1,
        (torch.randn(1, 2, 3, 4).to(memory_format=torch.channels_last),),
    ),
    "two results": (lambda m, x: split_signs(x * 2), (torch.randn(5),)),
    "one of two results": (lambda m, x: split_signs(x, [1, 2])[1] + 1, (torch.randn(5),)),
    "lists": (lambda m, x, y: [row * 2 for row in rows([x, y + 1])], (torch.randn(2, 3), torch.randn(4))),
    "twice": (lambda m, x: scaled(scaled(x, 2.0), 3.0, shift=1), (torch.randn(2, 2),)),
    "float64": (lambda m, x: scaled(x, 2.0), (torch.randn(3, dtype=torch.float64),)),
    "bfloat16": (lambda m, x: scaled(x, 2.0).float(), (torch.randn(3).bfloat16(),)),
    "half": (lambda m, x: scaled(x, 2.0).float(), (torch.randn(3).half(),)),
    "in a branch": (
        lambda m, x: torch.cond(x.sum() > 0, lambda x: scaled(x, 2.0), lambda x: x + 1, (x,)),
        (torch.ones(3),),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_runs_with_kernels_in_python(name: str) -> None:
    compute, args = MODELS[name]
    # The example is compared with the model by `export`.
    made = _exported(compute, *args)
    assert made.report.check.outputs


def test_extents_that_vary() -> None:
    rows_of_x = torch.export.Dim("n", min=1, max=16)
    model = Model(lambda m, x: scaled(m.linear(x), 2.0)).eval()
    made = pteron.export(model, (torch.randn(3, 4),), dynamic_shapes=(({0: rows_of_x},),), report=False)
    program = made.load()
    for n in (1, 3, 16):
        x = torch.randn(n, 4)
        torch.testing.assert_close(torch.as_tensor(program.run("forward", x)), model(x))


def test_a_result_whose_extent_depends_on_data() -> None:
    model = Model(lambda m, x: kept(x) * 2)
    program = pteron.export(model, (torch.tensor([1.0, -1, 2]),), report=False).load()
    for x in ([1.0, -1, 2], [-1.0, -1, -1], [1.0, 2, 3]):
        assert np.asarray(program.run("forward", torch.tensor(x))).tolist() == [2 * e for e in x if e > 0]


def test_packed_weights_are_given_to_the_kernel() -> None:
    torch.manual_seed(0)
    quantised, scales = torch.randint(0, 16, (6, 8)), torch.rand(6)
    model = Model(lambda m, x: packed_linear(x, m.packed, m.scales, 6))
    model.register_buffer("packed", (quantised[:, ::2] | quantised[:, 1::2] << 4).to(torch.uint8))
    model.register_buffer("scales", scales)

    def kernel(x: Any, packed: Any, scales: Any, columns: int) -> Any:
        assert packed.dtype == np.uint8
        assert packed.shape == (6, 4)
        weight = np.stack([packed & 15, packed >> 4], axis=-1).reshape(columns, -1).astype("float32") - 8
        return x @ (weight * scales[:, None]).T

    pteron.register_kernel("pteron_tests::packed_linear", kernel, replace=True)
    made = pteron.export(model.eval(), (torch.randn(2, 8),), report=False)
    assert made.report.check.outputs
    assert made.program.nbytes < 8_000


def _operators(made: Any) -> list[str]:
    return list(made.load().operators("forward"))


def test_a_functional_operator_is_called_by_the_name_of_its_out_variant() -> None:
    assert "pteron_tests::scaled.out" in _operators(_exported(lambda m, x: scaled(x, 2.0), torch.randn(3)))


@pytest.fixture
def library() -> Iterator[Any]:
    with torch.library._scoped_library("pteron_scoped", "DEF") as library:
        yield library


def test_an_out_variant_that_is_defined_is_the_one_that_is_called(library: Any) -> None:
    library.define("half(Tensor x) -> Tensor")
    library.define("half.into(Tensor x, *, Tensor(a!) result) -> Tensor(a!)")
    library.impl("half", lambda x: x / 2, "CompositeExplicitAutograd")
    pteron.register_kernel("pteron_scoped::half.into", lambda x: x / 2, replace=True)
    made = _exported(lambda m, x: torch.ops.pteron_scoped.half(x), torch.randn(3))
    assert _operators(made) == ["pteron_scoped::half.into"]
    assert made.report.check.outputs


def test_an_overload_has_a_name_of_its_own(library: Any) -> None:
    library.define("half.by(Tensor x, Scalar by, str mode, bool? flag=None) -> Tensor")
    library.impl("half.by", lambda x, by, mode, flag=None: x / by, "CompositeExplicitAutograd")
    seen: list[Any] = []

    def kernel(x: Any, *rest: Any) -> Any:
        seen[:] = rest
        return x / rest[0]

    pteron.register_kernel("pteron_scoped::half.by", kernel, replace=True)
    made = _exported(lambda m, x: torch.ops.pteron_scoped.half.by(x, 4, "fast"), torch.randn(3))
    assert _operators(made) == ["pteron_scoped::half.by_out"]
    assert seen == [4, "fast", None]


class Window(torch.nn.Module):
    """The last rows of all calls, and how many there were."""

    cache: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(4, 3))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        given, changed = x * 2, x + 1
        add_to(changed, given)
        total = push(changed, self.cache, self.count)
        add_to(changed, x, by=3.0)
        return changed, total, self.cache * 1, self.count + 0


@pytest.mark.parametrize("rows", [None, torch.export.Dim("rows", min=1, max=4)])
def test_arguments_that_an_operator_changes_have_new_values(rows: Any) -> None:
    """Of values and of buffers; the kernel returns them behind the results."""
    made = _made(Window(), torch.randn(2, 3), dynamic_shapes={"x": {0: rows}})
    assert [name for name in _operators(made) if "pteron_tests" in name] == [
        "pteron_tests::add_to.out",
        "pteron_tests::push.out",
    ]
    method, eager = made.load().load_method(), Window()
    for call in range(4):
        x = torch.randn(2 if rows is None else 1 + call, 3)
        for ours, theirs in zip(method(x.numpy()), eager(x), strict=True):
            torch.testing.assert_close(torch.from_numpy(np.asarray(ours)), theirs)
    np.testing.assert_allclose(method.get_state()["cache"], eager.cache)


REFUSED = {
    "changed(Tensor(a!)[] xs) -> Tensor": "changes its argument 'xs'; a custom operator in a program",
    "part(Tensor(a!) x) -> Tensor": "changes a part of a tensor here, or one tensor by two arguments",
    "both(Tensor(a!) x, Tensor(b!) y) -> Tensor": "changes a part of a tensor here, or one tensor by two",
    "count(Tensor x) -> (Tensor, int)": "returns int; let it return tensors",
    "mixed(Tensor x) -> (Tensor, Tensor[])": "returns a list beside other results",
}


GIVEN: dict[str, Callable[[Tensor], tuple[Any, ...]]] = {
    "changed": lambda x: ([x],),
    "part": lambda x: (x[1:],),
    "both": lambda x: (x, x),
}


@pytest.mark.parametrize("schema", REFUSED)
def test_an_operator_that_a_program_cannot_call_is_refused_with_its_line(library: Any, schema: str) -> None:
    name = schema.partition("(")[0]
    library.define(schema)

    results = {
        "changed": lambda xs: xs[0].clone(),
        "part": lambda x: x.clone(),
        "both": lambda x, y: x.clone(),
        "count": lambda x: (x + 1, 3),
        "mixed": lambda x: (x + 1, [x + 2]),
    }
    library.impl(name, results[name], "CPU")
    library.impl(name, results[name], "Meta")

    def model(m: Model, x: Tensor) -> Any:
        op, x = getattr(torch.ops.pteron_scoped, name), x + 1
        if name in GIVEN:
            return op(*GIVEN[name](x))
        return op(x)[0]

    with pytest.raises((UnsupportedProgramError, VerificationError)) as caught:
        _exported(model, torch.randn(3))
    assert f"pteron_scoped.{name}" in str(caught.value)
    assert re.search(REFUSED[schema], str(caught.value)), str(caught.value)
    assert "test_export.py" in str(caught.value)


def test_a_program_without_its_kernel_is_emitted_with_a_word(
    library: Any, caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    library.define("unknown(Tensor x) -> Tensor")
    library.impl("unknown", lambda x: x.clone(), "CompositeExplicitAutograd")
    with caplog.at_level(logging.WARNING):
        made = _exported(lambda m, x: torch.ops.pteron_scoped.unknown(x + 1), torch.randn(3))
    assert "pteron.register_kernel('pteron_scoped::unknown', function)" in caplog.text
    assert made.report.check.skipped == "no kernel is registered here for pteron_scoped::unknown.out"
    with pytest.raises(pteron.MissingOperatorError) as caught:
        made.load().load_method()
    assert "pteron_scoped::unknown.out (instruction 1)" in str(caught.value)
    assert "test_export.py" in str(caught.value.source_line)
    assert set(_operators(made)) - set(pteron.Runtime.shared().operators) == {"pteron_scoped::unknown.out"}


def test_a_list_of_kernels_says_what_the_target_has() -> None:
    edge = to_edge(torch.export.export(Model(lambda m, x: scaled(x, 2.0)), (torch.randn(3),)))
    edge.to_executorch(ExecutorchBackendConfig(kernels=["pteron_tests::scaled.out"]))
    with pytest.raises(
        UnsupportedProgramError, match=r"no kernel pteron_tests::scaled\.out; add it to the list"
    ):
        edge.to_executorch(ExecutorchBackendConfig(kernels=["aten::add.out"]))


def test_the_portable_target_takes_what_its_owner_links_in(caplog: pytest.LogCaptureFixture) -> None:
    edge = to_edge(torch.export.export(Model(lambda m, x: scaled(x, 2.0)), (torch.randn(3),)))
    with caplog.at_level(logging.WARNING):
        program = edge.to_executorch(ExecutorchBackendConfig(kernels="executorch-portable"))
    assert "needs one linked in, registered as 'pteron_tests::scaled.out'" in caplog.text
    x = np.ones(3, np.float32)
    assert np.asarray(pteron.load(program.buffer).run("forward", x)).tolist() == [2, 2, 2]


def test_the_file_names_the_package_that_defines_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("shapes_tests.ops")
    code = """
import torch
@torch.library.custom_op("pteron_origin::op", mutates_args=())
def op(x: torch.Tensor) -> torch.Tensor:
    return x.clone()
@op.register_fake
def _(x):
    return torch.empty_like(x)
"""
    monkeypatch.setitem(sys.modules, "shapes_tests.ops", module)
    exec(compile(code, "shapes_tests/ops.py", "exec"), module.__dict__)
    monkeypatch.setattr(operator_origins, "_packages", lambda: {"shapes_tests": ["numpy"]})
    operator_origins._origin.cache_clear()
    made = _exported(lambda m, x: module.op(x), torch.randn(3))
    stored = json.loads(bytes(made.load().named_data["pteron.interface"]))
    origin = {"module": "shapes_tests.ops", "package": "numpy", "version": np.__version__}
    assert stored["operators"] == {"pteron_origin::op.out": origin}
    with pytest.raises(pteron.MissingOperatorError) as caught:
        made.load().load_method()
    said = f"pteron_origin::op.out is of package numpy {np.__version__} (module shapes_tests.ops)"
    assert said in str(caught.value)


def test_a_file_without_custom_operators_says_nothing_of_them() -> None:
    made = _exported(lambda m, x: x + 1, torch.randn(3))
    assert "operators" not in json.loads(bytes(made.load().named_data["pteron.interface"]))


def test_an_operator_of_pytorch_without_kernel_can_get_one() -> None:
    # Kernels stay registered: in this process, later tests would find one for an operator of the tables.
    run_alone("import tests.custom_ops.test_export as t; t.check_kernel_for_an_operator_of_pytorch()")


def check_kernel_for_an_operator_of_pytorch() -> None:
    def compute(m: Model, x: Tensor, lengths: Tensor) -> Tensor:
        return torch.segment_reduce(x, "sum", lengths=lengths, unsafe=True)

    exported = torch.export.export(Model(compute), (torch.randn(4), torch.tensor([1, 3])))
    said = r"pteron\.register_kernel\('aten::segment_reduce\.out', function\)"
    with pytest.raises(VerificationError, match=said):
        to_edge(exported)

    def kernel(data: Any, reduce: str, lengths: Any, indices: Any, offsets: Any, *rest: Any) -> Any:
        assert (reduce, indices, offsets, rest) == ("sum", None, None, (0, True, None))
        return np.add.reduceat(data, np.cumsum(lengths) - lengths)

    pteron.register_kernel("aten::segment_reduce.out", kernel, replace=True)
    program = pteron.load(to_edge(exported).to_executorch().buffer)
    x, lengths = np.array([1, 2, 3, 4], np.float32), np.array([1, 3])
    assert np.asarray(program.run("forward", x, lengths)).tolist() == [1, 9]


def test_the_program_that_the_runtime_tests_run_is_what_is_exported() -> None:
    pteron.register_kernel(
        "pteron_example::add_scaled", lambda x, scale: x + np.float32(scale) * x, replace=True
    )
    x = np.array([[1, 2], [0, 0]], np.float32)
    for file in (keep.FILE.read_bytes(), keep.exported()):
        program = pteron.load(file)
        assert list(program.operators("forward"))[-1] == "pteron_example::add_scaled.out"
        assert np.asarray(program.run("forward", x)).tolist() == [[10.5], [1.5]]
