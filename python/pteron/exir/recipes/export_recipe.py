"""A recipe for a whole export, and how several are combined."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch.export import ExportedProgram

from pteron.exir.config.backend_config import ExecutorchBackendConfig
from pteron.exir.config.compile_config import EdgeCompileConfig
from pteron.exir.recipes.recipe_parts import LoweringRecipe, Mode, QuantizationRecipe, RecipeType, StageType
from pteron.exir.recipes.recipe_registry import recipe_registry

# Which operators these settings name matters, their order does not.
_SETS = ("preserve_ops", "_core_aten_ops_exception_list")


@dataclass
class ExportRecipe:
    """Settings of a whole export.

    Attributes:
        name: for messages.
        quantization_recipe: how to quantise; None for not at all.
        aten_transform_passes: functions from (method name, captured program) to a program, before lowering.
        source_transform_in_place: let `quantize_` change the caller's module, where a copy would not fit.
        lowering_recipe: partitioners and passes.
        executorch_backend_config: settings of `to_executorch`.
        pipeline_stages: the stages to run; None for those that the kind of model needs.
        mode: what the program is for.
        strict: as in `torch.export.export`.
    """

    name: str | None = None
    quantization_recipe: QuantizationRecipe | None = None
    aten_transform_passes: list[Callable[[str, ExportedProgram], ExportedProgram]] | None = None
    source_transform_in_place: bool = False
    lowering_recipe: LoweringRecipe | None = None
    executorch_backend_config: ExecutorchBackendConfig | None = None
    pipeline_stages: list[StageType] | None = None
    mode: Mode = Mode.RELEASE
    strict: bool = True

    @classmethod
    def get_recipe(cls, recipe: RecipeType, **kwargs: Any) -> ExportRecipe:
        """The recipe of a backend, which its type names. `kwargs` are the recipe's own settings.

        ValueError where the type is none, or its backend is not registered or has no such recipe.
        """
        if not isinstance(recipe, RecipeType):
            raise ValueError(f"Invalid recipe type: {recipe}")
        backend = recipe.get_backend_name()
        made = recipe_registry.create_recipe(recipe, backend, **kwargs)
        if made is None:
            supported = [each.value for each in recipe_registry.get_supported_recipes(backend)]
            raise ValueError(f"Recipe '{recipe.value}' not supported by '{backend}'. Supported: {supported}")
        return made

    @classmethod
    def combine(cls, recipes: list[ExportRecipe], recipe_name: str | None = None) -> ExportRecipe:
        """One recipe out of several: partitioners, quantizers and passes in the order of the recipes.

        ValueError where they disagree on a setting that has one value, or where there are none.
        """
        if not recipes:
            raise ValueError("Recipes cannot be empty")
        if len(recipes) == 1:
            return recipes[0]
        stages = [tuple(each.pipeline_stages) if each.pipeline_stages else None for each in recipes]
        shared_stages = _agreed("pipeline_stages", stages)
        return cls(
            name=recipe_name or "_".join(each.name for each in recipes if each.name is not None),
            quantization_recipe=_quantization([each.quantization_recipe for each in recipes]),
            aten_transform_passes=_joined(each.aten_transform_passes for each in recipes),
            source_transform_in_place=_agreed(
                "source_transform_in_place", [each.source_transform_in_place for each in recipes]
            ),
            lowering_recipe=_lowering(recipes),
            executorch_backend_config=_backend_config(recipes),
            pipeline_stages=None if shared_stages is None else list(shared_stages),
            mode=_agreed("mode", [each.mode for each in recipes]),
            strict=_agreed("strict", [each.strict for each in recipes]),
        )


def _agreed(name: str, values: Sequence[Any]) -> Any:
    if len(set(values)) > 1:
        raise ValueError(f"Cannot combine recipes with conflicting '{name}' values: {set(values)}")
    return values[0]


def _joined(lists: Iterable[list[Any] | None]) -> list[Any] | None:
    return [each for listed in lists for each in listed or ()] or None


def _backend_config(recipes: Sequence[ExportRecipe]) -> ExecutorchBackendConfig | None:
    given = [each.executorch_backend_config for each in recipes if each.executorch_backend_config is not None]
    return copy.deepcopy(given[0]) if given else None


def _quantization(recipes: Sequence[QuantizationRecipe | None]) -> QuantizationRecipe | None:
    given = [each for each in recipes if each is not None]
    if not given:
        return None
    is_qat = _agreed("is_qat", [each.is_qat for each in given])
    training = [each.train_fn for each in given if each.train_fn is not None]
    if len(training) > 1:
        raise ValueError("Cannot combine recipes: more than one recipe provides a train_fn.")
    lists: dict[str, Any] = {
        name: _joined(getattr(each, name) for each in given)
        for name in ("quantizers", "ao_quantization_configs", *_PASSES)
    }
    if not any(lists.values()):
        return None
    return QuantizationRecipe(
        is_qat=is_qat,
        dynamic_batch_size=any(each.dynamic_batch_size for each in given),
        train_fn=training[0] if training else None,
        calibration_inputs_fn=_calibration(given),
        **lists,
    )


_PASSES = ("pre_prepare_passes", "post_prepare_passes", "pre_convert_passes", "post_convert_passes")


def _calibration(recipes: Sequence[QuantizationRecipe]) -> Callable[[], Iterable[tuple[Any, ...]]] | None:
    given = [each.calibration_inputs_fn for each in recipes if each.calibration_inputs_fn is not None]
    if len(given) < 2:
        return given[0] if given else None
    return lambda: (inputs for function in given for inputs in function())


def _lowering(recipes: Sequence[ExportRecipe]) -> LoweringRecipe | None:
    given = [each.lowering_recipe for each in recipes if each.lowering_recipe is not None]
    config = _edge_compile_config(recipes)
    partitioners = _partitioners(given)
    edge_passes = _joined(each.edge_transform_passes for each in given)
    manager_passes = _joined(each.edge_manager_transform_passes for each in given)
    if not (partitioners or edge_passes or manager_passes or config):
        return None
    return LoweringRecipe(partitioners, edge_passes, manager_passes, config or EdgeCompileConfig())


def _partitioners(recipes: Sequence[LoweringRecipe]) -> Any:
    by_method: dict[str, list[Any]] = {}
    for_all: list[Any] = []
    for recipe in recipes:
        if isinstance(recipe.partitioners, dict):
            for method, listed in recipe.partitioners.items():
                by_method.setdefault(method, []).extend(listed)
        else:
            for_all.extend(recipe.partitioners or ())
    if by_method and for_all:
        raise ValueError(
            "Cannot combine recipes that mix list-valued and dict-valued partitioners; convert the "
            "list-valued "
            "recipe to per-method form."
        )
    return by_method or for_all or None


def _edge_compile_config(recipes: Sequence[ExportRecipe]) -> EdgeCompileConfig | None:
    named = [
        (each.name or f"recipes[{index}]", each.lowering_recipe.edge_compile_config)
        for index, each in enumerate(recipes)
        if each.lowering_recipe is not None and each.lowering_recipe.edge_compile_config is not None
    ]
    if not named:
        return None
    differing = [
        f"{setting.name} ({', '.join(f'{name}={_shown(config, setting.name)}' for name, config in named)})"
        for setting in dataclasses.fields(EdgeCompileConfig)
        if len({_shown(config, setting.name) for _, config in named}) > 1
    ]
    if differing:
        raise ValueError(
            f"Cannot combine recipes whose edge_compile_configs disagree on {'; '.join(differing)}"
        )
    return copy.deepcopy(named[0][1])


def _shown(config: EdgeCompileConfig, name: str) -> str:
    value = getattr(config, name)
    return str(sorted(map(str, value or ()))) if name in _SETS else str(value)
