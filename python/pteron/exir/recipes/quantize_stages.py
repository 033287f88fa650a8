"""The stages that quantise: torchao's `quantize_` on modules, and PT2E on captured graphs."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from pteron.exir.recipes.pipeline_stage import PipelineArtifact, PlacedStage
from pteron.exir.recipes.recipe_parts import ModulePass, QuantizationRecipe, StageType

_log = logging.getLogger(__name__)


def _torchao(path: str, stage: str) -> Any:
    from importlib import import_module

    try:
        return import_module(path)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torchao":
            raise
        raise ImportError(
            f"{stage}: the recipe quantises, which needs torchao: pip install torchao"
        ) from error


class SourceTransformStage(PlacedStage):
    """`quantize_` of torchao on every module, or nothing where the recipe has no configuration for it."""

    def __init__(self, quantization_recipe: QuantizationRecipe | None, in_place: bool = False) -> None:
        self._quantization_recipe = quantization_recipe
        self._in_place = in_place

    TYPE = StageType.SOURCE_TRANSFORM
    CAN_START = True

    def run(self, artifact: PipelineArtifact) -> None:
        """Change copies of the modules, or the modules themselves with `in_place`.

        ValueError for several configurations: they cannot be relied on to compose.
        """
        recipe = self._quantization_recipe
        if recipe is None or not recipe.ao_quantization_configs:
            self._artifact = artifact
            return
        if len(recipe.ao_quantization_configs) > 1:
            raise ValueError(
                "AO quantization configs cannot be reliably composed together, multiple quantization "
                "configs are "
                "disallowed for source transform at this point"
            )
        (chosen,) = recipe.ao_quantization_configs
        models = artifact.data if self._in_place else copy.deepcopy(artifact.data)
        for model in models.values():
            _torchao("torchao.quantization", "source_transform").quantize_(
                model, chosen.ao_base_config, chosen.filter_fn
            )
            _torchao("torchao.utils", "source_transform").unwrap_tensor_subclass(model)
        self._artifact = artifact.copy_with_new_data(models)


class QuantizeStage(PlacedStage):
    """PT2E: observers, calibration or training, quantised operators; nothing without quantizers."""

    def __init__(self, quantization_recipe: QuantizationRecipe | None) -> None:
        self._quantization_recipe = quantization_recipe

    TYPE = StageType.QUANTIZE
    AFTER = (StageType.SOURCE_TRANSFORM,)
    CAN_START = True

    def run(self, artifact: PipelineArtifact) -> None:
        """Quantise every method's module. ValueError where a method has no example inputs."""
        recipe = self._quantization_recipe
        if recipe is None or not recipe.quantizers:
            self._artifact = artifact
            return
        examples = artifact.get_context("example_inputs")
        quantized = {}
        for method, model in artifact.data.items():
            if not examples.get(method):
                raise ValueError(f"Example inputs for method {method} not found or empty.")
            quantized[method] = self._quantized(model, examples[method], recipe)
        self._artifact = artifact.copy_with_new_data(quantized)

    def _quantized(self, model: torch.nn.Module, examples: Sequence[Any], recipe: QuantizationRecipe) -> Any:
        pt2e = _torchao("torchao.quantization.pt2e.quantize_pt2e", "quantize")
        if recipe.is_qat:
            if recipe.train_fn is None:
                raise ValueError("train_fn must be provided when is_qat=True")
            model.train()
        captured = torch.export.export(
            model, examples[0], dynamic_shapes=_batch_shapes(examples[0], recipe), strict=True
        ).module()
        captured = _after_passes(captured, recipe.pre_prepare_passes)
        quantizer = self._get_quantizer_for_prepare_pt2e(recipe.quantizers or [])
        prepare = pt2e.prepare_qat_pt2e if recipe.is_qat else pt2e.prepare_pt2e
        prepared = _after_passes(prepare(captured, quantizer), recipe.post_prepare_passes)
        if recipe.is_qat:
            _train(prepared, recipe)
        else:
            given: Iterable[Any] = (
                recipe.calibration_inputs_fn() if recipe.calibration_inputs_fn else examples
            )
            for inputs in given:
                prepared(*inputs)
        prepared = _after_passes(prepared, recipe.pre_convert_passes)
        return _after_passes(pt2e.convert_pt2e(prepared), recipe.post_convert_passes)

    def _get_quantizer_for_prepare_pt2e(self, quantizers: Sequence[Any]) -> Any:
        ours = _torchao("torchao.quantization.pt2e.quantizer", "quantize")
        if not quantizers:
            raise ValueError("No quantizers detected")
        older = [each for each in quantizers if not isinstance(each, ours.Quantizer)]
        if not older:
            return ours.ComposableQuantizer(list(quantizers))
        if len(older) < len(quantizers):
            raise ValueError("Mixed quantizer types are not supported")
        if len(older) > 1:
            raise ValueError("Multiple quantizers of torch.ao.quantization.quantizer not supported")
        _log.warning("%s is a quantizer of torch.ao, which torchao's replace", older[0])
        return older[0]


def _train(prepared: torch.fx.GraphModule, recipe: QuantizationRecipe) -> None:
    modes = _torchao("torchao.quantization.pt2e", "quantize")
    modes.allow_exported_model_train_eval(prepared)
    modes.move_exported_model_to_train(prepared)
    assert recipe.train_fn is not None  # the caller has checked it
    recipe.train_fn(prepared)
    modes.move_exported_model_to_eval(prepared)


def _batch_shapes(inputs: Any, recipe: QuantizationRecipe) -> Any:
    if not recipe.dynamic_batch_size:
        return None
    batch = torch.export.Dim("batch", min=1)
    return tuple({0: batch} if isinstance(value, torch.Tensor) else None for value in inputs)


def _after_passes(module: Any, passes: Sequence[ModulePass] | None) -> Any:
    for each in passes or ():
        try:
            module = each(module)
        except Exception as error:
            raise RuntimeError(f"QuantizeStage: Pass '{each!r}' raised an error: {error}") from error
    return module
