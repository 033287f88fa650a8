"""The architectures of `transformers_zoo.py` against eager PyTorch; programs run in a process without torch.

`make test` takes the quick rows; `make test-models` sets `PTERON_MODELS=all` and takes every row.
"""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pteron.exir import to_edge
from tests.models.run_without_torch import run_without_torch
from tests.models.transformers_zoo import ARCHITECTURES, documented
from tests.models.zoo_model import Architecture, Model
from tests.support.extent import is_full
from tests.support.goldens import compare

#: Largest difference relative to the largest output.
TOLERANCE = 1e-5

ROOT = Path(__file__).resolve().parents[2]
_EVERY = is_full("MODELS")


def _rows() -> list[Any]:
    return [
        pytest.param(
            row,
            id=row.name,
            marks=[pytest.mark.xfail(strict=True, reason=row.fails)] if row.fails else [],
        )
        for row in ARCHITECTURES
        if row.quick or _EVERY
    ]


def _tensors(result: Any) -> list[Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, Tensor)]


def _difference(ours: Tensor, expected: Tensor) -> float:
    """The largest difference relative to the largest expected number; equal infinities do not differ."""
    ours, expected = ours.double(), expected.double()
    off = torch.where(ours == expected, 0.0, (ours - expected).abs())
    finite = expected[expected.isfinite()].abs()
    return float(off.max() / finite.max())


def _captured(model: Model) -> dict[str, torch.export.ExportedProgram]:
    return {
        name: torch.export.export(
            method.module,
            (),
            dict(method.example),
            dynamic_shapes=method.dynamic,
            **method.options,
        )
        for name, method in model.methods.items()
    }


def _compare(results: list[list[Tensor]], eager: list[list[Tensor]], model: Model) -> None:
    for index, (ours, expected) in enumerate(zip(results, eager, strict=True)):
        assert [o.shape for o in ours] == [e.shape for e in expected]
        assert max(float(e.abs().max()) for e in expected) > 1e-3, "a model of zeros compares nothing"
        differences = [_difference(o, e) for o, e in zip(ours, expected, strict=True)]
        if max(differences) > TOLERANCE:
            assert max(differences) <= _allowed(model, index, expected), f"call {index}: {differences}"


def _eager(model: Model) -> list[list[Tensor]]:
    return [_tensors(model.methods[name].module(**given)) for name, given in model.calls]


def _allowed(model: Model, call: int, eager: list[Tensor]) -> float:
    """The tolerance, or twice the distance of eager's own result from float64 where that is more.

    Deep networks of random weights enlarge rounding errors; eager's are then as large as ours.
    """
    name, given = model.calls[call]
    module = copy.deepcopy(model.methods[name].module).double()
    wide = {k: v.double() if v.is_floating_point() else v for k, v in given.items()}
    exact = _tensors(module(**wide))
    own = max(_difference(e, x) for e, x in zip(eager, exact, strict=True))
    return max(TOLERANCE, 2 * own)


# State behind Python objects is set while strict capture runs.
@pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")
@pytest.mark.parametrize("row", _rows())
def test_architecture_equals_eager(row: Architecture, tmp_path: Path) -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        model = row.build()
        buffer = to_edge(_captured(model)).to_executorch().buffer
        eager = _eager(model)
        _compare(run_without_torch(buffer, model, tmp_path), eager, model)
        for index, expected in enumerate(model.expected or ()):
            recipe = _difference(eager[index][0], expected)
            assert recipe <= TOLERANCE, f"call {index} differs from the model without a cache by {recipe}"


@pytest.mark.peer
@pytest.mark.parametrize("name", ["AST", *(["BERT", "ViT", "GPT-2"] if _EVERY else [])])
def test_program_of_executorch_equals_eager(name: str, tmp_path: Path) -> None:
    exir = pytest.importorskip("executorch.exir", reason="needs the executorch wheel")
    (row,) = [row for row in ARCHITECTURES if row.name == name]
    torch.manual_seed(0)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = row.build()
        buffer = exir.to_edge(_captured(model)).to_executorch().buffer
        _compare(run_without_torch(buffer, model, tmp_path), _eager(model), model)


def test_every_name_is_there_once() -> None:
    names = [row.name for row in ARCHITECTURES]
    assert len(set(names)) == len(names)


def test_the_page_has_the_list() -> None:
    page = ROOT / "docs" / "reference" / "models.md"
    before, head, rest = page.read_text().partition("| architecture | kind |")
    assert head, "the table has no place in docs/reference/models.md"
    _, _, after = rest.partition("\n\n")
    compare(f"{before}{documented()}\n{after}", page)
