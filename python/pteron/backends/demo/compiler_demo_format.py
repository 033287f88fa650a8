"""The payload of `BackendWithCompilerDemo`: a text blob, and the wiring that stands beside it in named data.

Blob (UTF-8)::

    blob        = count "version:" version "#" instruction*
    count       = number of instructions, decimal; version = "0"
    instruction = "op:demo::" operator ", numel:" numel ", dtype:" dtype "<debug_handle>" handle "#"
    operator    = name of the edge operator, such as aten.add.Tensor
    numel       = elements of the result: decimal, or an expression such as 4*s0 where the shape is dynamic;
                  informative, a runtime ignores it
    dtype       = element type of the result: torch.float32 and so on
    handle      = debug handle of the instruction in the lowered program, -1 where it has none

For example ``1version:0#op:demo::aten.sin.default, numel:1, dtype:torch.float32<debug_handle>1#``.

The blob says what to compute but not from what. That is in the wiring: JSON (UTF-8) in the program's named
data under ``demo.wiring.`` followed by the SHA-256 of the blob's bytes in lower-case hexadecimal, so that a
runtime which has only the blob finds it::

    {"version": 1,
     "inputs": 2,
     "constants": [{"key": "demo.constant.<sha256 of the data>", "dtype": "float32", "shape": [3]}],
     "operations": [{"arguments": [0, 1], "alpha": 1}, {"arguments": [3, {"number": 2.5}]}],
     "outputs": [4]}

Values are numbered: first the delegate's inputs, then the constants, then one result per instruction in blob
order. An argument is a value number, or a number written out. ``alpha`` (only add has it, 1 if absent)
multiplies the second argument. Constants are named data of their own: little-endian elements in row-major
order. ``outputs`` lists the delegate's outputs as value numbers.

Without wiring (blobs of the peer) four programs are understood, from their operators alone: sin; add of two
inputs; mm of two inputs; and mm of the first two inputs followed by add of the third.

What a runtime computes, all in float32 and in this order of operations: ``sin(x)`` is ``x - (x*x*x)/6``;
``add(a, b)`` is ``a + alpha*b`` with NumPy broadcasting (no multiplication when alpha is 1); ``mm`` is the
matrix product of two matrices. Every other operator and every other dtype fails when it is executed, with the
text ``instruction demo::<operator><debug_handle><handle> is not supported, debug handle is: <handle>``;
nothing is skipped.

The compile spec ``max_value``, if present, is a little-endian unsigned integer of 1 to 8 bytes that must be
at most 4.

This module is shared by both halves and imports neither torch nor NumPy.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field

WIRING_KEY_PREFIX = "demo.wiring."
CONSTANT_KEY_PREFIX = "demo.constant."
HIGHEST_MAX_VALUE = 4

_HEADER = re.compile(r"(\d+)version:([^#]*)#")
_INSTRUCTION = re.compile(r"op:demo::([^,#]+), numel:([^,#]+), dtype:([^,#<]+)<debug_handle>(-?\d+)#")


class DemoFormatError(ValueError):
    """A blob or its wiring is damaged, or of a version that this code does not know."""


@dataclass(frozen=True)
class DemoInstruction:
    """One instruction of the blob; fields as in the grammar above."""

    operator: str
    numel: str
    dtype: str
    debug_handle: int

    def __str__(self) -> str:
        result = f"numel:{self.numel}, dtype:{self.dtype}"
        return f"op:demo::{self.operator}, {result}<debug_handle>{self.debug_handle}#"


@dataclass(frozen=True)
class DemoConstant:
    """A constant of the delegate: where its bytes are and what they mean."""

    key: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class DemoOperation:
    """Where one instruction takes its arguments from: value numbers (int) and written-out numbers (float)."""

    arguments: tuple[int | float, ...]
    alpha: float = 1


@dataclass(frozen=True)
class DemoWiring:
    """Which value goes where; fields as in the JSON above."""

    inputs: int
    outputs: tuple[int, ...]
    operations: tuple[DemoOperation, ...]
    constants: tuple[DemoConstant, ...] = field(default=())


def write_blob(instructions: list[DemoInstruction]) -> bytes:
    """The blob's bytes."""
    return (f"{len(instructions)}version:0#" + "".join(map(str, instructions))).encode()


def read_blob(blob: bytes) -> list[DemoInstruction]:
    """The instructions of a blob.

    Raises:
        DemoFormatError: it is not such a blob, is of another version, or holds another number of
            instructions.
    """
    try:
        text = blob.decode()
    except UnicodeDecodeError as error:
        raise DemoFormatError(f"demo blob: not UTF-8 at byte {error.start}") from error
    header = _HEADER.match(text)
    if header is None:
        raise DemoFormatError(f"demo blob: expected '<count>version:0#' at the start, got {text[:24]!r}")
    if header[2] != "0":
        raise DemoFormatError(f"demo blob: expected version 0, got {header[2]!r}; compile the program again")
    instructions = []
    position = header.end()
    while position < len(text):
        found = _INSTRUCTION.match(text, position)
        if found is None:
            raise DemoFormatError(
                f"demo blob: no instruction at byte {position}: {text[position : position + 40]!r}"
            )
        instructions.append(DemoInstruction(found[1], found[2], found[3], int(found[4])))
        position = found.end()
    if len(instructions) != int(header[1]):
        raise DemoFormatError(f"demo blob: expected {header[1]} instructions, got {len(instructions)}")
    return instructions


def wiring_key(blob: bytes) -> str:
    """The named-data key of a blob's wiring."""
    return WIRING_KEY_PREFIX + hashlib.sha256(blob).hexdigest()


def constant_key(data: bytes) -> str:
    """The named-data key of a constant."""
    return CONSTANT_KEY_PREFIX + hashlib.sha256(data).hexdigest()


def write_wiring(wiring: DemoWiring) -> bytes:
    """The wiring's bytes."""
    operations = []
    for operation in wiring.operations:
        arguments = [a if isinstance(a, int) else {"number": a} for a in operation.arguments]
        entry: dict[str, object] = {"arguments": arguments}
        if operation.alpha != 1:
            entry["alpha"] = operation.alpha
        operations.append(entry)
    table = {
        "version": 1,
        "inputs": wiring.inputs,
        "constants": [{"key": c.key, "dtype": c.dtype, "shape": list(c.shape)} for c in wiring.constants],
        "operations": operations,
        "outputs": list(wiring.outputs),
    }
    return json.dumps(table, separators=(",", ":")).encode()


def read_wiring(data: bytes, instructions: list[DemoInstruction]) -> DemoWiring:
    """The wiring of these instructions, checked: every value is there before it is used.

    Raises:
        DemoFormatError: it is damaged, of another version, or does not fit the instructions.
    """
    try:
        table = json.loads(data)
        if table["version"] != 1:
            raise DemoFormatError(f"demo wiring: expected version 1, got {table['version']!r}")
        wiring = DemoWiring(
            inputs=int(table["inputs"]),
            outputs=tuple(int(value) for value in table["outputs"]),
            operations=tuple(_read_operation(entry) for entry in table["operations"]),
            constants=tuple(
                DemoConstant(str(c["key"]), str(c["dtype"]), tuple(int(extent) for extent in c["shape"]))
                for c in table["constants"]
            ),
        )
    except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DemoFormatError(f"demo wiring: damaged ({type(error).__name__}: {error})") from error
    _check_wiring(wiring, instructions)
    return wiring


def wiring_from_operators(instructions: list[DemoInstruction]) -> DemoWiring:
    """The wiring of the programs that need none.

    Raises:
        DemoFormatError: the operators alone do not say which value goes where.
    """
    match [instruction.operator for instruction in instructions]:
        case ["aten.sin.default"]:
            return DemoWiring(1, (1,), (DemoOperation((0,)),))
        case ["aten.add.Tensor"] | ["aten.mm.default"]:
            return DemoWiring(2, (2,), (DemoOperation((0, 1)),))
        case ["aten.mm.default", "aten.add.Tensor"]:
            return DemoWiring(3, (4,), (DemoOperation((0, 1)), DemoOperation((3, 2))))
        case operators:
            raise DemoFormatError(
                f"demo blob with operators {operators}: the program has no wiring for it in its named data, "
                "and only "
                "sin, add, mm, and mm then add can be run without; lower it again with pteron"
            )


def read_max_value(value: bytes) -> int:
    """The compile spec `max_value`, checked.

    Raises:
        DemoFormatError: it has no bytes, too many, or is above 4.
    """
    if not 1 <= len(value) <= 8:
        raise DemoFormatError(f"compile spec max_value: expected 1 to 8 bytes, got {len(value)}")
    number = int.from_bytes(value, "little")
    if number > HIGHEST_MAX_VALUE:
        raise DemoFormatError(f"compile spec max_value: expected at most {HIGHEST_MAX_VALUE}, got {number}")
    return number


def _read_operation(entry: dict[str, object]) -> DemoOperation:
    listed = entry["arguments"]
    if not isinstance(listed, list):
        raise TypeError(f"arguments: expected a list, got {listed!r}")
    arguments = [float(a["number"]) if isinstance(a, dict) else int(a) for a in listed]
    alpha = entry.get("alpha", 1)
    if not isinstance(alpha, (int, float)):
        raise TypeError(f"alpha: expected a number, got {alpha!r}")
    return DemoOperation(tuple(arguments), alpha)


def _check_wiring(wiring: DemoWiring, instructions: list[DemoInstruction]) -> None:
    if len(wiring.operations) != len(instructions):
        raise DemoFormatError(
            f"demo wiring: expected {len(instructions)} operations, got {len(wiring.operations)}"
        )
    known = wiring.inputs + len(wiring.constants)
    if wiring.inputs < 0 or any(extent < 0 for constant in wiring.constants for extent in constant.shape):
        raise DemoFormatError("demo wiring: a count or an extent is negative")
    for index, operation in enumerate(wiring.operations):
        for argument in operation.arguments:
            if isinstance(argument, int) and not 0 <= argument < known + index:
                raise DemoFormatError(
                    f"demo wiring: operation {index} reads value {argument}, but only {known + index} are "
                    "known there"
                )
    last = known + len(wiring.operations)
    if any(not 0 <= output < last for output in wiring.outputs):
        raise DemoFormatError(f"demo wiring: outputs {list(wiring.outputs)} are not all below {last}")
