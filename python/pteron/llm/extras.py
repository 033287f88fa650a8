"""Optional packages: imported where they are first needed, with an error that says what installs them."""

from __future__ import annotations

import importlib
from typing import Any


def needed(module: str, extra: str, why: str) -> Any:
    """The module. ImportError, which names the extra, where it is not installed.

    `extra` is the name of the extra of pteron that brings it, `why` what needs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        package = module.partition(".")[0]
        raise ImportError(
            f'{why} needs the package {package}: pip install "pteron[{extra}]"', name=package
        ) from None
