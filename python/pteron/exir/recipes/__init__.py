"""Recipes: the settings of a whole export as one object, by ExecuTorch's names (`executorch.export`).

`export(model, example_inputs, export_recipe)` runs a pipeline of stages and keeps what each made. For one
call without a recipe there is `pteron.export`.
"""

from __future__ import annotations

from pteron.exir.recipes.export_recipe import ExportRecipe
from pteron.exir.recipes.export_session import ExportSession, export
from pteron.exir.recipes.recipe_parts import (
    AOQuantizationConfig,
    LoweringRecipe,
    Mode,
    QuantizationRecipe,
    RecipeType,
    StageType,
)
from pteron.exir.recipes.recipe_registry import BackendRecipeProvider, recipe_registry

__all__ = [
    "AOQuantizationConfig",
    "BackendRecipeProvider",
    "ExportRecipe",
    "ExportSession",
    "LoweringRecipe",
    "Mode",
    "QuantizationRecipe",
    "RecipeType",
    "StageType",
    "export",
    "recipe_registry",
]
