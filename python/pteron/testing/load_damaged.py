"""Loads and runs damaged files; as a program, for `check_backend(isolate=...)`."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pteron

#: What the lines begin with that are findings.
MARK = "finding: "


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
    """`load_damaged MODULE:FUNCTION INPUTS PROGRAM...`: registers the backend, and prints a line for each
    program: `MARK` and its finding.
    """
    import torch

    register, inputs, *programs = sys.argv[1:]
    module, _, function = register.partition(":")
    getattr(importlib.import_module(module), function)()
    args = torch.load(inputs)
    for program in programs:
        print(f"\n{MARK}{json.dumps(finding(Path(program).read_bytes(), args))}", flush=True)


if __name__ == "__main__":
    main()
