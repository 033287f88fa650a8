"""`pteron compare` finds where two runs part; `bisect-rewrites` shows what each rewrite does."""

from __future__ import annotations

import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

import pteron
from pteron.devtools.compare import compare, errors
from pteron.devtools.torch_reference import compare_with_torch
from pteron.exir import to_edge
from tests.cli.conftest import Command, Network


@pytest.fixture(scope="module")
def changed_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network of `model_file` with another weight in its head."""
    torch.manual_seed(0)
    inputs = (torch.randn(1, 3, 8, 8),)
    torch.manual_seed(0)
    _ = torch.randn(1, 3, 8, 8)
    network = Network().eval()
    with torch.no_grad():
        network.head.weight[0] += 1.0
    path = tmp_path_factory.mktemp("compare") / "changed.pte"
    path.write_bytes(to_edge(torch.export.export(network, inputs)).to_executorch().buffer)
    return path


def test_errors_of_arrays() -> None:
    one = np.asarray([1.0, 2.0, np.nan, np.inf], np.float32)
    assert errors(one, one.copy()).max_abs == 0
    near = one.copy()
    near[1] = np.nextafter(np.float32(2), np.float32(3))
    found = errors(near, one)
    assert found.ulp == 1
    assert found.relative == pytest.approx(2.0**-23)
    assert errors(one, np.asarray([1.0, 2.0, 3.0, np.inf], np.float32)).relative == math.inf
    assert errors(np.asarray([3, 4]), np.asarray([3, 5])).ulp == 0
    assert errors(-np.arange(1.0, 4.0), np.arange(1.0, 4.0)).cosine == pytest.approx(-1.0)
    half = np.asarray([1.0, 2.0], ml_dtypes.bfloat16)
    assert errors(half, half).cosine == 1.0
    zeros = errors(np.ones(2), np.zeros(2))
    assert zeros.relative == math.inf
    with pytest.raises(ValueError, match="cannot be compared"):
        errors(np.ones(2), np.ones(3))


def test_a_program_agrees_with_itself(model_file: Path, command: Command) -> None:
    done = command("compare", model_file, "--against", "threads=2", "--json")
    assert done.code == 0
    assert done.json["are_aligned"]
    assert all(value["errors"]["max_abs"] == 0 for value in done.json["values"])
    assert len(done.json["values"]) == len(pteron.load(model_file).kernels())


def test_rewrites_are_compared_with_the_file(model_file: Path, command: Command) -> None:
    done = command("compare", model_file, "--against", "rules=all", "--against", "isa=portable")
    assert done.code == 0
    assert "values compared" in done.out
    assert (
        "no value differs"
        in command("compare", model_file, "--against", "rules=all", "--first-divergence").out
    )


def test_the_first_divergence_is_where_the_weight_differs(
    model_file: Path, changed_file: Path, command: Command
) -> None:
    done = command("compare", model_file, changed_file, "--first-divergence")
    assert done.code == 1
    assert "aten::addmm.out" in done.out
    assert "head" in done.out
    assert "conftest.py:" in done.out
    assert command("compare", model_file, changed_file).code == 1
    assert command("compare", model_file, changed_file, "--rtol", "1e9").code == 0


def test_programs_of_other_instructions_compare_outputs(
    model_file: Path, command: Command, tmp_path: Path
) -> None:
    class Twin(Network):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x * 1.0)

    twin = tmp_path / "twin.pte"
    torch.manual_seed(0)
    inputs = (torch.randn(1, 3, 8, 8),)
    twin.write_bytes(to_edge(torch.export.export(Twin().eval(), inputs)).to_executorch().buffer)
    assert "only outputs were compared" in command("compare", model_file, twin).out
    done = command("compare", model_file, twin, "--first-divergence")
    assert done.code == 2


def test_rounds_of_a_loop_are_told_apart() -> None:
    class Loop(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            from torch._higher_order_ops.while_loop import while_loop

            return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x))[1]

    exported = torch.export.export(Loop(), (torch.randn(4),))
    program = pteron.load(to_edge(exported).to_executorch().buffer)
    found = compare(program, program, [np.ones(4, np.float32)])
    assert max(value.round for value in found.values) == 3  # the condition of three rounds, and of the end
    assert all(value.errors.max_abs == 0 for value in found.values)


def test_saved_values_are_a_reference(
    model_file: Path, changed_file: Path, command: Command, tmp_path: Path
) -> None:
    saved, outputs = tmp_path / "values.npz", tmp_path / "outputs.npz"
    assert command("compare", model_file, "--save-values", saved).code == 0
    done = command("compare", model_file, "--reference", saved, "--json")
    assert done.code == 0
    assert done.json["are_aligned"]
    assert len(done.json["values"]) == len(pteron.load(model_file).kernels())
    found = command("compare", changed_file, "--reference", saved, "--first-divergence")
    assert found.code == 1
    assert "aten::addmm.out" in found.out
    assert command("run", model_file, "--save", outputs).code == 0
    assert "only outputs" in command("compare", model_file, "--reference", outputs).out
    assert command("compare", changed_file, "--reference", outputs).code == 1
    other = tmp_path / "other.npz"
    np.savez(other, nothing=np.ones(3))
    assert "no array has the name of an output" in command("compare", model_file, "--reference", other).err
    other.write_bytes(saved.read_bytes()[:-100])
    assert "not an .npz file" in command("compare", model_file, "--reference", other).err
    assert command("compare", model_file, "--reference", saved, "--against", "rules=all").code == 2
    np.savez(other, output=np.ones(3, np.float32))
    assert command("compare", model_file, "--reference", other).code == 2


def test_the_failing_step_is_saved(
    model_file: Path, changed_file: Path, command: Command, tmp_path: Path
) -> None:
    part = tmp_path / "part.pte"
    done = command("compare", changed_file, model_file, "--save-failing", part)
    assert done.code == 1
    program = pteron.load(part)
    assert program.operators() == ("aten::addmm.out",)
    (spec,) = program.inputs()
    value = np.load(tmp_path / "part.npz")[spec.name]
    assert value.shape == (1, 288)
    result = program.run("forward", value)
    whole = pteron.load(changed_file, runtime=pteron.Runtime(disabled_rules=["all"]))
    seen = {}

    class Watch:
        def value(self, step: pteron.TracedStep, position: int, value: np.ndarray) -> None:
            seen[step.index] = np.array(value)

    inputs = np.random.default_rng(0).uniform(0, 1, (1, 3, 8, 8)).astype(np.float32)
    whole.load_method().execute([inputs], tracer=Watch())
    np.testing.assert_allclose(result, seen[2], rtol=1e-5)


def test_the_model_in_pytorch_is_a_reference() -> None:
    torch.manual_seed(0)
    network, inputs = Network().eval(), (torch.randn(1, 3, 8, 8),)
    exported = torch.export.export(network, inputs)
    program = pteron.load(to_edge(exported).to_executorch().buffer)
    found = compare_with_torch(program, exported, inputs)
    assert [(value.operator, value.source.module) for value in found.values] == [
        ("aten.relu.default", "first.1"),
        ("aten.linear.default", "head"),
        ("aten.softmax.int", "Network"),
    ]
    assert all(value.errors.relative < 1e-5 for value in found.values)
    assert found.outputs["output"].relative < 1e-5
    assert not compare_with_torch(program, network, inputs).values
    with torch.no_grad():
        network.head.weight[0] += 1.0
    assert compare_with_torch(program, network, inputs).outputs["output"].relative > 1e-3
    divergence = compare_with_torch(program, torch.export.export(network, inputs), inputs).first_divergence(
        1e-4
    )
    assert divergence is not None
    assert divergence.source.module == "head"


def test_several_calls_of_one_line_are_told_apart() -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            for _ in range(3):
                x = torch.tanh(x) * 2
            return x.sum(), x.to(torch.bfloat16)

    exported = torch.export.export(Twice(), (torch.randn(2, 8),))
    plain = pteron.Runtime(disabled_rules=["all"])
    program = pteron.load(to_edge(exported).to_executorch().buffer, runtime=plain)
    found = compare_with_torch(program, exported, (torch.randn(2, 8),))
    operators = [value.operator for value in found.values]
    assert operators.count("aten.tanh.default") == operators.count("aten.mul.Tensor") == 3
    assert all(value.errors.relative < 1e-5 for value in found.values)


@pytest.mark.parametrize("arguments", [[], ["--against", "colour=red"], ["--against", "threads=0"]])
def test_wrong_use(arguments: list[str], model_file: Path, command: Command) -> None:
    assert command("compare", model_file, *arguments).code == 2


def test_rewrites_one_by_one(model_file: Path, command: Command) -> None:
    rows = command("bisect-rewrites", model_file, "--runs", "2", "--json").json
    rules = {row["rule"] for row in rows}
    assert {"fuse_clamp", "all"} <= rules
    assert all(row["relative"] < 1e-5 and row["ms"] > 0 for row in rows)
    assert command("bisect-rewrites", model_file, "--runs", "1", "--backend", "NoSuch").code == 2
    assert "gain" in command("bisect-rewrites", model_file, "--runs", "1").out
