"""Recipes for kinds of devices, out of the recipes of several vendors' backends.

The backends are those of an installed ExecuTorch, reached with `pteron.compat.install()`.
"""

from __future__ import annotations

import platform
import sys
from importlib import import_module
from typing import Any

from pteron.exir.recipes.export_recipe import ExportRecipe
from pteron.exir.recipes.recipe_parts import RecipeType

_IOS = {
    "ios-arm64-coreml-fp32": (("coreml", "FP32"), ("xnnpack", "FP32")),
    "ios-arm64-coreml-fp16": (("coreml", "FP16"), ("xnnpack", "FP32")),
    "ios-arm64-coreml-int8": (("coreml", "PT2E_INT8_STATIC"),),
}
_ANDROID = {"android-arm64-snapdragon-fp16": (("qnn", "FP16"), ("xnnpack", "FP32"))}
_TYPES = {
    "coreml": ("executorch.backends.apple.coreml.recipes", "CoreMLRecipeType"),
    "qnn": ("executorch.backends.qualcomm.recipes", "QNNRecipeType"),
    "xnnpack": ("executorch.backends.xnnpack.recipes", "XNNPackRecipeType"),
}


def is_supported_platform_for_coreml_lowering() -> bool:
    """Whether coremltools has a wheel for this machine and Python."""
    system, machine = platform.system(), platform.machine().lower()
    return sys.version_info < (3, 14) and (
        (system == "Linux" and machine == "x86_64")
        or (system == "Darwin" and machine in ("arm64", "aarch64"))
    )


def is_supported_platform_for_qnn_lowering() -> bool:
    """Whether Qualcomm's compiler runs on this machine."""
    return platform.system() == "Linux" and platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")


def get_ios_recipe(target_config: str = "ios-arm64-coreml-fp16", **kwargs: Any) -> ExportRecipe:
    """Core ML, with XNNPACK for what it leaves: "ios-arm64-coreml-fp32", "-fp16" or "-int8".

    `kwargs`: settings of the backends' recipes. ValueError where the machine cannot lower for Core ML, the
    configuration is unknown, or a backend or its tools are not installed.
    """
    if not is_supported_platform_for_coreml_lowering():
        raise ValueError("CoreML is not supported on this platform")
    recipes = _recipes_of(_IOS, target_config, "iOS")
    if target_config == "ios-arm64-coreml-int8" and "minimum_deployment_target" not in kwargs:
        kwargs["minimum_deployment_target"] = _imported("coremltools").target.iOS17
    return _combined(target_config, recipes, kwargs)


def get_android_recipe(target_config: str = "android-arm64-snapdragon-fp16", **kwargs: Any) -> ExportRecipe:
    """Qualcomm's backend, with XNNPACK for what it leaves: "android-arm64-snapdragon-fp16".

    `kwargs`: settings of the backends' recipes. ValueError where the machine cannot lower for it, the
    configuration is unknown, or the backend or its SDK is not installed.
    """
    if not is_supported_platform_for_qnn_lowering():
        raise ValueError("QNN is not supported or not properly configured on this platform")
    recipes = _recipes_of(_ANDROID, target_config, "Android")
    kwargs.setdefault("soc_model", "SM8650")
    return _combined(target_config, recipes, kwargs)


def _recipes_of(known: Any, target_config: str, system: str) -> list[RecipeType]:
    if target_config not in known:
        raise ValueError(f"Unsupported {system} configuration: '{target_config}'. Supported: {list(known)}")
    found = []
    for backend, name in known[target_config]:
        path, kind = _TYPES[backend]
        found.append(getattr(getattr(_imported(path), kind), name))
    return found


def _imported(path: str) -> Any:
    try:
        return import_module(path)
    except ImportError as error:
        raise ValueError(f"{path} cannot be imported ({error}); install the backend and its tools") from error


def _combined(target_config: str, recipes: list[RecipeType], kwargs: dict[str, Any]) -> ExportRecipe:
    made = []
    for recipe in recipes:
        try:
            made.append(ExportRecipe.get_recipe(recipe, **kwargs))
        except Exception as error:
            raise ValueError(
                f"Failed to create {recipe.value} recipe for {target_config}: {error}"
            ) from error
    return ExportRecipe.combine(made, recipe_name=target_config)
