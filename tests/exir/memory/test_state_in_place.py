"""Updates of buffers: made in place where that is safe, right in both runtimes over several calls."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch.export import Dim, export
from torch.utils._pytree import tree_leaves

import pteron
from pteron.exir import ExecutorchBackendConfig, ExecutorchProgramManager, to_edge
from tests.exir.small_models import PORTABLE

Call = tuple[Any, ...]


class Stateful(torch.nn.Module):
    """A function of its buffers and its inputs."""

    def __init__(self, function: Callable[..., Any], buffers: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.function = function
        for name, value in buffers.items():
            self.register_buffer(name, value.clone(memory_format=torch.preserve_format))

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


@dataclass(frozen=True)
class Case:
    """`copies`: write-backs that stay."""

    function: Callable[..., Any]
    buffers: dict[str, torch.Tensor]
    calls: list[Call]
    copies: int
    dynamic: Any = None


def _generator(seed: int = 0) -> Callable[..., torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=generator)


_random = _generator()
_CACHE = torch.arange(48.0).reshape(1, 2, 8, 3)


def _assign_positions(m: Any, position: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    m.k[:, :, position] = x
    return m.k.sum(-1)


def _index_copy(m: Any, position: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    m.k.index_copy_(2, position, x)
    return m.k.sum(-1)


def _narrow(m: Any, start: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    at = start.item()
    torch._check(at >= 0)
    torch._check(at <= 6)
    m.k.narrow(2, at, 2).copy_(x)
    return m.k.sum(-1)


def _slice(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.k[:, :, 2:4] = x
    return m.k.sum(-1)


def _select(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.k[:, :, 3] = x
    return m.k * 2


def _scatter(m: Any, index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    m.k.scatter_(0, index, x)
    return m.k * 2


# PyTorch 2.15 captures the assignment as `where`, which is never in place; before, it was `index_put`.
_MASK_COPIES = int(torch.torch_version.TorchVersion(torch.__version__) >= (2, 15))


def _mask(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.k[m.k > x] = 0.5
    return m.k * 2


def _write_often(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m.k.add_(1)
    first = m.k.sum()
    m.k[0:2] = x
    second = m.k.sum(0)
    m.k.mul_(2)
    return first, second


def _read_old(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    old = m.k.clone()
    m.k[0:2] = x
    return old, m.k - old


def _read_old_late(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    view = m.k.view(-1)
    old = view * 1
    m.k[0:2] = x
    return old + view, m.k.sum()


def _swap(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    old = m.a.clone()
    m.a.copy_(m.b)
    m.b.copy_(old + x)
    return m.a * 1, m.b * 1


def _exchange(m: Any, x: torch.Tensor) -> torch.Tensor:
    old = m.a.clone()
    m.a.copy_(m.b)
    m.b.copy_(old)
    return x + 1


def _mix(m: Any, x: torch.Tensor) -> torch.Tensor:
    a, b = m.a + x, m.b * 2
    m.a.copy_(b)
    m.b.copy_(a)
    return a - b


def _count(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.n += 1
    return x + m.n


def _returned(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.k.add_(x)
    return m.k


def _old_and_new(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    old = m.k * 1
    m.k.add_(x)
    return old, m.k, m.k


def _branch(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = torch.cond(x.sum() > 0, lambda x, k: x + k, lambda x, k: x - k, (x, m.k))
    m.k.add_(1)
    return y


def _branch_after(m: Any, x: torch.Tensor) -> torch.Tensor:
    old = m.k * 1
    m.k.add_(1)
    return torch.cond(x.sum() > 0, lambda x, k, o: x + k * o, lambda x, k, o: x - k, (x, m.k, old))


def _dtypes(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m.h.add_(1)
    m.i.mul_(2)
    m.b.logical_not_()
    m.u.add_(3)
    return m.h + x.half(), m.i * 1, m.b.clone(), m.u + 0


def _last_in(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.k.copy_(torch.cat([m.k[1:], x[None]]))
    return m.k * 1


def _one_value_for_two(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.a.copy_(x)
    m.b.copy_(x)
    return m.a + m.b


def _copied_on(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m.a.add_(x)
    m.b.copy_(m.a)
    return m.a * 1, m.b


def _view_copied_on(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    m.a.copy_(y)
    m.b.copy_(y)
    m.a[1:].mul_(2)
    return y


def _copy_casts(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m.i.copy_(x)
    m.f.copy_(m.i)
    m.w.copy_(x)
    return m.i * 2, m.f * 2, m.w * 2


def _product(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.k.copy_(m.k @ x)
    return m.k.sum()


def _twice(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.k.copy_((m.k * m.k + x) * m.k)
    return m.k.sum()


def _broadcast(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.k.add_(m.k[0:1] + x)
    return m.k * 1


def _chain(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.a.add_(x)
    m.b.add_(m.a)
    m.a.add_(m.b)
    return m.b * 1


def _empty(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.z.add_(1)
    m.k.add_(x)
    return m.k.sum() + m.z.sum()


def _rows(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.k[: x.shape[0]] = x
    return m.k.sum(1)


_PAIR = {"a": _random(3), "b": _random(3)}
_POSITIONS = [(torch.tensor([p]), _random(1, 2, 1, 3)) for p in (2, 3, 2)]
CASES = {
    "positions": Case(_assign_positions, {"k": _CACHE}, _POSITIONS, 0),
    "index_copy": Case(_index_copy, {"k": _CACHE}, _POSITIONS, 0),
    "narrow": Case(_narrow, {"k": _CACHE}, [(torch.tensor(p), _random(1, 2, 2, 3)) for p in (2, 3, 6)], 0),
    "slice": Case(_slice, {"k": _CACHE}, [(_random(1, 2, 2, 3),)] * 2, 0),
    "select": Case(_select, {"k": _CACHE}, [(_random(1, 2, 3),), (_random(1, 2, 3),)], 0),
    "scatter": Case(
        _scatter, {"k": _random(4, 3)}, [(torch.tensor([[r, 2, 0]]), _random(1, 3)) for r in (1, 3)], 0
    ),
    "mask": Case(_mask, {"k": _random(4, 3)}, [(_random(4, 3),), (_random(4, 3),)], _MASK_COPIES),
    "write_often": Case(_write_often, {"k": _random(4, 3)}, [(_random(2, 3),), (_random(2, 3),)], 0),
    "read_old": Case(_read_old, {"k": _random(4, 3)}, [(_random(2, 3),), (_random(2, 3),)], 0),
    "read_old_late": Case(_read_old_late, {"k": _random(4, 3)}, [(_random(2, 3),), (_random(2, 3),)], 0),
    "swap": Case(_swap, _PAIR, [(_random(3),), (_random(3),)], 1),
    "exchange": Case(_exchange, _PAIR, [(_random(3),), (_random(3),)], 1),
    "mix": Case(_mix, _PAIR, [(_random(3),), (_random(3),), (_random(3),)], 1),
    "one_value_for_two": Case(_one_value_for_two, _PAIR, [(_random(3),), (_random(3),)], 1),
    "copied_on": Case(_copied_on, _PAIR, [(_random(3),), (_random(3),)], 1),
    "view_copied_on": Case(_view_copied_on, _PAIR, [(_random(3),), (_random(3),)], 0),
    "copy_casts": Case(
        _copy_casts,
        {"i": torch.zeros(3, dtype=torch.int64), "f": torch.zeros(3), "w": torch.zeros(2, 3)},
        [(torch.tensor([1.6, -2.7, 3.2]),), (torch.tensor([0.4, 9.9, -0.1]),)],
        0,
    ),
    "count": Case(_count, {"n": torch.tensor(3)}, [(_random(3),), (_random(3),)], 0),
    "returned": Case(_returned, {"k": _random(3)}, [(_random(3),), (_random(3),)], 1),
    "old_and_new": Case(_old_and_new, {"k": _random(3)}, [(_random(3),), (_random(3),)], 1),
    "branch": Case(_branch, {"k": _random(3)}, [(torch.ones(3),), (-torch.ones(3),), (torch.ones(3),)], 0),
    "branch_after": Case(_branch_after, {"k": _random(3)}, [(torch.ones(3),), (-torch.ones(3),)], 0),
    "dtypes": Case(
        _dtypes,
        {
            "h": _random(3).half(),
            "i": torch.tensor([1, 2], dtype=torch.int32),
            "b": torch.tensor([True, False]),
            "u": torch.tensor([250, 3], dtype=torch.uint8),
        },
        [(_random(3),), (_random(3),)],
        0,
    ),
    "channels_last": Case(
        _returned,
        {"k": _random(1, 3, 4, 4).to(memory_format=torch.channels_last)},
        [(_random(1, 3, 4, 4).to(memory_format=torch.channels_last),)] * 2,
        1,
    ),
    "last_in": Case(_last_in, {"k": _random(4, 3)}, [(_random(3),), (_random(3),)], 0),
    "product": Case(_product, {"k": _random(3, 3)}, [(_random(3, 3),), (_random(3, 3),)], 1),
    "twice": Case(_twice, {"k": _random(3)}, [(_random(3),), (_random(3),)], 0),
    "broadcast": Case(_broadcast, {"k": _random(4, 3)}, [(_random(3),), (_random(3),)], 0),
    "chain": Case(_chain, _PAIR, [(_random(3),), (_random(3),)], 0),
    "empty": Case(_empty, {"z": torch.zeros(0, 3), "k": _random(3)}, [(_random(3),), (_random(3),)], 1),
    "rows": Case(
        _rows,
        {"k": _random(8, 3)},
        [(_random(3, 3),), (_random(5, 3),)],
        0,
        dynamic=({0: Dim("n", min=1, max=8)},),
    ),
}


@pytest.fixture(scope="module", params=CASES)
def lowered(request: pytest.FixtureRequest) -> tuple[Case, ExecutorchProgramManager]:
    """A case and its program for portable kernels, which this runtime runs too."""
    case = CASES[request.param]
    model = Stateful(case.function, case.buffers)
    dynamic = None if case.dynamic is None else (case.dynamic,)
    with torch.no_grad():
        captured = export(model, case.calls[0], dynamic_shapes=dynamic)
    return case, to_edge(captured).to_executorch(PORTABLE)


def _expect_eager(case: Case, run: Callable[[Call], list[Any]]) -> None:
    model = Stateful(case.function, case.buffers)
    for call in case.calls:
        with torch.no_grad():
            expected = [value.clone() for value in tree_leaves(model(*copy.deepcopy(call)))]
        for got, want in zip(run(call), expected, strict=True):
            torch.testing.assert_close(torch.as_tensor(got), want, rtol=1e-5, atol=1e-5)


def test_state_is_as_in_eager_mode(lowered: tuple[Case, ExecutorchProgramManager]) -> None:
    case, manager = lowered
    method = pteron.load(manager.buffer).load_method()
    _expect_eager(case, lambda call: method.execute(list(call)))
    method.reset_state()
    _expect_eager(case, lambda call: method.execute(list(call)))


@pytest.mark.peer
def test_executorch_agrees(lowered: tuple[Case, ExecutorchProgramManager]) -> None:
    runtime = pytest.importorskip("executorch.runtime", reason="needs the executorch wheel")
    case, manager = lowered
    method = runtime.Runtime.get().load_program(manager.buffer).load_method("forward")
    _expect_eager(case, lambda call: method.execute(list(call)))


def test_write_backs_stay_only_where_they_must(lowered: tuple[Case, ExecutorchProgramManager]) -> None:
    case, manager = lowered
    assert str(manager.exported_program().graph).count("aten.copy_.default") == case.copies


def test_the_switch_keeps_all_write_backs() -> None:
    case = CASES["write_often"]
    captured = export(Stateful(case.function, case.buffers), case.calls[0])
    manager = to_edge(captured).to_executorch(
        ExecutorchBackendConfig(kernels="executorch-portable", run_reinplace_pass=False)
    )
    assert str(manager.exported_program().graph).count("aten.copy_.default") == 1
    method = pteron.load(manager.buffer).load_method()
    _expect_eager(case, lambda call: method.execute(list(call)))


_ELEMENTWISE = {
    "float": (
        *("add_", "sub_", "mul_", "div_"),
        *("neg_", "abs_", "exp_", "sqrt_", "rsqrt_", "relu_", "reciprocal_", "sigmoid_", "tanh_"),
    ),
    "int": (
        "add_",
        "sub_",
        "mul_",
        "neg_",
        "abs_",
        "bitwise_not_",
        "bitwise_and_",
        "bitwise_or_",
        "bitwise_xor_",
    ),
}


class _Elementwise(torch.nn.Module):
    """Every operator that may work over its operand, each on a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        for kind, names in _ELEMENTWISE.items():
            for name in names:
                value = torch.arange(1.0, 4.0) if kind == "float" else torch.tensor([1, -2, 3])
                self.register_buffer(f"{kind}_{name}", value)
        for name in ("clamp_", "maximum", "minimum"):
            self.register_buffer(f"float_{name}", torch.arange(1.0, 4.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for kind, names in _ELEMENTWISE.items():
            for name in names:
                buffer = getattr(self, f"{kind}_{name}")
                update = getattr(buffer, name)
                operand = x if kind == "float" else x.long()
                is_binary = name in ("add_", "sub_", "mul_", "div_") or name.startswith(
                    ("bitwise_a", "bitwise_o")
                )
                update(operand) if is_binary or name == "bitwise_xor_" else update()
        self.float_clamp_.clamp_(1.5, 2.5)
        self.float_maximum.copy_(torch.maximum(self.float_maximum, x))
        self.float_minimum.copy_(torch.minimum(self.float_minimum, x))
        return x + 1


def test_every_elementwise_update_works_over_its_operand() -> None:
    x = torch.tensor([2.0, 1.0, 4.0])
    manager = to_edge(export(_Elementwise(), (x,))).to_executorch(PORTABLE)
    assert "aten.copy_.default" not in str(manager.exported_program().graph)
    method = pteron.load(manager.buffer).load_method()
    model = _Elementwise()
    for _ in range(2):
        model(x)
        method.execute([x])
    state = method.get_state()
    for name, value in model.named_buffers():
        np.testing.assert_allclose(state[name], value.numpy(), rtol=1e-5, err_msg=name)


@pytest.mark.alone
def test_a_cache_update_touches_the_new_rows_only() -> None:
    """64 MB of cache; copying it once takes longer than all of these steps."""
    cache = torch.zeros(1, 8, 1 << 14, 128)

    def step(m: Any, position: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        m.k.index_copy_(2, position, x)
        m.v[:, :, position] = x
        return m.k[:, :, :4].sum() + m.v[:, :, :4].sum()

    x = torch.ones(1, 8, 1, 128)
    captured = export(Stateful(step, {"k": cache, "v": cache}), (torch.tensor([1]), x))
    method = pteron.load(to_edge(captured).to_executorch().buffer).load_method()
    method.execute([torch.tensor([0]), x])
    start = time.perf_counter()
    for position in range(10):
        method.execute([torch.tensor([position]), x])
    ten_steps = time.perf_counter() - start
    array = cache.numpy()
    copies = []
    for _ in range(3):
        start = time.perf_counter()
        array.copy()
        copies.append(time.perf_counter() - start)
    assert ten_steps < min(copies)
    assert method.get_state()["k"][0, 0, :11, 0].tolist() == [1.0] * 10 + [0.0]
