"""Recipes that a vendor's package in ExecuTorch's wheel registers, run by our sessions."""

from __future__ import annotations

import pytest

from tests.support.own_interpreter import run_alone

pytestmark = pytest.mark.peer
pytest.importorskip("executorch.runtime", reason="needs the executorch wheel")

CODE = """
import warnings
warnings.simplefilter("ignore")
import pteron.compat
pteron.compat.install()
import torch
from executorch.backends.xnnpack.recipes import XNNPackRecipeType
from executorch.export import ExportRecipe, ExportSession, export
from pteron.exir import recipes
assert ExportSession is recipes.ExportSession
model, x = torch.nn.Linear(8, 4).eval(), (torch.randn(3, 8),)
for kind in (
    XNNPackRecipeType.FP32,
    XNNPackRecipeType.PT2E_INT8_STATIC_PER_CHANNEL,
    XNNPackRecipeType.TORCHAO_INT8_DYNAMIC_ACT_INT4_WEIGHT_PER_CHANNEL,
):
    session = export(model, [x], ExportRecipe.get_recipe(kind))
    (plan,) = session.get_executorch_program().execution_plan
    print(kind.name, [delegate.id for delegate in plan.delegates])
"""


def test_xnnpacks_recipes_give_its_delegates() -> None:
    assert run_alone(CODE).stdout.splitlines() == [
        "FP32 ['XnnpackBackend']",
        "PT2E_INT8_STATIC_PER_CHANNEL ['XnnpackBackend']",
        "TORCHAO_INT8_DYNAMIC_ACT_INT4_WEIGHT_PER_CHANNEL ['XnnpackBackend']",
    ]
