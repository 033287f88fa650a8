"""Symbolic extents: right in both runtimes at several sizes, stated in the file, checked at run time."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import sympy
import torch
from torch.export import Dim, export
from torch.utils._pytree import tree_leaves
from torch.utils._sympy.functions import FloorDiv, Max, Mod, PythonMod

import pteron
from pteron.errors import InputError, KernelError, UnsupportedProgramError
from pteron.exir import ExecutorchProgramManager, to_edge
from pteron.exir.emit.interface import extent_text
from tests.exir.small_models import PORTABLE, Function

Call = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """`dynamic`: of the arguments. `more`: calls beside the example. `peer`: whether ExecuTorch runs it."""

    function: Callable[..., Any]
    args: Call
    dynamic: Any = None
    more: list[Call] = field(default_factory=list)
    peer: bool = True


_generator = torch.Generator().manual_seed(0)


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=_generator)


def _arithmetic(x: torch.Tensor) -> tuple[Any, ...]:
    n = x.shape[0]
    return n * 2 + 1, n // 2, n % 3, n / 2, -n, n**2, n**3, 7 - n


def _comparisons(x: torch.Tensor) -> tuple[Any, ...]:
    n = x.shape[0]
    is_large = n > 6
    return (
        torch.sym_max(n, 4) + torch.sym_min(n, 9),
        torch.sym_ite(is_large, 1, 2),
        is_large,
        torch.sym_not(is_large),
        n == 7,
        n != 7,
        n >= 6,
        n <= 6,
        n < 6,
    )


def _rounding(x: torch.Tensor) -> tuple[Any, ...]:
    half = x.shape[0] / 2
    return (
        torch.sym_float(x.shape[0]) * 0.5,
        math.ceil(half),
        math.floor(half),
        math.trunc(half),
        round(half),
        torch.sym_int(half),
        abs(3 - x.shape[0]),
        torch.sym_sum([x.shape[0], x.shape[0], 1]),
    )


def _item_as_size(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    size = n.item()
    torch._check(size >= 0)
    torch._check(size <= 8)
    return torch.zeros(size) + x.sum()


def _item_as_end(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    end = n.item()
    torch._check(end >= 0)
    torch._check(end <= x.shape[0])
    return x[:end] * 2


def _set_where(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[y > 0] = 1.0
    return y


def _set_rows(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[y[:, 0] > 0] = torch.arange(3.0)
    return y


_d = Dim("d", min=2, max=16)
_NONE = [(-torch.ones(4, 3),), (torch.ones(4, 3),)]
CASES = {
    "arithmetic": Case(_arithmetic, (_random(5),), ({0: _d},), [(_random(2),), (_random(16),)]),
    "comparisons": Case(_comparisons, (_random(5),), ({0: Dim("n", min=2, max=12)},), [(_random(7),)]),
    "rounding": Case(_rounding, (_random(5),), ({0: _d},), [(_random(2),), (_random(3),)]),
    "extent_as_factor": Case(
        lambda x: x * x.shape[0] / (x.shape[0] + 1), (_random(5),), ({0: _d},), [(_random(7),)]
    ),
    "double": Case(
        lambda x, y: x.view(-1, 2).sum(1) + y,
        (_random(8), _random(4)),
        ({0: 2 * _d}, {0: _d}),
        [(_random(12), _random(6))],
    ),
    "one_more": Case(
        lambda x, y: x[1:] + y, (_random(6), _random(5)), ({0: _d + 1}, {0: _d}), [(_random(9), _random(8))]
    ),
    "from_zero": Case(
        lambda x: (x * 2, x.sum(0), torch.cat([x, x])),
        (_random(5, 2),),
        ({0: Dim("z", min=0, max=9)},),
        [(_random(0, 2),), (_random(9, 2),)],
    ),
    "joined": Case(
        lambda x, y: torch.cat([x, y], 0).reshape(-1, 2) + 1,
        (_random(4, 2), _random(3, 2)),
        ({0: _d}, {0: Dim("e", max=9)}),
        [(_random(5, 2), _random(1, 2))],
    ),
    "expand": Case(
        lambda x: x[None].expand(x.shape[0], -1).tril() + torch.arange(x.shape[0]),
        (_random(5),),
        ({0: _d},),
        [(_random(7),)],
    ),
    "upsampled": Case(
        lambda x: torch.nn.functional.interpolate(x, scale_factor=2.0),
        (_random(1, 1, 4, 4),),
        ({2: _d, 3: Dim("w", min=2, max=8)},),
        [(_random(1, 1, 5, 3),)],
    ),
    "integer": Case(
        lambda x, n: (x[:n] * n, n + 1),
        (_random(5), 3),
        (None, Dim.DYNAMIC(min=1, max=5)),
        [(_random(5), 5)],
        peer=False,
    ),
    "nonzero": Case(lambda x: x.nonzero(), (_random(4, 3),), ({0: _d},), [(torch.ones(16, 3),), *_NONE]),
    "where": Case(lambda x: torch.where(x > 0)[0] * 2, (_random(4, 3),), ({0: _d},), _NONE),
    "masked_select": Case(
        lambda x: torch.masked_select(x, x > 0) * 2,
        (_random(4, 3),),
        ({0: _d},),
        [(torch.ones(16, 3),), *_NONE],
    ),
    "elements_by_mask": Case(lambda x: x[x > 0].sum(), (_random(4, 3),), ({0: _d},), _NONE),
    "rows_by_mask": Case(
        lambda x: x[x[:, 0] > 0] * 2, (_random(4, 3),), ({0: _d},), [(_random(9, 3),), *_NONE]
    ),
    "inner_by_mask": Case(lambda x: x[:, x[0] > 0] * 2, (_random(4, 3),), None, _NONE),
    "two_masks": Case(
        lambda x: torch.cat([x[x > 0], x[x > 1]]), (_random(4, 3),), ({0: _d},), [(_random(16, 3),), *_NONE]
    ),
    "put_by_mask": Case(
        lambda x: torch.index_put(x, (x > 0,), torch.tensor(7.0)), (_random(4, 3),), ({0: _d},), _NONE
    ),
    "set_where": Case(_set_where, (_random(4, 3),), None, _NONE),
    "set_rows": Case(_set_rows, (_random(4, 3),), None, _NONE),
    "item_as_size": Case(
        _item_as_size, (_random(3), torch.tensor(5)), None, [(_random(3), torch.tensor(n)) for n in (0, 8)]
    ),
    "item_as_end": Case(
        _item_as_end, (_random(9), torch.tensor(5)), None, [(_random(9), torch.tensor(n)) for n in (0, 9)]
    ),
}


def _lowered(function: Callable[..., Any], args: Call, dynamic: Any) -> ExecutorchProgramManager:
    captured = export(Function(function), args, dynamic_shapes=None if dynamic is None else (dynamic,))
    return to_edge(captured).to_executorch(PORTABLE)


@pytest.fixture(scope="module", params=CASES)
def lowered(request: pytest.FixtureRequest) -> tuple[Case, ExecutorchProgramManager]:
    """A case and its program for portable kernels, which this runtime runs too."""
    case = CASES[request.param]
    return case, _lowered(case.function, case.args, case.dynamic)


def _expect_eager(case: Case, run: Callable[[list[Any]], list[Any]]) -> None:
    for call in (case.args, *case.more):
        expected = tree_leaves(case.function(*copy.deepcopy(call)))
        for got, want in zip(run(list(call)), expected, strict=True):
            if isinstance(want, torch.Tensor):
                torch.testing.assert_close(torch.as_tensor(got), want, rtol=1e-5, atol=1e-5)
            else:
                assert (type(got), got) == (type(want), want)


def test_sizes_are_as_in_eager_mode(lowered: tuple[Case, ExecutorchProgramManager]) -> None:
    case, manager = lowered
    _expect_eager(case, pteron.load(manager.buffer).load_method().execute)


@pytest.mark.peer
def test_executorch_agrees(lowered: tuple[Case, ExecutorchProgramManager]) -> None:
    runtime = pytest.importorskip("executorch.runtime", reason="needs the executorch wheel")
    case, manager = lowered
    method = runtime.Runtime.get().load_program(manager.buffer).load_method("forward")
    if not case.peer:
        with pytest.raises(RuntimeError, match="failed with error"):
            _expect_eager(case, method.execute)
        return
    _expect_eager(case, method.execute)


def test_derived_extents_are_checked_at_run_time() -> None:
    case = CASES["double"]
    method = pteron.load(_lowered(case.function, case.args, case.dynamic).buffer).load_method()
    with pytest.raises(InputError, match=r"breaks the relation 2\*s\d=4..32") as caught:
        method.execute([_random(10), _random(4)])
    text = str(caught.value)
    assert "'args_0'" in text or "argument 'a" in text, text
    assert "expected 8, from the extents of input" in text
    assert "float32[10]" in text


def test_an_extent_that_no_input_has_by_itself_is_solved_for() -> None:
    manager = _lowered(
        lambda x, y: x.view(-1, 8).sum(1) + y.view(-1, 2).sum(1),
        (_random(24), _random(6)),
        ({0: 8 * _d}, {0: 2 * _d}),
    )
    method = pteron.load(manager.buffer).load_method()
    x, y = _random(40), _random(10)
    got = torch.as_tensor(method.execute([x, y])[0])
    torch.testing.assert_close(got, x.view(-1, 8).sum(1) + y.view(-1, 2).sum(1))
    with pytest.raises(InputError, match="expected a multiple that gives its symbol a value"):
        method.execute([_random(41), y])
    with pytest.raises(InputError, match="expected 10, from the extents of input"):
        method.execute([x, _random(12)])


def test_more_than_the_model_bounds_is_an_error_and_not_memory_overrun() -> None:
    def few(x: torch.Tensor) -> torch.Tensor:
        rows = x[x[:, 0] > 0]
        torch._check(rows.shape[0] <= 2)
        return rows * 2

    method = pteron.load(_lowered(few, (torch.tensor([[1.0], [-1.0], [-1.0]]),), None).buffer).load_method()
    assert method.execute([torch.tensor([[1.0], [2.0], [-1.0]])])[0].tolist() == [[2.0], [4.0]]
    with pytest.raises(KernelError, match="more elements than the program has room for"):
        method.execute([torch.ones(3, 1)])
    assert method.execute([torch.tensor([[1.0], [-2.0], [-1.0]])])[0].tolist() == [[2.0]]


def test_unbounded_extents_are_reported_once_each_with_the_way_out() -> None:
    class Unbounded(torch.nn.Module):
        def forward(self, x: torch.Tensor, n: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
            a = torch.zeros(n.item()) + 1
            b = torch.ones(m.item()) * 2
            return x + a.sum() + b.sum()

    captured = export(Unbounded(), (_random(3, 3), torch.tensor(2), torch.tensor(3)))
    with pytest.raises(UnsupportedProgramError) as caught:
        to_edge(captured).to_executorch(PORTABLE)
    assert len(caught.value.problems) == 2
    for problem in caught.value.problems:
        assert "has no upper bound" in problem.what
        assert "torch._check(n <= ...)" in problem.what
        assert "test_dynamic_shapes.py" in problem.source_line


def test_an_unbounded_input_names_its_dimension() -> None:
    with pytest.raises(UnsupportedProgramError, match=r"input .*dimension 1 .*torch.export.Dim\(max=...\)"):
        _lowered(lambda x: x * 2, (_random(3, 3),), ({1: Dim.DYNAMIC},))


def test_numbers_without_instructions_are_refused_together() -> None:
    def odd(x: torch.Tensor) -> torch.Tensor:
        return x * x.shape[0] ** -0.5 + torch.sym_sqrt(x.shape[0])

    with pytest.raises(UnsupportedProgramError) as caught:
        _lowered(odd, (_random(5),), ({0: _d},))
    assert {problem.operator for problem in caught.value.problems} == {"pow", "_sym_sqrt"}


def test_meta_functions_that_read_extents_do_not_fix_them() -> None:
    manager = _lowered(CASES["upsampled"].function, CASES["upsampled"].args, CASES["upsampled"].dynamic)
    [entry] = [e for e in manager.executorch_program.named_data if e.key == "pteron.interface"]
    shape = json.loads(bytes(entry.data))["methods"]["forward"]["inputs"][0]["shape"]
    assert [(e["min"], e["max"]) for e in shape[2:]] == [(2, 16), (2, 8)]


def test_expressions_as_text() -> None:
    a, b = sympy.Symbol("a", integer=True, positive=True), sympy.Symbol("b", integer=True, positive=True)
    name = {"a": "s0", "b": "s1"}.__getitem__
    texts = {
        2 * a + 1: "2*s0 + 1",
        a - b: "s0 - s1",
        1 - a: "1 - s0",
        -a: "-1*s0",
        a**3: "s0*s0*s0",
        (a + 1) * (b - 2): "(s0 + 1)*(s1 - 2)",
        FloorDiv(a + 1, 2): "(s0 + 1) // 2",
        2 * FloorDiv(a, 3) + b: None,
        Mod(a, 8): "s0 % 8",
        PythonMod(a, b): "s0 % s1",
        Max(a, 4) + 1: None,
    }
    for expression, text in texts.items():
        got = extent_text(expression, name)
        assert got is not None
        if text is not None:
            assert got.replace("(-1)", "-1") == text or sorted(got.split(" + ")) == sorted(text.split(" + "))
        python = got.replace("//", "//")
        assert eval(python, {"s0": 9, "s1": 5, "max": max, "min": min}) == int(
            expression.subs({a: 9, b: 5})
        ), got
    assert extent_text(sympy.sqrt(a), name) is None
    assert extent_text(a / 2, name) is None
