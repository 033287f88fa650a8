"""The operator cases as calls in JSON, each with the results that it has room for.

    PYTHONPATH=python python -m tests.ops.right_calls

writes `rust/pteron-fuzz/src/kernel_args/right_calls.json`, from which the fuzz target `kernel_args` starts so
that every operator runs: shapes, types and numbers that belong together are rarely found by chance.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from pteron import _native
from tests.error_texts.kernel_call import Call
from tests.ops.dtype_probe import results
from tests.ops.operator_case import OperatorCase, Output
from tests.ops.operator_cases import every_case
from tests.support.programs import CODES

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "rust" / "pteron-fuzz" / "src" / "kernel_args" / "right_calls.json"
PER_OPERATOR = 2
LARGEST = 1024
ROWS = {"in": "float32", "shape": [2, 3, 4]}
CHANNELS = {"in": "float32", "shape": [3]}
# Operators that the cases do not call (`CALLED_ELSEWHERE` of test_operator_coverage.py), as far as chance
# does not find calls of them.
QUERY = {"in": "float32", "shape": [1, 2, 4, 3]}
CACHE = {"in": "float32", "shape": [1, 5, 2, 3]}
NEW_ROWS = {"in": "float32", "shape": [1, 2, 2, 3]}
UPDATED = {"out": "float32", "shape": [1, 5, 2, 3]}
ONE = {"out": "float32", "shape": [1]}
ATTENDED = {"out": "float32", "shape": [1, 2, 4, 3]}


def _quantised(rows: int, heads: int) -> list[Any]:
    """Zero points and scales of rows of heads."""
    return [{"in": dtype, "shape": [1, rows, heads, 1]} for dtype in ("int8", "float32")]


INT8: dict[str, Any] = {"in": "int8", "shape": [3, 70], "fill": 5}
INTEGERS: list[Any] = [
    *(INT8, 0.11, 3, {**INT8, "fill": -9}, 0.23, -5, 0.3, 7, -128, 127),
    {"out": "int8", "shape": [3, 70]},
]
OTHERS: list[Call] = [
    ("pteron::fixed_point_add.out", INTEGERS),
    ("pteron::integer_mul.out", INTEGERS),
    ("llama::update_cache.out", [NEW_ROWS, UPDATED, 1, ONE]),
    (
        "llama::update_cache_with_indices.out",
        [NEW_ROWS, UPDATED, 0, {"in": "int64", "shape": [1, 2], "fill": 3}, ONE],
    ),
    ("llama::custom_sdpa.out", [QUERY, CACHE, CACHE, 1, None, 0.0, True, None, ATTENDED]),
    (
        "llama::sdpa_with_kv_cache.out",
        [QUERY, NEW_ROWS, NEW_ROWS, UPDATED, UPDATED, 1, 2, None, 0.0, True, None, ATTENDED],
    ),
    (
        "llama::custom_quantized_sdpa.out",
        [
            *({**QUERY, "in": "int8"}, {**CACHE, "in": "int8"}, {**CACHE, "in": "int8"}),
            *(1, None, 0.0, True, None),
            *(*_quantised(2, 4), *_quantised(5, 2), *_quantised(5, 2)),
            *(False, ATTENDED),
        ],
    ),
    (
        "llama::fast_hadamard_transform.out",
        [{"in": "float32", "shape": [2, 8]}, {"out": "float32", "shape": [2, 8]}],
    ),
    ("llama::fallback.out", [{"in": "float32", "shape": [3]}, {"out": "float32", "shape": [3]}]),
    ("aten::_local_scalar_dense", [{"in": "float32", "shape": [1]}]),
    (
        "aten::_native_batch_norm_legit.out",
        [
            *(ROWS, CHANNELS, CHANNELS),
            *({"out": "float32", "shape": [3]}, {"out": "float32", "shape": [3]}),
            *(True, 0.1, 1e-5, {"out": "float32", "shape": [2, 3, 4]}),
            *({"out": "float32", "shape": [3]}, {"out": "float32", "shape": [3]}),
        ],
    ),
    (
        "aten::bernoulli.Tensor_out",
        [CHANNELS, {"in": "float32", "shape": [3], "fill": 0.5}, None, {"out": "float32", "shape": [3]}],
    ),
    (
        "aten::index_put_",
        [
            {"out": "float32", "shape": [3, 4]},
            {"list": [{"in": "int64", "shape": [2], "fill": 1}]},
            {"in": "float32", "shape": [2, 4]},
            False,
        ],
    ),
    (
        "executorch_prim::et_copy_index.tensor",
        [{"out": "float32", "shape": [3, 4]}, {"in": "float32", "shape": [4]}, 1],
    ),
]


def as_call(case: OperatorCase, outputs: list[torch.Tensor]) -> Call | None:
    """The call in the kept form; None where it is too large or of dtypes that files have no name for."""

    def tensor(t: torch.Tensor, kind: str) -> dict[str, Any]:
        dtype = str(t.dtype).removeprefix("torch.")
        if dtype not in CODES or t.numel() > LARGEST:
            raise ValueError(dtype)
        out: dict[str, Any] = {kind: dtype, "shape": list(t.shape)}
        if kind == "in" and t.numel():
            first = t.reshape(-1)[0]
            out["fill"] = 1 if t.is_complex() or not torch.isfinite(first) else first.item()
        return out

    def value(v: Any) -> Any:
        if isinstance(v, Output):
            items = [tensor(t, "out") for t in v.tensors]
            return items[0] if v.single else {"list": items}
        if isinstance(v, torch.Tensor):
            return tensor(v, "in")
        if isinstance(v, (list, tuple)):
            if any(isinstance(i, torch.Tensor) for i in v):
                return {"list": [None if i is None else tensor(i, "in") for i in v]}
            return list(v)
        if v is None or isinstance(v, (bool, int, float, str)):
            return v
        raise ValueError(type(v))

    try:
        return case.name, [value(v) for v in case.call_arguments(outputs)]
    except (ValueError, RuntimeError):
        return None


def right_calls(most: int) -> Iterator[Call]:
    """Calls that are right, up to `most` of each operator."""
    count: dict[str, int] = defaultdict(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in every_case():
            if count[case.name] >= most:
                continue
            try:
                expected = results(case)
                call = as_call(case, case.room(expected)) if expected is not None else None
            except (ValueError, RuntimeError, IndexError, KeyError, AssertionError):
                continue
            if call:
                count[case.name] += 1
                yield call


def main() -> None:
    torch.set_num_threads(1)
    calls = [*right_calls(PER_OPERATOR), *OTHERS]
    FILE.write_text("[\n" + ",\n".join(sorted(json.dumps(call) for call in calls)) + "\n]\n")
    called = {name for name, _ in calls}
    print(f"{len(calls)} calls of {len(called)} operators")
    print("without:", *(name for name in _native.operator_names() if name not in called))


if __name__ == "__main__":
    main()
