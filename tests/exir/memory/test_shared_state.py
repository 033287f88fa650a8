"""Buffers that methods share: one place in the file, one copy in methods that are loaded together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import export

import pteron
from pteron.errors import ExportError, InputError
from pteron.exir import (
    EdgeProgramManager,
    ExecutorchBackendConfig,
    ExecutorchProgramManager,
    schema,
    to_edge,
)
from pteron.exir.memory.memory_planning_pass import MemoryPlanningPass


class Cache(nn.Module):
    """A cache of rows and a counter, with the methods of a decoder."""

    def __init__(self, rows: int = 4) -> None:
        super().__init__()
        self.register_buffer("cache", torch.full((rows, 2), 0.5))
        self.register_buffer("length", torch.tensor(0))

    def fill(self, x: torch.Tensor) -> torch.Tensor:
        self.cache[0:2] = x
        self.length.copy_(torch.tensor(2))
        return x.sum()

    def append(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.index_copy_(0, self.length[None], x)
        self.length.add_(1)
        return self.cache.sum(0)

    def look(self, scale: torch.Tensor) -> torch.Tensor:
        return self.cache * scale


class _Method(nn.Module):
    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model = model
        self.name = name

    def forward(self, *args: Any) -> Any:
        return getattr(self.model, self.name)(*args)


_ARGS = {"fill": (torch.ones(2, 2),), "append": (torch.ones(1, 2),), "look": (torch.tensor(2.0),)}


def _edge(models: dict[str, nn.Module]) -> EdgeProgramManager:
    return to_edge({name: export(_Method(model, name), _ARGS[name]) for name, model in models.items()})


def _lowered(edge: EdgeProgramManager) -> ExecutorchProgramManager:
    return edge.to_executorch(
        ExecutorchBackendConfig(
            kernels="executorch-portable",
            memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True),
        )
    )


@pytest.fixture(scope="module")
def manager() -> ExecutorchProgramManager:
    return _lowered(_edge(dict.fromkeys(_ARGS, Cache())))


def _session(run: dict[str, Callable[[list[Any]], list[Any]]]) -> None:
    model = Cache()
    calls = [("fill", torch.tensor([[1.0, 2], [3, 4]])), ("append", torch.tensor([[5.0, 6]]))]
    calls += [("look", torch.tensor(2.0)), ("append", torch.tensor([[7.0, 8]])), ("look", torch.tensor(1.0))]
    for name, x in calls:
        expected = getattr(model, name)(x)
        torch.testing.assert_close(torch.as_tensor(run[name]([x])[0]), expected)


def test_shared_buffers_have_one_place_and_one_initial_value(manager: ExecutorchProgramManager) -> None:
    program = manager.executorch_program
    places: dict[str, set[tuple[int, int, int]]] = {}
    for plan in program.execution_plan:
        assert plan.non_const_buffer_sizes[2] == 48
        for value in plan.values:
            tensor = value.val
            if isinstance(tensor, schema.Tensor) and tensor.extra_tensor_info is not None:
                info = tensor.allocation_info
                place = (info.memory_id, info.memory_offset_low, tensor.data_buffer_idx)
                places.setdefault(tensor.extra_tensor_info.fully_qualified_name, set()).add(place)
    assert {name: len(found) for name, found in places.items()} == {"model.cache": 1, "model.length": 1}
    assert {place[0] for found in places.values() for place in found} == {2}
    assert len(program.mutable_data) == 3


def test_methods_loaded_together_share(manager: ExecutorchProgramManager) -> None:
    program = pteron.load(manager.buffer)
    methods = program.load_methods()
    assert set(methods) == {"fill", "append", "look"}
    _session({name: method.execute for name, method in methods.items()})
    assert methods["look"].get_state()["model.cache"].tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    # Others have state of their own.
    other = program.load_methods(["append", "look"])
    alone = program.load_method("look")
    for method in (other["look"], alone):
        assert method.execute([torch.tensor(2.0)])[0].tolist() == [[1.0, 1.0]] * 4
    other["append"].execute([torch.ones(1, 2)])
    assert alone.get_state()["model.cache"].tolist() == [[0.5, 0.5]] * 4
    assert methods["append"].get_state()["model.length"] == 4


def test_state_is_reset_and_set_for_all(manager: ExecutorchProgramManager) -> None:
    methods = pteron.load(manager.buffer).load_methods(("fill", "look"))
    methods["fill"].execute([torch.ones(2, 2)])
    methods["look"].reset_state()
    assert methods["fill"].get_state()["model.cache"].tolist() == [[0.5, 0.5]] * 4
    methods["fill"].set_state({"model.cache": torch.ones(4, 2)})
    assert methods["look"].execute([torch.tensor(3.0)])[0].tolist() == [[3.0, 3.0]] * 4


@pytest.mark.peer
def test_executorch_shares_them_too(manager: ExecutorchProgramManager) -> None:
    runtime = pytest.importorskip("executorch.runtime", reason="needs the executorch wheel")
    program = runtime.Runtime.get().load_program(manager.buffer)
    methods = {name: program.load_method(name) for name in ("fill", "append", "look")}
    _session({name: method.execute for name, method in methods.items()})


def test_methods_that_share_nothing_are_not_loaded_together() -> None:
    edge = _edge(dict.fromkeys(_ARGS, Cache()))
    program = pteron.load(edge.to_executorch().buffer)
    with pytest.raises(InputError, match=r"share no mutable buffers.*share_mutable_buffers=True"):
        program.load_methods()
    # Without sharing, a method that only reads a buffer sees its initial value, as before.
    assert program.load_method("look").execute([torch.tensor(2.0)])[0].tolist() == [[1.0, 1.0]] * 4


def test_misuse_of_load_methods(manager: ExecutorchProgramManager) -> None:
    program = pteron.load(manager.buffer)
    with pytest.raises(InputError, match="named twice"):
        program.load_methods(["look", "look"])
    with pytest.raises(pteron.MethodNotFoundError, match="missing"):
        program.load_methods(["look", "missing"])
    with pytest.raises(pteron.InputTypeError, match="a list of method names"):
        program.load_methods(3)


def test_buffers_that_are_not_alike_are_not_shared() -> None:
    with pytest.raises(ExportError, match=r"buffer 'model.cache' cannot be shared.*\[4, 2\].*\[5, 2\]"):
        _lowered(_edge({"append": Cache(), "fill": Cache(5)}))
    other = Cache()
    other.cache.fill_(3)
    with pytest.raises(ExportError, match="another initial value"):
        _lowered(_edge({"append": Cache(), "fill": other}))


class _Pair(nn.Module):
    """Two buffers that are equal at first; one method updates one of them, the other computes from both."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("left", torch.zeros(2, 3))
        self.register_buffer("right", torch.zeros(2, 3))

    def put(self, x: torch.Tensor) -> torch.Tensor:
        self.left.copy_(x)
        self.right.copy_(x * 2)
        return x.sum()

    def product(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.left.t().reshape(3, 2) + x @ self.right.t().reshape(3, 2)


def test_nothing_is_folded_from_the_initial_value_of_a_buffer_that_another_method_updates() -> None:
    model, x = _Pair(), torch.arange(6.0).reshape(2, 3)
    edge = to_edge({name: export(_Method(model, name), (x,)) for name in ("put", "product")})
    methods = pteron.load(_lowered(edge).buffer).load_methods()
    for factor in (1.0, -2.0):
        methods["put"].execute([x * factor])
        (got,) = methods["product"].execute([torch.eye(3)[:2]])
        torch.testing.assert_close(torch.as_tensor(got), 3 * factor * x.t()[:2])
