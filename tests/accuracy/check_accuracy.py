"""Quantised networks lose no more of their task here than in eager PyTorch (`make test-accuracy`).

Twelve architectures that are trained here, and a sentence encoder with real weights: the metric in float32,
of the quantised model in eager PyTorch, of its program here, and of what ExecuTorch and ONNX Runtime make of
the float model. The table is left in target/accuracy/table.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.accuracy.engines import in_eager, in_executorch, in_onnxruntime, in_pteron, quantised
from tests.accuracy.tasks import KEPT, TASKS

# The peers and the recurrent cells of PyTorch warn of this and that.
pytestmark = pytest.mark.filterwarnings("ignore")

COLUMNS = ("network", "float32", "int8, eager", "int8, pteron", "ExecuTorch", "ONNX Runtime")
#: Samples that may fall on the other side: sums of integers are exact, sums of floats are rounded in some
#: order, and a number between two quantised ones becomes either.
SAMPLES = 2
#: What int8 may cost of the metric, where a network takes it at all.
MOST_LOST = 0.03


@pytest.fixture(scope="module")
def table() -> Iterator[list[tuple[str, ...]]]:
    rows: list[tuple[str, ...]] = []
    yield rows
    lines = [f"| {' | '.join(row)} |" for row in [COLUMNS, ("---",) * len(COLUMNS), *rows]]
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / "table.md").write_text("\n".join([*lines, ""]))


@pytest.mark.parametrize("name", TASKS)
def test_the_metric_is_that_of_eager_pytorch(name: str, table: list[tuple[str, ...]]) -> None:
    task = TASKS[name]()
    model = quantised(task)
    scores = {
        "float32": task.score(in_eager(task.model, task.batches)),
        "eager": task.score(in_eager(model, task.batches)),
        "pteron": task.score(in_pteron(model, task.batches)),
        "executorch": _score_of(in_executorch, task),
        "onnxruntime": _score_of(in_onnxruntime, task),
    }
    table.append((name, *(f"{score:.1%}" if score is not None else "-" for score in scores.values())))
    print(table[-1])
    assert abs(scores["pteron"] - scores["eager"]) <= SAMPLES * task.step + 1e-9, scores
    assert scores["pteron"] >= scores["float32"] - MOST_LOST, scores


def _score_of(engine: Any, task: Any) -> float | None:
    """The score of a peer, `None` where it makes no model of this one."""
    try:
        outputs = engine(task)
    except Exception as error:  # every stage of the peers has a class of its own
        print(f"{engine.__name__}: {str(error).strip().splitlines()[0][:200]}")
        return None
    return float(task.score(outputs))
