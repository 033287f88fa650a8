"""The conformance test of pteron's backends, over all of its models."""

from __future__ import annotations

import pteron
from pteron.testing import check_backend
from pteron_openvino import OpenvinoPartitioner, register

#: OpenVINO computes these in other element types, and the partitioner says so.
_LEFT = {f"sum of {name}" for name in ("float64", "int64", "int32", "int8", "uint8")}


def test_everything_taken_passes() -> None:
    runtime = pteron.Runtime()
    register(runtime)
    report = check_backend(OpenvinoPartitioner, runtime=runtime, damaged=64)
    assert {check.model for check in report.checks if check.outcome == "not taken"} == _LEFT
    assert sum(check.name == "damaged blobs" for check in report.checks) == 3


def test_integers_are_taken_on_request() -> None:
    runtime = pteron.Runtime()
    register(runtime)
    report = check_backend(
        lambda: OpenvinoPartitioner(takes_integers=True), runtime=runtime, damaged=4, raise_on_failure=False
    )
    assert not [check for check in report.checks if check.outcome == "not taken"]
    assert {check.model for check in report.failures} <= _LEFT
