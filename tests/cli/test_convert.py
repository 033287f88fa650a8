"""`pack`, `convert`: the same program with its weights stored otherwise."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

import pteron
from pteron.devtools.convert import narrow
from pteron.devtools.description import describe_plan
from pteron.devtools.program_file import read_program
from pteron.devtools.sources import Sources
from pteron.exir import ExecutorchBackendConfig, to_edge
from tests.cli.conftest import Command

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    *sorted((ROOT / "schema" / "samples").glob("*.*pte")),
    *sorted((ROOT / "rust" / "pteron-xnnpack" / "tests").rglob("*.pte")),
    *sorted((ROOT / "tests" / "corpus").rglob("*.pte")),
]
X = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_is_read_and_written(path: Path) -> None:
    try:
        program = pteron.load(path)
    except pteron.PteronError:
        return  # found by fuzzing: a damaged file
    again = pteron.load(read_program(program, path.read_bytes()).to_bytes())
    assert again.listing() == program.listing()
    assert {key: bytes(data) for key, data in again.named_data.items()} == {
        key: bytes(data) for key, data in program.named_data.items()
    }


def test_an_exported_file_stays_as_it_is(model_file: Path) -> None:
    content = model_file.read_bytes()
    assert read_program(pteron.load(content), content).to_bytes() == content


def test_packs_are_those_of_the_exporter(model_file: Path, command: Command, tmp_path: Path) -> None:
    packed = tmp_path / "packed.pte"
    assert command("pack", model_file, "-o", packed, "--json").json["packs"] == 2
    program = pteron.load(packed)
    expected = pteron.load(model_file).run("forward", X)
    np.testing.assert_array_equal(program.run("forward", X), expected)
    assert program.pack_stats == (0, 0)
    assert program.stored_pack_stats[0] == 2
    nbytes = sum(len(data) for key, data in program.named_data.items() if key.startswith("pteron.packed"))
    facts = command("info", packed, "--json").json
    assert (facts["packs"], facts["packed_bytes"]) == (2, nbytes)
    assert "2 packed weights" in command("info", packed).out
    assert "packed weights" not in command("info", model_file).out
    checked = command("check", packed)
    assert checked.out.splitlines()[1] == (
        "2 of 2 packed weights of the file are used here, 0 more are packed at load"
    )
    assert command("check", packed, "--json").json == {
        "faults": [],
        "packs": {"stored": 2, "used": 2, "made": 0},
    }
    assert command("check", model_file, "--json").json["packs"] is None
    parts = command("size", packed, "--json").json["parts"]
    assert parts["packed weights"] == nbytes
    assert sum(parts.values()) == packed.stat().st_size
    found = {one["what"]: one for one in command("diff", model_file, packed, "--json").json}
    assert set(found) == {"file bytes", "packed weights"}
    assert found["packed weights"]["old"] is None
    assert found["packed weights"]["new"].startswith("2, ")
    plain = tmp_path / "plain.pte"
    assert command("pack", packed, "--remove", "-o", plain).code == 0
    assert plain.read_bytes() == model_file.read_bytes()
    done = command("pack", model_file, "--remove", "-o", plain)
    assert done.code == 2
    assert "no weights are packed" in done.err


@pytest.mark.parametrize(("dtype", "bound"), [("float16", 1e-3), ("bfloat16", 1e-2)])
def test_weights_become_narrow(
    dtype: str, bound: float, model_file: Path, command: Command, tmp_path: Path
) -> None:
    small = tmp_path / "small.pte"
    found = command("convert", model_file, "--weights", dtype, "-o", small, "--json").json
    assert found["weights"]["before"] == 2 * found["weights"]["after"] == 4 * 288 * 4
    assert found["weights"]["kept"] == {"small": 3}
    assert 0 < found["weights"]["error"] < bound
    assert found["old_bytes"] - found["new_bytes"] > 2000
    plain, less = pteron.load(model_file), pteron.load(small)
    assert list(less.kernels()) == list(plain.kernels())  # load widens, calls do not
    np.testing.assert_allclose(less.run("forward", X), plain.run("forward", X), rtol=bound)
    assert Sources(less, "forward").of(describe_plan(less).steps[1])[0].module == "head"
    assert "largest error" in command("convert", model_file, "--weights", dtype, "-o", small).out


def test_shared_weights_in_loops_and_lists() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(16, 32))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            from torch._higher_order_ops.while_loop import while_loop

            w = self.w
            y = torch.cat([x, self.w]) + torch.cat([self.w, x])
            _, z = while_loop(
                lambda i, y: i < 3, lambda i, y: (i + 1, torch.cat([w, y[:16]]) * 0.5), (torch.tensor(0), y)
            )
            return z + torch.mm(self.w, x.t()).sum()

    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(16, 32)
    content = to_edge(torch.export.export(model, (x,))).to_executorch().buffer
    program = pteron.load(content)
    file = read_program(program, content)
    assert narrow(file, "bfloat16").constants == 1
    rounded = model.w.detach().numpy().astype(ml_dtypes.bfloat16).astype(np.float32)
    with torch.no_grad():
        model.w.copy_(torch.from_numpy(rounded))
    result = pteron.load(file.to_bytes()).run("forward", x.numpy())
    np.testing.assert_allclose(result, model(x).detach().numpy(), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="float16 or bfloat16"):
        narrow(read_program(program, content), "int4")


def test_weights_beyond_the_range_stay(tmp_path: Path, command: Command) -> None:
    model = torch.nn.Linear(32, 32, bias=False)
    with torch.no_grad():
        model.weight[0, 0] = 1e6
    path = tmp_path / "large.pte"
    path.write_bytes(to_edge(torch.export.export(model, (torch.randn(2, 32),))).to_executorch().buffer)
    found = command("convert", path, "--weights", "float16", "-o", tmp_path / "out.pte", "--json").json
    assert found["weights"]["kept"] == {"beyond its range": 1}


def test_out_and_in_again(model_file: Path, command: Command, tmp_path: Path) -> None:
    thin, data, whole = tmp_path / "thin.pte", tmp_path / "w.ptd", tmp_path / "whole.pte"
    assert command("convert", model_file, "--external", data, "-o", thin).code == 0
    expected = pteron.load(model_file).run("forward", X)
    np.testing.assert_array_equal(pteron.load(thin, data=data).run("forward", X), expected)
    assert thin.stat().st_size < model_file.stat().st_size - 5000
    assert "data file" in command("check", thin).out
    assert command("convert", thin, "--inline", "-o", whole).code == 2
    assert command("convert", thin, "--data", data, "--inline", "-o", whole).code == 0
    np.testing.assert_array_equal(pteron.load(whole).run("forward", X), expected)
    again = command("convert", thin, "--external", tmp_path / "v.ptd", "--data", data, "-o", whole)
    assert again.code == 2
    assert "no constants of its own" in again.err
    assert not (tmp_path / "v.ptd").exists()


def test_data_files_of_the_exporter_come_in(command: Command, tmp_path: Path) -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.register_buffer("sum", torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.sum.add_(1.0)
            return self.linear(x) + self.sum

    config = ExecutorchBackendConfig(external_constants=True)
    manager = to_edge(torch.export.export(Counter().eval(), (torch.ones(2, 4),))).to_executorch(config)
    path = tmp_path / "model.pte"
    manager.save(path)
    manager.write_tensor_data_to_file(tmp_path)
    (data,) = tmp_path.glob("*.ptd")
    inside = tmp_path / "inside.pte"
    assert command("convert", path, "--data", data, "--inline", "-o", inside).code == 0
    ours, theirs = pteron.load(inside), pteron.load(path, data=data)
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(ours.load_method()(x), theirs.load_method()(x))
    assert [spec.name for spec in ours.buffers()] == [spec.name for spec in theirs.buffers()]


def test_both_files_or_none(model_file: Path, command: Command, tmp_path: Path) -> None:
    data = tmp_path / "w.ptd"
    done = command("convert", model_file, "--external", data, "-o", tmp_path / "none" / "out.pte")
    assert done.code == 2
    assert list(tmp_path.iterdir()) == []
    assert command("convert", model_file, "--external", data, "-o", data).code == 2
    assert command("convert", model_file, "-o", data).code == 2


def test_a_foreign_debug_table_is_left_alone(model_file: Path) -> None:
    content = model_file.read_bytes()
    for text in (b"no json", json.dumps({"methods": []}).encode()):
        file = read_program(pteron.load(content), content)
        for one in file.table.named_data:
            if one.key == "pteron.debug":
                one.data = text
        assert narrow(file, "float16").constants == 1
        assert bytes(pteron.load(file.to_bytes()).named_data["pteron.debug"]) == text
