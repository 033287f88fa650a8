"""Constants and initial values in data files: where they go, that they come back, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import ExportedProgram

import pteron
from pteron import _native
from pteron.errors import ExportError, ExternalDataError
from pteron.exir import ExecutorchBackendConfig, ExecutorchProgramManager, to_edge

DEFAULT = "_default_external_constant"


class Model(nn.Module):
    """Parameters, two that are equal, a constant of the code, a buffer that counts and one that does not."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 4)
        self.third = nn.Linear(8, 4)
        self.third.bias.data.copy_(self.second.bias.data)
        self.register_buffer("scale", torch.full((4,), 0.5))
        self.register_buffer("total", torch.arange(4.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(x))
        self.total.add_(x.sum(0))
        return (
            (self.second(hidden) - self.third(hidden)) * self.scale
            + self.total
            + torch.tensor([4.0, 3, 2, 1])
        )


@pytest.fixture(scope="module")
def captured() -> ExportedProgram:
    return torch.export.export(Model().eval(), (torch.zeros(2, 4),))


def _lower(captured: ExportedProgram, **options: Any) -> ExecutorchProgramManager:
    return to_edge(captured).to_executorch(ExecutorchBackendConfig(kernels="executorch-portable", **options))


def _keys(manager: ExecutorchProgramManager, tag: str = DEFAULT) -> list[str]:
    lines = _native.data_listing(manager._tensor_data[tag]).splitlines()[1:]
    return [line.split("'")[1] for line in lines]


def _expected(x: torch.Tensor, calls: int = 1) -> np.ndarray[Any, Any]:
    model = Model().eval()
    with torch.no_grad():
        for _ in range(calls):
            result = model(x)
    array: np.ndarray[Any, Any] = result.numpy()
    return array


X = torch.randn(2, 4, generator=torch.Generator().manual_seed(1))


def test_without_the_setting_nothing_is_outside(captured: ExportedProgram, tmp_path: Path) -> None:
    manager = _lower(captured)
    assert manager._tensor_data == {}
    assert manager.data_files == ()
    manager.write_tensor_data_to_file(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_all_constants_of_the_model_go_outside(captured: ExportedProgram, tmp_path: Path) -> None:
    manager = _lower(captured, external_constants=True)
    assert _keys(manager) == [
        *("first.bias", "first.weight", "scale", "second.bias", "second.weight"),
        *("third.bias", "third.weight"),
    ]
    assert manager.data_files == (f"{DEFAULT}.ptd",)
    manager.save(tmp_path / "model.pte")
    manager.write_tensor_data_to_file(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{DEFAULT}.ptd", "model.pte"]
    assert (tmp_path / f"{DEFAULT}.ptd").read_bytes() == manager._tensor_data[DEFAULT]

    method = pteron.load(tmp_path / "model.pte", data=tmp_path / f"{DEFAULT}.ptd").load_method()
    np.testing.assert_allclose(method(X.numpy()), _expected(X), rtol=1e-5, atol=1e-6)
    assert method(X.numpy()).tobytes() == pteron_twice(_lower(captured))


def pteron_twice(manager: ExecutorchProgramManager) -> bytes:
    """The second result of a program that keeps everything inside."""
    method = pteron.load(manager.buffer).load_method()
    method(X.numpy())
    result: np.ndarray[Any, Any] = method(X.numpy())
    return result.tobytes()


def test_equal_weights_are_stored_once(captured: ExportedProgram) -> None:
    listing = _native.data_listing(_lower(captured, external_constants=True)._tensor_data[DEFAULT])
    places = {line.split("'")[1]: line.rsplit(" ", 1)[1] for line in listing.splitlines()[1:]}
    assert places["second.bias"] == places["third.bias"]
    assert places["second.weight"] != places["first.weight"]


def test_a_function_chooses_the_file(captured: ExportedProgram) -> None:
    seen: list[str] = []

    def tag(node: torch.fx.Node) -> str | None:
        seen.append(node.name)
        if "weight" in node.name:
            return "weights"
        return "biases.ptd" if "bias" in node.name else None

    manager = _lower(captured, external_constants=tag)
    assert manager.data_files == ("biases.ptd", "weights.ptd")
    assert _keys(manager, "weights") == ["first.weight", "second.weight", "third.weight"]
    assert _keys(manager, "biases.ptd") == ["first.bias", "second.bias", "third.bias"]
    assert not [name for name in seen if "lifted_tensor" in name]
    data = list(manager._tensor_data.values())
    method = pteron.load(manager.buffer, data=data).load_method()
    np.testing.assert_allclose(method(X.numpy()), _expected(X), rtol=1e-5, atol=1e-6)
    with pytest.raises(
        ExternalDataError, match=r"expected 3 tensors: 'first\.bias', .*got 'data\[0\]' \(3 e"
    ):
        pteron.load(manager.buffer, data=data[1:]).load_method()


def test_initial_values_can_be_outside(captured: ExportedProgram) -> None:
    manager = _lower(captured, external_mutable_weights=True)
    assert _keys(manager) == ["total"]
    method = pteron.load(manager.buffer, data=manager._tensor_data).load_method()
    assert method.get_state()["total"].tolist() == [0, 1, 2, 3]
    method(X.numpy())
    np.testing.assert_allclose(method(X.numpy()), _expected(X, 2), rtol=1e-5, atol=1e-6)
    method.reset_state()
    np.testing.assert_allclose(method(X.numpy()), _expected(X), rtol=1e-5, atol=1e-6)


def test_new_weights_need_no_new_program(captured: ExportedProgram) -> None:
    program = _lower(captured, external_constants=True).buffer
    other = Model().eval()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    data = _lower(torch.export.export(other, (X,)), external_constants=True)._tensor_data
    with torch.no_grad():
        expected = other(X).numpy()
    np.testing.assert_allclose(pteron.load(program, data=data).load_method()(X.numpy()), expected, rtol=1e-5)


def test_a_view_of_an_external_constant_keeps_the_layout_of_the_file() -> None:
    class Viewed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.arange(6.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.table.view(2, 3) + self.table.view(3, 2).sum()

    captured = torch.export.export(Viewed(), (torch.ones(1, 2),))
    manager = _lower(captured, external_constants=True)
    result = pteron.load(manager.buffer, data=manager._tensor_data).load_method()(np.ones((1, 2), np.float32))
    assert result.tolist() == [[18.0, 20.0, 22.0]]


@pytest.mark.parametrize("tag", ["../weights", "a/b", "", "..", 3, "C:\\weights", "two\nlines"])
def test_a_tag_is_a_file_name(captured: ExportedProgram, tag: Any) -> None:
    with pytest.raises(ExportError, match="cannot be the name of a data file"):
        _lower(captured, external_constants=lambda node: tag)
    with pytest.raises(ExportError, match="expected True, False, or a function"):
        ExecutorchBackendConfig(external_constants=3)  # type: ignore[arg-type]


def test_one_name_is_one_tensor_in_all_methods() -> None:
    class Scaled(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.tensor([factor]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    methods = {
        name: torch.export.export(Scaled(factor), (torch.ones(1),))
        for name, factor in (("a", 2.0), ("b", 3.0))
    }
    config = ExecutorchBackendConfig(external_constants=True)
    with pytest.raises(ExportError, match="two different tensors are called 'factor'"):
        to_edge(methods).to_executorch(config)
    methods["b"] = torch.export.export(Scaled(2.0), (torch.ones(1),))
    manager = to_edge(methods).to_executorch(config)
    program = pteron.load(manager.buffer, data=manager._tensor_data)
    assert program.run("b", np.ones(1, np.float32)).tolist() == [2.0]


def test_the_directory_must_be_there(captured: ExportedProgram, tmp_path: Path) -> None:
    manager = _lower(captured, external_constants=True)
    with pytest.raises(OSError, match="does not exist, make it"):
        manager.write_tensor_data_to_file(tmp_path / "missing")


@pytest.mark.peer
def test_executorch_reads_our_data_files(captured: ExportedProgram, tmp_path: Path) -> None:
    runtime = pytest.importorskip("executorch.runtime", reason="needs the executorch wheel")
    manager = _lower(captured, external_constants=True, external_mutable_weights=True)
    manager.save(tmp_path / "model.pte")
    manager.write_tensor_data_to_file(tmp_path)
    program = runtime.Runtime.get().load_program(
        tmp_path / "model.pte", data_path=tmp_path / manager.data_files[0]
    )
    method = program.load_method("forward")
    for calls in (1, 2):
        np.testing.assert_allclose(method.execute([X])[0].numpy(), _expected(X, calls), rtol=1e-5, atol=1e-6)


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_data_files_of_executorch_are_read_here(captured: ExportedProgram, tmp_path: Path) -> None:
    exir = pytest.importorskip("executorch.exir", reason="needs the executorch wheel")
    theirs = exir.to_edge(captured).to_executorch(exir.ExecutorchBackendConfig(external_constants=True))
    theirs.write_tensor_data_to_file(str(tmp_path))
    (path,) = tmp_path.iterdir()
    ours = _lower(captured, external_constants=True)
    assert _native.data_listing(path.read_bytes()).count("\n") == 8
    x = X.numpy()
    # Their exporter stores no initial values: the buffer that begins as 0, 1, 2, 3 begins as zeros.
    expected = _expected(X) - np.arange(4, dtype=np.float32)
    for data in (path, ours._tensor_data):
        got = pteron.load(theirs.buffer, data=data).load_method()(x)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    got = pteron.load(ours.buffer, data=path).load_method()(x)
    np.testing.assert_allclose(got, _expected(X), rtol=1e-5, atol=1e-6)


def test_the_objects_of_data_files_list_equal_bytes_once_in_the_order_of_the_model(
    captured: ExportedProgram,
) -> None:
    emitted = _lower(captured, external_constants=True)._emitter_output
    numbers = emitted.external_constant_map[DEFAULT]
    assert list(numbers)[:2] == ["first.weight", "first.bias"]
    assert numbers["second.bias"] == numbers["third.bias"]
    assert len(emitted.external_constant_buffer) == len(set(numbers.values())) == len(numbers) - 1
    bias = np.frombuffer(emitted.external_constant_buffer[numbers["first.bias"]], np.float32)
    assert np.array_equal(bias, Model().first.bias.detach().numpy())
