"""The conformance test of pteron's backends, over all of its models."""

from __future__ import annotations

import pteron
from pteron.testing import check_backend
from pteron_onnxruntime import OnnxRuntimePartitioner, register


def test_everything_taken_passes() -> None:
    runtime = pteron.Runtime()
    register(runtime)
    report = check_backend(OnnxRuntimePartitioner, runtime=runtime, damaged=64)
    # ONNX Runtime has no kernel of it for processors.
    left = {check.model for check in report.checks if check.outcome == "not taken"}
    assert left == {"sum of bfloat16"}
    assert sum(check.name == "damaged blobs" for check in report.checks) == 3
