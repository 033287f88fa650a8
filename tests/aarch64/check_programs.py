"""Programs of `make_programs.py`, at each instruction set of the processor that this runs on; no torch.

PTERON_PROGRAMS names their folder. `make cross-aarch64` runs it on an emulated 64-bit ARM processor; any
other will do.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import numpy as np
import pytest

import pteron
from pteron.devtools.description import describe_plan

FOLDER = Path(os.environ["PTERON_PROGRAMS"])
NAMES = sorted(path.stem for path in FOLDER.glob("*.pte"))
ISAS = ["portable", "neon"] if platform.machine() == "aarch64" else ["portable", pteron.Runtime().isa]


def case(name: str) -> tuple[list[np.ndarray], list[np.ndarray], dict[str, np.ndarray]]:
    """Inputs, expected outputs, and the rest of what was kept."""
    kept = dict(np.load(FOLDER / f"{name}.npz"))
    inputs = [kept[f"input{i}"] for i in range(8) if f"input{i}" in kept]
    if kept["is_bfloat16"]:
        import ml_dtypes

        inputs = [value.view(ml_dtypes.bfloat16) for value in inputs]
    return inputs, [kept[f"expected{i}"] for i in range(32) if f"expected{i}" in kept], kept


def run(name: str, isa: str, threads: int) -> list[np.ndarray]:
    """The outputs of the program."""
    runtime = pteron.Runtime(isa=isa, num_threads=threads)
    outputs = pteron.load(FOLDER / f"{name}.pte", runtime=runtime).run("forward", *case(name)[0])
    return [np.asarray(v) for v in (outputs if isinstance(outputs, tuple | list) else [outputs])]


def test_there_are_programs_and_no_torch() -> None:
    assert len(NAMES) == 9
    assert "torch" not in sys.modules


def test_the_best_instruction_set_of_arm_is_taken() -> None:
    if platform.machine() != "aarch64":
        pytest.skip("another processor")
    assert pteron.Runtime().isa == "neon"
    assert pteron.Runtime(isa="avx512").isa == "neon"
    assert pteron.Runtime(isa="portable").isa == "portable"


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", NAMES)
def test_results_are_those_of_eager_pytorch(name: str, isa: str) -> None:
    _, expected, kept = case(name)
    outputs = run(name, isa, 1)
    assert len(outputs) == len(expected)
    for i, (got, wanted) in enumerate(zip(outputs, expected, strict=True)):
        difference = np.abs(got.astype(np.float64) - wanted).max()
        assert difference <= kept["tolerance"] * max(np.abs(wanted).max(), 1e-30), f"output {i}: {difference}"


@pytest.mark.parametrize("name", NAMES)
def test_the_number_of_threads_changes_no_byte(name: str) -> None:
    one, three = run(name, ISAS[-1], 1), run(name, ISAS[-1], 3)
    assert [v.tobytes() for v in one] == [v.tobytes() for v in three]


@pytest.mark.parametrize("isa", ISAS)
def test_integer_networks_give_the_same_bytes_everywhere(isa: str) -> None:
    assert run("int8", isa, 2)[0].tobytes() == case("int8")[2]["bytes"].tobytes()


def test_kernels_of_the_instruction_set_are_taken() -> None:
    program = pteron.load(FOLDER / "int8.pte", runtime=pteron.Runtime(isa=ISAS[-1]))
    names = [step.name for step in describe_plan(program, "forward").steps]
    assert any(name.startswith("integer.convolution") for name in names)
    if ISAS[-1] == "neon":
        assert not [name for name in names if name.endswith("portable")]
        assert any(".neon" in name for name in names)
