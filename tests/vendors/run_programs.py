"""Runs program files in ExecuTorch's runtime: `python -m tests.vendors.run_programs FOLDER FLOW...`.

FOLDER has both sides of each flow, as `lower` left them; it gets `<flow>/ran.json`: for each model and side
the largest difference from the exported module's results, as a part of the largest of these, and whether the
results of both files are the same numbers.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from tests.vendors.flows import FLOWS
from tests.vendors.lower import folder_of


def results_of(program: Path, calls: list[dict[str, Any]]) -> list[torch.Tensor]:
    """The outputs of every call of a file, one after the other."""
    from executorch.runtime import Runtime, Verification

    loaded = Runtime.get().load_program(program, verification=Verification.InternalConsistency)
    method = loaded.load_method("forward")
    assert method is not None
    return [output.clone() for call in calls for output in method.execute(call["inputs"])]


def difference(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest difference, as a part of the largest value expected; as it is where that is 0."""
    assert [each.shape for each in found] == [each.shape for each in expected]
    # With random weights the int8 results of MobileNetV2 are all 0.
    scale = max(float(each.abs().max()) for each in expected) or 1.0
    return max(float((one - other).abs().max()) for one, other in zip(found, expected, strict=True)) / scale


def compare(folder: Path, flow: str, model: str) -> dict[str, Any]:
    """The differences of one model's two files; what the runtime says of those that it cannot run."""
    outcome: dict[str, Any] = {}
    results, stops = {}, {}
    for side in ("ours", "theirs"):
        stem = folder_of(folder, flow, side) / model.replace(" ", "_")
        calls = torch.load(stem.with_suffix(".pt"))
        expected = [output for call in calls for output in call["outputs"]]
        try:
            results[side] = results_of(stem.with_suffix(".pte"), calls)
        except RuntimeError as error:
            stops[side] = str(error)
        else:
            outcome[side] = difference(results[side], expected)
    if stops:
        return {"stops": stops}
    pairs = zip(results["ours"], results["theirs"], strict=True)
    outcome["same numbers"] = all(torch.equal(one, other) for one, other in pairs)
    return outcome


def main(arguments: list[str]) -> None:
    """Writes the outcome of every model."""
    import executorch.kernels.quantized  # noqa: F401  the kernels of what stays outside of delegates

    folder, *flows = arguments
    for flow in flows:
        found: dict[str, Any] = {}
        for model in FLOWS[flow].models:
            try:
                found[model] = compare(Path(folder), flow, model)
            except Exception:  # the other models are run too
                found[model] = {"error": traceback.format_exc()}
        folder_of(Path(folder), flow, "ran.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
