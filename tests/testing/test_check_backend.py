"""The conformance test of backends passes a good one, and names what is wrong with others."""

from __future__ import annotations

from typing import Any

import pytest

import pteron
from pteron.testing import BackendReport, ModelCase, check_backend, model_cases
from tests.testing.tiny_backend import AddingPartitioner, EagerPartitioner, register

MODELS = {model.name: model for model in model_cases()}


def _report(
    *names: str, fault: str = "", partitioner: Any = AddingPartitioner, **options: Any
) -> BackendReport:
    runtime = pteron.Runtime()
    register(runtime, fault)
    models = [MODELS[name] for name in names]
    return check_backend(
        partitioner, models=models, runtime=runtime, damaged=4, raise_on_failure=False, **options
    )


def test_a_good_backend_passes() -> None:
    report = _report("sum of int64", "a sum whose rows vary")
    report.raise_for_failures()
    assert {check.name for check in report.checks if check.outcome == "passed"} == {
        *("to_edge_transform_and_lower", "to_edge, to_backend", "named in the file", "two sessions"),
        *("threads", "stopping", "state", "damaged blobs"),
    }
    assert "not taken  lowering: sum of int64: the partitioner took no node of it" in str(report)
    assert str(report).endswith("8 passed, 0 failed, 1 not taken")


@pytest.mark.parametrize(
    ("fault", "model", "check", "says"),
    [
        (
            "remembers",
            "sum of float32",
            "to_edge_transform_and_lower",
            "call 1, result 0: differs from eager",
        ),
        ("keeps its shape", "a sum whose rows vary", "to_edge_transform_and_lower", "in eager PyTorch"),
    ],
)
def test_faults_are_found(fault: str, model: str, check: str, says: str) -> None:
    found = [each for each in _report(model, fault=fault).failures if each.name == check]
    assert len(found) == 1
    assert says in found[0].what


def test_a_partitioner_that_takes_too_much_is_found() -> None:
    report = _report("sum of int64", partitioner=EagerPartitioner)
    assert any("cannot add int64" in check.what for check in report.failures)
    with pytest.raises(AssertionError, match="checks failed:\nfailed"):
        report.raise_for_failures()


def test_a_crash_on_a_damaged_blob_is_found() -> None:
    report = _report("sum of float32", isolate="tests.testing.tiny_backend:register_one_that_dies")
    (first, *_) = report.failures
    assert first.name == "damaged blobs"
    assert "the process died of signal 6" in first.what


def test_nothing_taken_is_no_success() -> None:
    with pytest.raises(AssertionError, match="took no node of any model"):
        check_backend(AddingPartitioner, models=[MODELS["softmax"]])


def test_every_model_can_be_lowered_and_has_a_name_of_its_own() -> None:
    assert len(MODELS) == len(model_cases())
    for model in MODELS.values():
        assert isinstance(model, ModelCase)
        assert model.all_calls[0] is model.all_calls[-1]
