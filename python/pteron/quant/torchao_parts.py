"""torchao, or an error that says how to install it."""

from __future__ import annotations

import importlib
from typing import Any


def torchao(path: str = "") -> Any:
    """The module `torchao` or one below it; ImportError with the command that installs it."""
    name = f"torchao.{path}" if path else "torchao"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torchao":
            raise
        raise ImportError('pteron.quant needs torchao: pip install "pteron[quant]"') from error
