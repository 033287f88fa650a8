"""Loads and runs one damaged file; as a program, for `check_backend(isolate=...)`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pteron


def finding(file: bytes, args: Sequence[Any], runtime: pteron.Runtime | None = None) -> str | None:
    """What is wrong with how a damaged file is taken; None where it is refused with a text, or runs."""
    try:
        method = pteron.load(file, runtime=runtime).load_method()
        method(*args)
    except pteron.InternalError as error:
        return f"InternalError: {error}"
    except pteron.PteronError as error:
        return None if str(error) else f"{type(error).__name__} without a text"
    return None


def main() -> None:
    """`load_damaged MODULE:FUNCTION PROGRAM INPUTS`: registers the backend, and prints the finding."""
    import torch

    register, program, inputs = sys.argv[1:]
    module, _, function = register.partition(":")
    getattr(importlib.import_module(module), function)()
    print(finding(Path(program).read_bytes(), torch.load(inputs)) or "")


if __name__ == "__main__":
    main()
