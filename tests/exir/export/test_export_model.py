"""`pteron.export`: one call from a model to a checked program."""

from __future__ import annotations

import io
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import pteron
from pteron.backends.demo import AddMulPartitionerDemo
from pteron.errors import ExampleMismatchError, ExportError
from pteron.exir import ExecutorchBackendConfig
from pteron.exir.export import example_check


class Attention(nn.Module):
    """Two outputs in a structure, an optional argument, a buffer that counts calls."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor, bias: Tensor | None = None, *, mask: Tensor) -> dict[str, Any]:
        self.calls.add_(1)
        scores = nn.functional.scaled_dot_product_attention(self.project(x), x, x)
        scores = scores if bias is None else scores + bias
        return {"scores": scores * mask, "rest": (self.calls.clone(), x.shape[1], None)}


def _example(batch: int = 2, length: int = 5) -> tuple[tuple[Tensor], dict[str, Tensor]]:
    x = torch.randn(batch, length, 8, generator=torch.Generator().manual_seed(batch + length))
    return (x,), {"mask": torch.tensor(2.0)}


def test_one_call_gives_a_checked_program(capsys: pytest.CaptureFixture[str]) -> None:
    model = Attention().eval()
    args, kwargs = _example()
    made = pteron.export(model, args, kwargs)
    printed = capsys.readouterr().out
    assert printed == f"{made.report}\n"
    assert "check: passed: 4 outputs, the largest difference is" in printed
    assert [output.name for output in made.report.check.outputs] == ["scores", "rest.0", "rest.1", "rest.2"]
    assert model.calls.item() == 0, "the check left the model's buffer as it was"
    assert made.load().load_method()(*args, **kwargs)["rest"][0].item() == 1
    ours = made.load().load_method()(*args, **kwargs)
    torch.testing.assert_close(ours["scores"], model(*args, **kwargs)["scores"])
    made.program.write_to_file(io.BytesIO())  # refuses weights that were changed in place
    assert made.report.to_dict()["check"]["skipped"] is None
    assert set(made.report.seconds) == {"capture", "to edge", "to executorch", "check"}


def test_a_dimension_without_a_maximum_gets_a_default_that_is_said() -> None:
    args, kwargs = _example(2, 9)
    shapes = {"x": {0: Dim("batch", max=4), 1: Dim("length")}, "mask": None}
    made = pteron.export(Attention().eval(), args, kwargs, dynamic_shapes=shapes, report=False)
    batch, length = made.report.dynamic_extents
    assert (batch.inputs, batch.largest, batch.is_default) == (("x[0]",), 4, False)
    assert (length.inputs, length.largest, length.is_default) == (("x[1]",), 36, True)
    assert "dynamic: x[1]: 0 to 36 (no maximum was given: a default, see default_max)" in str(made.report)
    method = made.load().load_method()
    (x,), _ = _example(4, 36)
    assert method(x, **kwargs)["scores"].shape == (4, 36, 8)
    with pytest.raises(pteron.InputError, match=r"outside what the method takes.*s1=0\.\.36"):
        method(_example(4, 37)[0][0], **kwargs)


def test_default_max_is_the_maximum_of_every_symbol() -> None:
    class Pairs(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.view(-1, 2).sum(1)

    example = (torch.randn(8),)
    shapes = ({0: 2 * Dim("pairs")},)
    made = pteron.export(Pairs(), example, dynamic_shapes=shapes, default_max=50, report=False)
    (extent,) = made.report.dynamic_extents
    assert (extent.inputs, extent.largest) == (("x[0]",), 50)
    assert made.load().run("forward", np.ones(100, np.float32)).shape == (50,)
    with pytest.raises(ExportError, match=r"default_max=3.*the example has 4 in x\[0\].*at least 4"):
        pteron.export(Pairs(), example, dynamic_shapes=shapes, default_max=3, report=False)


def test_a_captured_program_stays_as_it_was_and_brings_its_example() -> None:
    args, kwargs = _example()
    shapes = {"x": {1: Dim.AUTO}, "mask": None}
    captured = torch.export.export(Attention().eval(), args, kwargs, dynamic_shapes=shapes)
    before = dict(captured.range_constraints)
    made = pteron.export(captured, report=False)
    assert captured.range_constraints == before
    assert len(made.report.check.outputs) == 4
    with pytest.raises(ExportError, match="has its shapes already"):
        pteron.export(captured, dynamic_shapes=shapes)


def test_partitioners_packing_and_data_files(tmp_path: Path) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(64, 64)

        def forward(self, x: Tensor) -> Tensor:
            return (self.first(x) + x) * x

    model, args = Scaled().eval(), (torch.randn(64, 64),)
    plain = pteron.export(model, args, report=False)
    packed = pteron.export(model, args, packed_weights=True, report=False)
    assert packed.load().load_method() is not None
    assert packed.report.packed_weights
    assert packed.report.file_bytes == len(packed.buffer) > plain.report.file_bytes + 64 * 64 * 4
    delegated = pteron.export(model, args, partitioners=AddMulPartitionerDemo(), report=False)
    assert delegated.report.delegation["forward"].backends
    config = ExecutorchBackendConfig(external_constants=True)
    external = pteron.export(model, args, backend_config=config, report=False)
    external.save(tmp_path / "model.pte")
    (name,) = external.report.data_files
    ours = pteron.load(tmp_path / "model.pte", data=tmp_path / name).run("forward", *args)
    torch.testing.assert_close(ours, model(*args))


def test_an_output_that_differs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(nn.Module):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"right": x + 1, "wrong": x * 2}

    real = example_check.pteron.load

    class Off:
        """A program whose second output is off by a tenth."""

        def __init__(self, *given: Any, **options: Any) -> None:
            self.program = real(*given, **options)
            self.outputs = self.program.outputs()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.program, name)

        def load_method(self, name: str) -> Off:
            return self

        def execute(self, inputs: list[Any]) -> list[Any]:
            right, wrong = self.program.execute("forward", inputs)
            return [right, wrong * 1.1]

    monkeypatch.setattr(example_check.pteron, "load", Off)
    with pytest.raises(ExampleMismatchError) as caught:
        pteron.export(Wrong(), (torch.ones(3),), report=False)
    assert caught.value.outputs == ("wrong",)
    assert caught.value.difference == pytest.approx(0.1, rel=1e-3)
    assert "output 'wrong': differs by 0.1 of its largest number, allowed 0.0001" in str(caught.value)
    assert "tolerance=" in str(caught.value)
    assert "right" not in str(caught.value)
    made = pteron.export(Wrong(), (torch.ones(3),), tolerance=0.2, report=False)
    assert made.report.check.outputs[1].difference == pytest.approx(0.1, rel=1e-3)
    assert pteron.export(Wrong(), (torch.ones(3),), check=False, report=False).report.check.skipped


@pytest.mark.parametrize(
    ("ours", "expected", "difference"),
    [
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")]), 0.0),
        (torch.tensor([1.0, float("inf")]), torch.tensor([1.0, 2.0]), float("inf")),
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 2.0]), float("inf")),
        (torch.tensor([3, 4]), torch.tensor([3, 8]), 0.5),
        (torch.tensor([1e-3]), torch.tensor([0.0]), 1e-3),
        (torch.tensor([1 + 1j]), torch.tensor([1 + 0j]), 1.0),
    ],
)
def test_differences(ours: Tensor, expected: Tensor, difference: float) -> None:
    assert example_check._difference(ours, expected) == pytest.approx(difference)


def test_what_cannot_be_compared_is_said() -> None:
    class Random(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.rand_like(x)

    made = pteron.export(Random().eval(), (torch.ones(2),), report=False)
    assert "draws random numbers (aten::rand_like.out)" in str(made.report)


def test_wrong_kinds_of_arguments() -> None:
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module"):
        pteron.export(len, ())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="example inputs as a tuple"):
        pteron.export(nn.ReLU(), [torch.ones(2)])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"export\(backend_config=\.\.\.\)"):
        pteron.export(nn.ReLU(), (torch.ones(2),), backend_config=3)  # type: ignore[arg-type]


def test_without_torch_the_name_is_there_and_says_what_it_needs() -> None:
    code = textwrap.dedent(
        """
        import sys
        sys.modules["torch"] = None
        import pteron
        try:
            pteron.export(None)
        except ImportError as error:
            assert 'pip install "pteron[export]"' in str(error), error
        else:
            raise AssertionError("no error")
        """
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
