"""Looks for kernel calls that end in errors, for `kernels.json`.

    PYTHONPATH=python python -m tests.error_texts.kernel_search

Takes the operator cases of `tests/ops` as calls that are right, changes one or two arguments of each in ways
that break rules, and keeps up to `MOST` operators for every text that comes of it and is not kept yet.
"""

from __future__ import annotations

import copy
import random
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

import pteron
from tests.error_texts.keep import KERNELS, Kept, load, store
from tests.error_texts.kernel_call import is_tensor, run_kernel_call
from tests.error_texts.templates import template_of
from tests.ops.right_calls import right_calls

MOST = 3
CASES_PER_OPERATOR = 20
DTYPES = ["float32", "int64", "bool", "int8", "uint8", "float16", "float64", "int32", "complex64", "bfloat16"]
INTEGERS = [0, -1, 1, 2, -100, 100, 1 << 40, -(1 << 63), (1 << 63) - 1]
DOUBLES = [0.0, -1.0, 2.5, float("inf"), float("nan"), 1e300]
TEXTS = ["", "nonsense", "none", "floor"]


def changed(argument: Any, rng: random.Random) -> Any:
    """The argument with something else in it."""
    if is_tensor(argument):
        return changed_tensor(argument, rng)
    if isinstance(argument, dict):
        items = list(argument["list"])
        how = rng.randrange(4)
        if how == 0 or not items:
            return {"list": items[1:]}
        if how == 1:
            return {"list": [*items, copy.deepcopy(items[-1])]}
        at = rng.randrange(len(items))
        items[at] = changed_tensor(items[at], rng) if items[at] else None
        return {"list": items}
    if isinstance(argument, bool):
        return not argument
    if isinstance(argument, int):
        return rng.choice([*INTEGERS, argument + 1, argument - 1, -argument, float(argument % 1000)])
    if isinstance(argument, float):
        return rng.choice([*DOUBLES, -argument])
    if isinstance(argument, str):
        return rng.choice(TEXTS)
    if argument is None:
        return rng.choice([0, 1, -1, 3, 99, [1], [2, 2], 0.5])
    if argument and isinstance(argument[0], float):
        return rng.choice([argument[1:], [*argument, 1.0], [-1.0] * len(argument), [float("nan")]])
    if argument and isinstance(argument[0], bool):
        return rng.choice([argument[1:], [*argument, True], [not a for a in argument]])
    items = list(argument)
    how = rng.randrange(5)
    if how == 0 or not items:
        return [*items, rng.choice([1, 0, 2])]
    if how == 1:
        return items[1:]
    if how == 2:
        return []
    if how == 3:
        return [items[0]] * len(items)
    items[rng.randrange(len(items))] = rng.choice(INTEGERS)
    return items


def changed_tensor(tensor: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    out = copy.deepcopy(tensor)
    shape = out["shape"]
    kind = "in" if "in" in out else "out"
    match rng.randrange(8 if kind == "in" else 6):
        case 0 | 1:
            out[kind] = rng.choice(DTYPES)
            if "fill" in out:
                out["fill"] = 1
        case 2:
            shape.insert(rng.randrange(len(shape) + 1), rng.choice([1, 2, 3]))
        case 3 if shape:
            shape.pop(rng.randrange(len(shape)))
        case 4 | 5 if shape:
            at = rng.randrange(len(shape))
            shape[at] = rng.choice([0, 1, shape[at] + 1, 2, 5, shape[at] * 2])
        case _:
            if kind == "in":
                fill = rng.choice([0, 1, -1, 100, 7])
                is_small = out["in"] in ("bool", "uint8", "uint16", "uint32", "uint64")
                out["fill"] = abs(fill) if is_small else fill
    return out


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 25
    torch.set_num_threads(1)
    rng = random.Random(rounds)
    runtime = pteron.Runtime(isa="portable", num_threads=1)
    kept = load(KERNELS)
    found: dict[str, set[str]] = defaultdict(set)
    for entry in kept:
        found[template_of(entry["text"]) or ""].add(entry["call"][0])
    for call in list(right_calls(CASES_PER_OPERATOR)):
        for _ in range(rounds):
            operator, arguments = copy.deepcopy(call)
            for _ in range(rng.choice([1, 1, 1, 2])):
                if arguments:
                    at = rng.randrange(len(arguments))
                    arguments[at] = changed(arguments[at], rng)
            try:
                run_kernel_call((operator, arguments), runtime)
            except pteron.PteronError as error:
                text = str(error)
                template = template_of(text)
                known = found[template or re.sub(r"\d+", "#", text)]
                if operator not in known and len(known) < MOST:
                    known.add(operator)
                    kept.append(Kept(call=[operator, arguments], error=type(error).__name__, text=text))
            except (ValueError, OverflowError, TypeError):
                continue
    store(KERNELS, kept)
    print(f"{len(kept)} calls, {len(found)} texts")


if __name__ == "__main__":
    main()
