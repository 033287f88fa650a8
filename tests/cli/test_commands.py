"""Each command says what is true of a program, with the exit code that scripts use."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

import pteron
from pteron import _native
from pteron.cli import COMMANDS
from pteron.devtools.bundle_part import program_part
from pteron.devtools.description import TensorValue
from pteron.devtools.size_report import Duplicate, find_duplicates
from pteron.exir import to_edge
from tests.cli.conftest import Command


def test_info_names_inputs_sizes_and_that_it_runs(model_file: Path, command: Command) -> None:
    done = command("info", model_file)
    assert done.code == 0
    assert "input x: float32[1, 3, 8, 8]" in done.out
    assert done.out.endswith("runs here\n")
    facts = command("info", model_file, "--json").json
    assert facts["file_bytes"] == model_file.stat().st_size
    assert facts["methods"]["forward"]["outputs"][0]["shape"] == [1, 4]
    assert facts["constant_bytes"] >= 4 * (8 * 3 * 9 + 8 + 8 * 36 * 4 + 4)


def test_check_finds_every_missing_kernel(model_file: Path, command: Command, tmp_path: Path) -> None:
    assert command("check", model_file).code == 0
    damaged = tmp_path / "damaged.pte"
    content = model_file.read_bytes()
    damaged.write_bytes(
        content.replace(b"aten::convolution", b"none::convolution").replace(b"aten::relu", b"none::relu")
    )
    done = command("check", damaged)
    assert done.code == 1
    assert done.out.splitlines() == ["no kernel for none::convolution.out", "no kernel for none::relu.out"]
    info = command("info", damaged)
    assert info.code == 0
    assert "missing here: a kernel for none::relu.out" in info.out


def test_kernels_says_why_others_declined(command: Command, tmp_path: Path) -> None:
    class Products(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (x @ y).double().cumsum(0)

    path = tmp_path / "products.pte"
    exported = torch.export.export(Products(), (torch.ones(3, 4), torch.ones(4, 5)))
    path.write_bytes(to_edge(exported).to_executorch().buffer)
    rows = command("kernels", path, "--json").json
    declined = next(row["declined"] for row in rows if "gemm" in row["kernel"])
    assert {"kernel": "f32_column", "why": "takes a dense float32 matrix and one column"} in declined
    assert all(one["why"] for row in rows for one in row["declined"])
    assert "declined since" in command("kernels", path).out
    assert "takes one dense float32 row" in command("kernels", path).out


def test_check_names_a_cut_file(model_file: Path, command: Command, tmp_path: Path) -> None:
    cut = tmp_path / "cut.pte"
    cut.write_bytes(model_file.read_bytes()[:-4000])
    done = command("check", cut, "--json")
    assert done.code == 1
    assert len(done.json["faults"]) == 1


def test_a_backend_is_loaded_once(model_file: Path, command: Command) -> None:
    # `check` opens the program and asks for its runtime: the second must not register the backend again.
    assert command("check", model_file, "--backend", "XnnpackBackend").code == 0
    assert command("check", model_file, "--backend", "NoSuchBackend").code == 2


def test_ops_counts_calls(model_file: Path, command: Command) -> None:
    rows = {row["operator"]: row for row in command("ops", model_file, "--json").json}
    assert rows["aten::convolution.out"] == {"operator": "aten::convolution.out", "calls": 1, "kernel": True}
    assert command("ops", "--all").out.splitlines() == _native.operator_names()
    assert command("ops").code == 2


def test_kernels_are_those_of_the_program(model_file: Path, command: Command) -> None:
    rows = command("kernels", model_file, "--json").json
    program = pteron.load(model_file)
    assert [row["kernel"] for row in rows] == list(program.kernels())
    fused = next(row for row in rows if "aten::convolution.out" in row["operators"])
    assert "first.0" in fused["modules"]
    portable = command("kernels", model_file, "--isa", "portable", "--json").json
    assert not any("avx" in row["kernel"] for row in portable)
    assert command("kernels", model_file, "--isa", "sse9").code == 2


def test_run_saves_and_compares(model_file: Path, command: Command, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    saved = tmp_path / "out.npz"
    assert command("run", model_file, "-i", tmp_path / "x.npy", "--save", saved).code == 0
    expected = pteron.load(model_file).run("forward", x)
    (name,) = np.load(saved)
    np.testing.assert_array_equal(np.load(saved)[name], expected)
    same = ["run", model_file, "-i", tmp_path / "x.npy", "--check-outputs", saved]
    assert command(*same).code == 0
    np.savez(tmp_path / "other.npz", **{name: expected + 0.5})
    other = command(*same[:-1], tmp_path / "other.npz")
    assert other.code == 1
    assert "4 of 4 elements differ, by at most 0.5" in other.out
    np.savez(tmp_path / "shape.npz", **{name: expected[0]})
    assert "expected shape [4]" in command(*same[:-1], tmp_path / "shape.npz").out


def test_inputs_are_read_and_made_up(model_file: Path, command: Command, tmp_path: Path) -> None:
    x = np.ones((1, 3, 8, 8), np.float32)
    np.savez(tmp_path / "named.npz", x=x)
    header = json.dumps(
        {"x": {"dtype": "F32", "shape": list(x.shape), "data_offsets": [0, x.nbytes]}}
    ).encode()
    (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + x.tobytes())
    first = command("run", model_file, "-i", tmp_path / "named.npz").out
    assert command("run", model_file, "-i", tmp_path / "x.safetensors").out == first
    assert command("run", model_file, "-i", "x=1x3x8x8:float32:1..1").out == first
    assert command("run", model_file).out == command("run", model_file, "--seed", 0).out
    assert command("run", model_file).out != command("run", model_file, "--seed", 1).out


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("y=1x3x8x8", "no input 'y'; it has x"),
        ("x=1x3x8x8:float99", "no values can be made up for float99"),
        ("x=1x3x8x8:float32:a..b", "no range of numbers"),
        ("x=1x3x8x8:float32:2..1", "the range is empty"),
        ("nonsense", "is no input"),
    ],
)
def test_wrong_inputs_are_usage_errors(text: str, why: str, model_file: Path, command: Command) -> None:
    done = command("run", model_file, "-i", text)
    assert done.code == 2
    assert why in done.err
    assert done.err.count("\n") == 1


def test_a_wrong_shape_is_one_line_with_code_1(model_file: Path, command: Command) -> None:
    done = command("run", model_file, "-i", "x=1x3x9x9")
    assert done.code == 1
    assert done.err.startswith("pteron: ")
    assert done.err.count("\n") == 1


def test_files_that_cannot_be_used(model_file: Path, command: Command, tmp_path: Path) -> None:
    assert "No such file" in command("info", tmp_path / "none.pte").err
    assert command("info", tmp_path / "none.pte").code == 2
    (tmp_path / "page.html").write_text("<!DOCTYPE html><html></html>")
    done = command("info", tmp_path / "page.html")
    assert done.code == 1
    assert "a web page" in done.err
    (tmp_path / "bad.npz").write_bytes(b"no zip")
    assert command("run", model_file, "-i", tmp_path / "bad.npz").code == 2
    (tmp_path / "bad.safetensors").write_bytes(b"\xff" * 20)
    assert command("run", model_file, "-i", tmp_path / "bad.safetensors").code == 2
    done = command("strip", model_file, "-o", tmp_path / "none" / "small.pte")
    assert done.code == 2
    assert "none" in done.err


def test_a_failed_write_leaves_nothing(model_file: Path, command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "taken.npz"
    folder.mkdir()
    assert command("run", model_file, "--save", folder).code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["taken.npz"]


def test_strip_and_diff(model_file: Path, command: Command, tmp_path: Path) -> None:
    small = tmp_path / "small.pte"
    sizes = command("strip", model_file, "-o", small, "--json").json
    assert sizes == {"old_bytes": model_file.stat().st_size, "new_bytes": small.stat().st_size}
    assert " -> " in command("strip", model_file, "-o", small).out
    assert small.stat().st_size < model_file.stat().st_size
    assert command("diff", model_file, model_file).out == "no difference\n"
    found = command("diff", model_file, small, "--json")
    assert found.code == 1
    assert {one["what"] for one in found.json} >= {"file bytes", "named data pteron.debug"}
    assert not any("calls of" in one["what"] for one in found.json)
    other = tmp_path / "other.pte"
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    exported = torch.export.export(module, (torch.randn(2, 4),))
    other.write_bytes(to_edge(exported).to_executorch().buffer)
    text = command("diff", model_file, other).out
    assert "forward: calls of aten::tanh.out: None -> 1" in text


def test_size_accounts_for_the_whole_file(model_file: Path, command: Command) -> None:
    report = command("size", model_file, "--json").json
    assert sum(report["parts"].values()) == report["file_bytes"] == model_file.stat().st_size
    assert sum(report["modules"].values()) == report["parts"]["weights"] == sum(report["dtypes"].values())
    assert report["modules"]["head"] == 4 * (8 * 36 * 4 + 4)
    assert command("size", model_file).code == 0


def test_a_bundled_program_is_program_and_cases(model_file: Path, command: Command, tmp_path: Path) -> None:
    content = model_file.read_bytes()
    bundle = tmp_path / "bundle.bpte"
    bundle.write_bytes(_native.serialize_bundle(content, []))
    report = command("size", bundle, "--json").json
    alone = command("size", model_file, "--json").json
    cases = report["parts"].pop("test cases")
    assert report["parts"] == alone["parts"]
    assert cases == bundle.stat().st_size - len(content)
    assert [one["what"] for one in command("diff", model_file, bundle, "--json").json] == ["file bytes"]
    assert bytes(program_part(bundle.read_bytes())) == content
    for damaged in (b"\x08\0\0\0BP08", b"\0\0\0\0BP08" + b"\1" * 40):
        with pytest.raises(ValueError, match="not a bundled program"):
            program_part(damaged)


def test_completion_knows_commands_options_and_choices(command: Command) -> None:
    def complete(line: str) -> list[str]:
        script = (
            command("completion", "bash").out
            + f"COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n_pteron\n"
            + 'printf "%s\\n" "${COMPREPLY[@]}"\n'
        )
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert complete("pteron be") == ["bench"]
    assert "bisect-rewrites" in complete("pteron b")
    assert "--assert-deterministic" in complete("pteron bench --")
    assert complete("pteron profile --by op") == ["operator"]
    assert complete("pteron completion z") == ["zsh"]
    named = {one["name"]: one for one in command("completion", "fish", "--json").json["commands"]}
    assert len(named) == len(COMMANDS)
    assert any("--assert-deterministic" in option["names"] for option in named["bench"]["options"])
    for shell in ("zsh", "fish"):
        text = command("completion", shell).out
        assert all(module.__name__.rpartition(".")[2].replace("_", "-") in text for module in COMMANDS)


def test_size_finds_what_is_stored_twice() -> None:
    content = b"weights!" + b"another." + b"weights!"
    tensors = {
        (start, start + 8): (TensorValue(start, "float32", (2,), 8, False, False, name=name), "")
        for start, name in ((0, "first"), (8, "second"), (16, "third"))
    }
    assert list(find_duplicates(content, tensors, {})) == [Duplicate(("first", "third"), 8)]


def test_knobs_and_plugins(command: Command) -> None:
    names = {knob["name"] for knob in command("knobs", "--json").json}
    assert {f"Runtime(disabled_rules=[{rule!r}])" for rule in _native.rule_names()} <= names
    assert {"PTERON_ISA", "Limits(arena_bytes=)"} <= names
    assert command("knobs").code == 0
    assert "XnnpackBackend" in command("plugins", "--json").json["registered"]


def test_usage(command: Command) -> None:
    assert command().code == 2
    assert command("nothing").code == 2
    unknown = command("info", "model.pte", "--colour")
    assert (unknown.code, unknown.out) == (2, "")
    assert "unrecognized arguments: --colour (`pteron info --help` shows" in unknown.err
    assert command("--version").out == f"pteron {pteron.__version__}\n"
    for module in COMMANDS:
        done = command(module.__name__.rpartition(".")[2].replace("_", "-"), "--help")
        assert done.code == 0
        assert f"example: {module.EXAMPLE}" in done.out
