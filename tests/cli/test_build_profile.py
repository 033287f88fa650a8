"""`pteron build-profile` names the cargo features that programs need, and those alone."""

from __future__ import annotations

import tomllib
from pathlib import Path

import torch

import pteron
from pteron import _native
from pteron.devtools import operator_features
from pteron.exir import to_edge
from tests.cli.conftest import Command

ROOT = Path(__file__).resolve().parents[2]
XNNPACK_PROGRAMS = ROOT / "rust" / "pteron-xnnpack" / "tests" / "programs"


class Sorted(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.topk(x + 1, 2)[0]


def sorted_file(folder: Path) -> Path:
    path = folder / "sorted.pte"
    exported = torch.export.export(Sorted(), (torch.randn(5),))
    path.write_bytes(to_edge(exported).to_executorch().buffer)
    return path


def test_features_of_several_programs_are_joined(model_file: Path, command: Command, tmp_path: Path) -> None:
    one = command("build-profile", model_file, "--json").json
    assert one["features"] == {"convolution": ["aten::convolution.out"]}
    assert one["always"] > 2
    both = command("build-profile", model_file, sorted_file(tmp_path))
    assert both.code == 0
    assert both.out.endswith("--no-default-features --features convolution,sorting\n")
    assert f'version = "={pteron.__version__}"' in both.out
    assert 'features = ["convolution", "sorting"]' in both.out


def test_a_program_of_the_core_needs_no_feature(command: Command) -> None:
    done = command("build-profile", ROOT / "schema" / "samples" / "linear_relu.pte")
    assert done.code == 0
    assert done.out.endswith("as arguments of cargo:\n--no-default-features\n")


def test_delegates_that_load_opens_count(command: Command) -> None:
    opened = command("build-profile", XNNPACK_PROGRAMS / "upscale.pte", "--json").json
    assert "image" in opened["features"]
    assert opened["backends"] == []


def test_operators_without_a_kernel_are_found(model_file: Path, command: Command, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.pte"
    damaged.write_bytes(model_file.read_bytes().replace(b"aten::relu", b"none::relu"))
    done = command("build-profile", damaged)
    assert done.code == 1
    assert "no feature has none::relu.out: register a kernel for it in the binary\n" in done.out
    assert command("build-profile", tmp_path / "none.pte").code == 2


def test_features_are_those_of_the_crates() -> None:
    copy = Path(operator_features.__file__).with_suffix(".txt").read_text()
    assert copy == (ROOT / "rust" / "pteron-kernels" / "src" / "features.txt").read_text(), "make bless-rust"
    manifest = tomllib.loads((ROOT / "rust" / "pteron-runtime" / "Cargo.toml").read_text())
    found = {operator_features.feature_of(name) for name in _native.operator_names()} - {None}
    assert found == set(manifest["features"]["all-operators"])
    assert operator_features.feature_of("none::relu.out") is None
