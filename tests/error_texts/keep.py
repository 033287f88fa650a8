"""The kept texts, and how they are written anew: `make bless`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

HERE = Path(__file__).resolve().parent
KERNELS = HERE / "kernels.json"
CALLS = HERE / "calls.json"


class Kept(TypedDict):
    """One call and its text. `call` is a name of `CALLS` in a module `..._calls`, or operator
    and arguments.
    """

    call: Any
    error: str
    text: str


def load(path: Path) -> list[Kept]:
    """The kept texts of a file; none where there is no file."""
    return json.loads(path.read_text()) if path.exists() else []


def store(path: Path, kept: list[Kept]) -> None:
    """One call a line, in a fixed order."""
    lines = sorted(json.dumps(entry, ensure_ascii=True) for entry in kept)
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def text_of(call: Any, work: Callable[[], object]) -> Kept:
    """What comes of a call that must fail."""
    try:
        work()
    except Exception as error:
        return Kept(call=call, error=type(error).__name__, text=str(error))
    raise AssertionError(f"{call} does not fail any more: change it, or take it out")


def all_calls() -> dict[str, Callable[[], object]]:
    """The calls that are written by hand, by name."""
    from tests.error_texts import (
        custom_calls,
        hub_calls,
        oip_calls,
        predictor_calls,
        program_calls,
        session_calls,
    )

    modules = (custom_calls, hub_calls, oip_calls, predictor_calls, program_calls, session_calls)
    parts = [module.CALLS for module in modules]
    found = {name: call for part in parts for name, call in part.items()}
    assert len(found) == sum(map(len, parts)), "a name is given twice"
    return found


def kernel_texts(kept: list[Kept]) -> list[Kept]:
    """The kernel calls made again, on kernels that every processor has."""
    import pteron
    from tests.error_texts.kernel_call import run_kernel_call

    runtime = pteron.Runtime(isa="portable", num_threads=1)
    return [
        text_of(entry["call"], lambda call=entry["call"]: run_kernel_call(call, runtime)) for entry in kept
    ]


def main() -> None:
    store(CALLS, [text_of(name, work) for name, work in all_calls().items()])
    store(KERNELS, kernel_texts(load(KERNELS)))


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[1]))
    main()
