"""Every case of `models`: lowered and run by ExecuTorch in a process of its own, and run here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pteron
from tests.support.extent import is_full
from tests.support.own_interpreter import ROOT
from tests.xnnpack.models import CASES, NETWORKS, file_name

pytestmark = pytest.mark.peer
pytest.importorskip("executorch.runtime", reason="needs the executorch wheel")

#: The cases of `make test`: a node of each family of kernels, and networks; `make test-xnnpack` takes all.
QUICK = {
    "Add, broadcast",
    "FullyConnected, relu",
    "Conv2d, stride, groups",
    "DepthwiseConv2d",
    "MaxPooling2d",
    "StaticResizeBilinear2D",
    "Gelu",
    "int8 Add",
    "int8 Multiply",
    "int8 Conv2d, relu",
    "int8 DepthwiseConv2d",
    "linear",
    "block, any length",
    "parts",
    "int8 convolutions",
    "int8 mobile",
    "dynamic int8",
    "four bits",
    "bfloat16",
}
NAMES = [name for name in CASES if is_full("XNNPACK") or name in QUICK]
assert CASES.keys() >= QUICK

#: Of the largest element of eager's result.
FLOAT32 = 1e-5


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what `lower` writes; ExecuTorch starts once for all cases."""
    folder = tmp_path_factory.mktemp("xnnpack")
    command = [sys.executable, "-m", "tests.xnnpack.lower", str(folder), *NAMES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def file_of(folder: Path, name: str) -> tuple[bytes, dict[str, Any]]:
    """The program of a case, and what is known of its results."""
    path = folder / file_name(name)
    return path.read_bytes(), torch.load(path.with_suffix(".pt"))


def results(program: pteron.Program, record: dict[str, Any]) -> list[list[np.ndarray]]:
    """Our results of every call."""
    method = program.load_method("forward")
    return [[np.asarray(out) for out in method.execute(list(inputs))] for inputs in record["inputs"]]


FLOATS = [name for name in NAMES if CASES[name].quantized is None and not CASES[name].is_bfloat16]


@pytest.mark.parametrize("name", FLOATS)
def test_float32_is_eagers(name: str, files: Path) -> None:
    content, record = file_of(files, name)
    assert "XnnpackBackend" in record["delegates"]
    assert record["operators"] == [] or CASES[name].leftover or name in NETWORKS
    program = pteron.load(content)
    for ours, eager, theirs in zip(
        results(program, record), record["eager"], record["executorch"], strict=True
    ):
        for mine, expected, peer in zip(ours, eager, theirs, strict=True):
            assert mine.shape == tuple(expected.shape)
            assert mine.dtype == peer.numpy().dtype
            most = FLOAT32 * max(1.0, float(expected.abs().max()))
            np.testing.assert_allclose(mine, expected.numpy(), rtol=0, atol=most)
    assert "XnnpackBackend" not in program.plan_listing("forward")


STATIC = [name for name in NAMES if CASES[name].quantized == "static"]
#: Networks with a node that computes in float32 between int8 ones.
MIXED = ["int8 mobile"]


@pytest.mark.parametrize("name", [name for name in STATIC if name not in MIXED])
def test_static_int8_is_executorchs(name: str, files: Path) -> None:
    content, record = file_of(files, name)
    assert record["step"] > 0
    (ours,), (theirs,) = results(pteron.load(content), record), record["executorch"]
    for mine, peer in zip(ours, theirs, strict=True):
        share = np.mean(mine != peer.numpy())
        assert share == 0, f"{share:.3%} of the elements differ"


@pytest.mark.parametrize("name", MIXED)
def test_int8_beside_floats_is_within_a_step_of_executorchs(name: str, files: Path) -> None:
    content, record = file_of(files, name)
    (ours,), (theirs,) = results(pteron.load(content), record), record["executorch"]
    for mine, peer in zip(ours, theirs, strict=True):
        steps = np.abs(mine - peer.numpy()) / record["step"]
        assert steps.max() < 1.01, f"{steps.max()} steps; {(steps > 0.5).mean():.2%} of the elements differ"


@pytest.mark.parametrize("operator", ["fixed_point_add", "integer_mul"])
def test_sums_and_products_of_int8_are_computed_in_integers(operator: str, files: Path) -> None:
    content, _ = file_of(files, {"fixed_point_add": "int8 Add", "integer_mul": "int8 Multiply"}[operator])
    assert f"pteron::{operator}.out" in pteron.load(content).plan_listing("forward")


def test_bfloat16_is_executorchs(files: Path) -> None:
    content, record = file_of(files, "bfloat16")
    assert record["delegates"] == ["XnnpackBackend"]
    assert record["operators"] == []
    method = pteron.load(content).load_method("forward")
    (ours,), (theirs,) = method.execute(record["inputs"][0]), record["executorch"][0]
    assert isinstance(ours, torch.Tensor)
    assert ours.dtype == theirs.dtype == torch.bfloat16
    wide = record["wide"]
    for found in (ours, theirs):
        torch.testing.assert_close(found.double(), wide, rtol=2**-8, atol=2**-8 * float(wide.abs().max()))


ROWS = [name for name in NAMES if CASES[name].quantized not in (None, "static")]


@pytest.mark.parametrize("name", ROWS)
def test_dynamic_int8_is_executorchs(name: str, files: Path) -> None:
    content, record = file_of(files, name)
    assert "XnnpackBackend" in record["delegates"]
    for ours, theirs in zip(results(pteron.load(content), record), record["executorch"], strict=True):
        for mine, peer in zip(ours, theirs, strict=True):
            # A step of the activations is 1/255 of their range.
            most = 2 / 255 * float(peer.abs().max())
            np.testing.assert_allclose(mine, peer.numpy(), rtol=0, atol=most)


@pytest.mark.parametrize("name", [name for name in ROWS if name.startswith("four bits")])
def test_filters_of_four_bits_stay_so(name: str, files: Path) -> None:
    program = pteron.load(file_of(files, name)[0])
    kernels = program.kernels()
    assert sum(kernel.startswith("integer.linear.u4_nr32k8_v1.rows") for kernel in kernels) == 2, kernels


def test_methods_share_their_weights(files: Path) -> None:
    program = pteron.load(files / "shared.pte")
    record = torch.load(files / "shared.pt")
    packs = []
    for method, (x, expected) in record.items():
        (ours,) = program.load_method(method).execute([x])
        np.testing.assert_allclose(np.asarray(ours), expected.numpy(), rtol=0, atol=1e-5)
        packs.append(program.pack_stats)
    assert packs[0] == packs[1]


def test_weights_come_from_a_data_file(files: Path) -> None:
    x, expected = torch.load(files / "external.pt")
    data = files / "weights.ptd"
    assert data.stat().st_size > 0
    program = pteron.load(files / "external.pte", data=data)
    np.testing.assert_allclose(program.run("forward", x), expected.numpy(), rtol=0, atol=FLOAT32)
    with pytest.raises(pteron.ExternalDataError, match="XnnpackBackend"):
        pteron.load(files / "external.pte").load_method("forward")


def test_neighbours_outside_of_the_delegates_are_in_the_same_plan(files: Path) -> None:
    content, _ = file_of(files, "parts")
    listing = pteron.load(content).plan_listing("forward")
    assert any(line.startswith("[0.") for line in listing.splitlines())
    assert "cumsum" in listing


def test_a_tracer_sees_the_parts_of_the_delegate(files: Path) -> None:
    class Tracer:
        def __init__(self) -> None:
            self.seen: list[tuple[list[int], list[tuple[int, int, int]]]] = []

        def step_begin(self, step: Any) -> None:
            self.seen.append((step.instructions, step.parts))

    content, record = file_of(files, "linear")
    tracer = Tracer()
    pteron.load(content).load_method("forward").execute(list(record["inputs"][0]), tracer=tracer)
    parts = [part for _, of_step in tracer.seen for part in of_step]
    assert {instruction for instructions, _ in tracer.seen for instruction in instructions} == {0}
    assert {delegate for delegate, _, _ in parts} == {0}
    assert len(parts) >= 2


def test_options_of_executorch_are_accepted_and_others_are_not(files: Path) -> None:
    program = pteron.load(file_of(files, "linear")[0])
    options = {"workspace_sharing_mode": 1, "weight_cache_enabled": True}
    program.load_method("forward", backend_options={"XnnpackBackend": options})
    with pytest.raises(pteron.InputError, match="workspace_sharing_mode"):
        program.load_method("forward", backend_options={"XnnpackBackend": {"workspace": 1}})


def test_the_backend_is_listed(files: Path) -> None:
    assert "XnnpackBackend" in pteron.Runtime().backends
    assert pteron.Runtime().is_available("XnnpackBackend")
    assert pteron.load(file_of(files, "linear")[0]).backends("forward") == ("XnnpackBackend",)


def test_a_registered_backend_of_the_name_is_called_instead(files: Path) -> None:
    class Refusing:
        def init(self, *_: Any, **__: Any) -> Any:
            raise ValueError("mine was asked")

    runtime = pteron.Runtime()
    pteron.register_backend("XnnpackBackend", Refusing(), runtime=runtime)
    program = pteron.load(file_of(files, "linear")[0], runtime=runtime)
    with pytest.raises(pteron.PteronError, match="mine was asked"):
        program.load_method("forward")


def test_values_of_a_delegate_count(files: Path) -> None:
    with pytest.raises(pteron.LimitExceeded, match=r"limits\.values"):
        pteron.load(file_of(files, "linear")[0], limits=pteron.Limits(values=6)).load_method("forward")


def test_a_damaged_payload_is_refused_with_its_place(files: Path) -> None:
    content = bytearray(file_of(files, "linear")[0])
    at = content.index(b"XH00")
    content[at + 8] ^= 0xFF
    with pytest.raises(pteron.PteronError, match="backend XnnpackBackend"):
        pteron.load(bytes(content)).load_method("forward")
