"""Programs with test cases: written here, read here and by ExecuTorch, and the other way round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pteron
from pteron.compat import portable_lib
from pteron.devtools.bundled_program import (
    BundledProgram,
    MethodTestCase,
    MethodTestSuite,
    serialize_from_bundled_program_to_flatbuffer,
)
from pteron.errors import ExportError
from pteron.exir import ExecutorchBackendConfig, ExecutorchProgramManager, to_edge


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.linear(x))
        return y, y.argmax(-1)


MODEL = Model().eval()
SAMPLES = Path(__file__).resolve().parents[2] / "schema" / "samples"
INPUTS = [torch.randn(2, 4, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]


@pytest.fixture(scope="module")
def manager() -> ExecutorchProgramManager:
    captured = torch.export.export(MODEL, (INPUTS[0],))
    return to_edge(captured).to_executorch(ExecutorchBackendConfig(kernels="executorch-portable"))


def _suite(*cases: MethodTestCase) -> MethodTestSuite:
    return MethodTestSuite("forward", list(cases))


def _cases() -> list[MethodTestCase]:
    with torch.no_grad():
        cases = [MethodTestCase((x,), MODEL(x)) for x in INPUTS[:2]]
        wrong = MODEL(INPUTS[0])[0] + torch.tensor([0.0, 0.0, 1.0])
    return [*cases, MethodTestCase((INPUTS[0],), (wrong, MODEL(INPUTS[0])[1])), MethodTestCase((INPUTS[2],))]


@pytest.fixture(scope="module")
def bundle(manager: ExecutorchProgramManager) -> bytes:
    return serialize_from_bundled_program_to_flatbuffer(BundledProgram(manager, [_suite(*_cases())]))


def test_a_bundle_runs_like_its_program(
    manager: ExecutorchProgramManager, bundle: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "model.bpte"
    path.write_bytes(bundle)
    expected = pteron.load(manager.buffer).run("forward", INPUTS[0].numpy())
    for source in (bundle, path):
        program = pteron.load(source)
        assert program.methods == ("forward",)
        for got, want in zip(program.run("forward", INPUTS[0].numpy()), expected, strict=True):
            assert got.tobytes() == want.tobytes()


def test_cases_come_back(bundle: bytes) -> None:
    cases = pteron.load(bundle).test_cases()
    assert [len(case.inputs) for case in cases] == [1, 1, 1, 1]
    assert [len(case.expected_outputs) for case in cases] == [2, 2, 2, 0]
    np.testing.assert_array_equal(cases[1].inputs[0], INPUTS[1].numpy())
    assert cases[1].expected_outputs[1].dtype == np.int64


def test_cases_are_verified(bundle: bytes) -> None:
    program = pteron.load(bundle)
    assert program.verify()
    assert program.verify("forward", 1)
    failed = program.verify(case=2)
    assert not failed
    assert [output.passed for output in failed.outputs] == [False, True]
    assert failed.outputs[0].mismatches == 2
    assert failed.outputs[0].largest_difference == pytest.approx(1.0)
    assert "output 0: 2 elements out of tolerance, largest difference 1" in str(failed)
    assert program.verify("forward", 2, atol=1.5)
    with pytest.raises(pteron.InputError, match="case 3 of method 'forward' has no expected outputs"):
        program.verify("forward", 3)
    with pytest.raises(pteron.InputError, match="has 4 test cases; there is no case 4"):
        program.verify("forward", 4)
    with pytest.raises(pteron.InputError, match="has 4 test cases; there is no case -1"):
        program.verify("forward", -1)
    with pytest.raises(pteron.MethodNotFoundError):
        program.verify("backward")


class _Copied(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clone()


def _case_of_a_copy(given: torch.Tensor, expected: torch.Tensor) -> bytes:
    manager = to_edge(torch.export.export(_Copied(), (given,))).to_executorch()
    suite = _suite(MethodTestCase((given,), (expected,)))
    return serialize_from_bundled_program_to_flatbuffer(BundledProgram(manager, [suite]))


@pytest.mark.parametrize(
    ("given", "expected", "tolerances", "difference"),
    [
        (torch.tensor([150000]), torch.tensor([150001]), {}, 1.0),
        (torch.tensor([2**53, 1]), torch.tensor([2**53 + 1, 1]), {}, 1.0),
        (torch.tensor([-(2**63)]), torch.tensor([2**63 - 1]), {"rtol": 9.0}, 2.0**64),
        (torch.tensor([250], dtype=torch.uint8), torch.tensor([251], dtype=torch.uint8), {"atol": 1.5}, 1.0),
        (torch.tensor([-100], dtype=torch.int8), torch.tensor([100], dtype=torch.int8), {"atol": 1e3}, 200.0),
        (torch.tensor([True]), torch.tensor([False]), {"atol": 2.0}, 1.0),
    ],
)
def test_tolerances_are_for_floats(
    given: torch.Tensor, expected: torch.Tensor, tolerances: dict[str, float], difference: float
) -> None:
    result = pteron.load(_case_of_a_copy(given, expected)).verify(**tolerances)
    assert not result
    assert (result.outputs[0].mismatches, result.outputs[0].largest_difference) == (1, difference)
    assert pteron.load(_case_of_a_copy(given, given)).verify(rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_floats_of_every_width_have_tolerances(dtype: torch.dtype) -> None:
    x = torch.ones(2).to(dtype)
    bundle = _case_of_a_copy(x, x * 1.5)
    assert pteron.load(bundle).verify(atol=0.6)
    assert not pteron.load(bundle).verify(atol=0.4)


def test_a_program_without_cases(manager: ExecutorchProgramManager) -> None:
    assert pteron.load(manager.buffer).test_cases() == []


def test_numbers_can_be_inputs() -> None:
    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor, factor: int, is_negative: bool) -> torch.Tensor:
            return -x * factor if is_negative else x * factor

    captured = torch.export.export(Scaled(), (torch.ones(2), 3, True))
    manager = to_edge(captured).to_executorch()
    suite = _suite(MethodTestCase((torch.ones(2), 3, True), torch.tensor([-3.0, -3.0])))
    program = pteron.load(serialize_from_bundled_program_to_flatbuffer(BundledProgram(manager, [suite])))
    assert program.test_cases()[0].inputs[1:] == [3, True]
    assert program.verify()


def test_a_program_file_can_be_bundled(
    manager: ExecutorchProgramManager, bundle: bytes, tmp_path: Path
) -> None:
    manager.save(tmp_path / "model.pte")
    from_file = BundledProgram(None, [_suite(*_cases())], tmp_path / "model.pte")
    assert serialize_from_bundled_program_to_flatbuffer(from_file) == bundle


def test_cases_that_do_not_fit_are_refused(manager: ExecutorchProgramManager) -> None:
    def refused(text: str, *suites: MethodTestSuite) -> None:
        with pytest.raises(ExportError, match=text):
            BundledProgram(manager, suites)

    x = INPUTS[0]
    refused("no method 'backward'", MethodTestSuite("backward", []))
    refused("two test suites are for method 'forward'", _suite(), _suite())
    refused("test case 0, inputs: expected 1 flat values, got 2", _suite(MethodTestCase((x, x))))
    refused("input 0 has another type.*dtype code 6.*dtype code 7", _suite(MethodTestCase((x.double(),))))
    refused("input 0 has another type.*got int", _suite(MethodTestCase((3,))))
    refused("expected outputs: expected 2 flat values, got 1", _suite(MethodTestCase((x,), x)))
    with pytest.raises(ExportError, match="value 1 cannot be bundled"):
        MethodTestCase((x, "text"))
    with pytest.raises(ExportError, match="exactly one of executorch_program and pte_file_path"):
        BundledProgram(None, [])


def test_damaged_bundles_are_refused(bundle: bytes) -> None:
    with pytest.raises(pteron.ProgramError, match="table of the file is damaged"):
        pteron.load(bundle[:-100])


def test_the_older_loader_verifies(bundle: bytes) -> None:
    loaded = portable_lib._load_bundled_program_from_buffer(bundle)
    outputs = loaded.verify_result_with_bundled_expected_output("forward", 1)
    with torch.no_grad():
        torch.testing.assert_close(tuple(outputs), MODEL(INPUTS[1]))
    with pytest.raises(pteron.PteronError, match=r"verification failed: .*case 2: FAILED; output 0: 2 el"):
        loaded.verify_result_with_bundled_expected_output("forward", 2)
    with pytest.raises(pteron.InputError, match="case 3 of method 'forward' has no expected outputs"):
        loaded.verify_result_with_bundled_expected_output("forward", 3)
    with pytest.raises(pteron.MethodNotFoundError):
        loaded.verify_result_with_bundled_expected_output("backward", 0)
    module = portable_lib._load_for_executorch_from_bundled_program(loaded)
    assert len(module.forward([INPUTS[0].numpy()])) == 2


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_executorch_verifies_our_bundles(bundle: bytes) -> None:
    peer: Any = pytest.importorskip(
        "executorch.extension.pybindings.portable_lib", reason="needs the executorch wheel"
    )
    loaded = peer._load_bundled_program_from_buffer(bundle)
    outputs = loaded.verify_result_with_bundled_expected_output("forward", 1)
    with torch.no_grad():
        torch.testing.assert_close(tuple(outputs), MODEL(INPUTS[1]))
    with pytest.raises(RuntimeError, match="verification failed"):
        loaded.verify_result_with_bundled_expected_output("forward", 2)


def test_bundles_of_executorch_verify_here() -> None:
    """The file was written by ExecuTorch 1.5.1: an affine layer, a good case and one that must fail."""
    program = pteron.load(SAMPLES / "executorch_bundle.bpte")
    assert program.verify("forward", 0)
    assert not program.verify("forward", 1)
    np.testing.assert_array_equal(program.test_cases()[0].inputs[0], [[1.0, 2.0]])
