"""What is stored for a program: whose the bytes are, and which instructions read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pteron._native import Program
from pteron.devtools.description import MethodDescription, ProgramDescription
from pteron.devtools.size_report import OURS, find_duplicates, stored_tensors

NAMED = "named data"


@dataclass(frozen=True)
class Weight:
    """Stored bytes, once: a constant, initial state, the blob of a delegate, or named data.

    `name` is empty where the file has none, `place` is the first byte in the file, or -1 in a data file;
    `kind` is an element type, the name of a backend or `named data`. `copies` says how often the file has the
    same bytes.
    """

    name: str
    module: str
    kind: str
    text: str
    nbytes: int
    readers: tuple[int, ...]
    place: int = -1
    copies: int = 1


def weights(
    program: Program, file: ProgramDescription, method: MethodDescription, content: bytes | memoryview
) -> list[Weight]:
    """Everything that is stored for a program, the largest first. `readers` are instructions of `method`."""
    readers = _readers(method)
    found = [*_constants(program, file, content, readers), *_blobs(file, method)]
    for tensor in method.tensors.values():
        if tensor.stored is not None and "external" in tensor.stored:
            name = str(tensor.stored["external"])
            module = name.rpartition(".")[0]
            found.append(Weight(name, module, tensor.dtype, tensor.text, tensor.nbytes, readers[name]))
    for key, nbytes in file.named_data.items():
        if not key.startswith(OURS):
            found.append(Weight(key, f"({NAMED})", NAMED, NAMED, nbytes, ()))
    return sorted(found, key=lambda one: (-one.nbytes, one.place, one.name))


def _constants(
    program: Program,
    file: ProgramDescription,
    content: bytes | memoryview,
    readers: dict[str, tuple[int, ...]],
) -> Iterator[Weight]:
    stored = dict(stored_tensors(program, file))
    names = {span: tensor.name or f"constant at {span[0]}" for span, (tensor, _) in stored.items()}
    copies = {
        name: len(duplicate.names)
        for duplicate in find_duplicates(content, stored, {})
        for name in duplicate.names
    }
    for span, (tensor, module) in stored.items():
        yield Weight(
            name=tensor.name or "",
            module=module,
            kind=tensor.dtype,
            text=tensor.text,
            nbytes=span[1] - span[0],
            readers=readers.get(_key(span), ()),
            place=span[0],
            copies=copies.get(names[span], 1),
        )


def _blobs(file: ProgramDescription, method: MethodDescription) -> Iterator[Weight]:
    """The payloads of delegates; those of `method` with the instructions that call them."""
    blobs: dict[tuple[int, int], tuple[str, list[int]]] = {}
    for one in file.methods.values():
        for at, delegate in enumerate(one.delegates):
            _, calls = blobs.setdefault(tuple(delegate["blob"]), (delegate["backend"], []))
            if one is method:
                calls += [call.index for call in one.calls if call.delegate == at]
    for (start, end), (backend, calls) in blobs.items():
        if end > start:
            yield Weight("", f"({backend})", backend, "blob", end - start, tuple(calls), start)


def _readers(method: MethodDescription) -> dict[str, tuple[int, ...]]:
    """The instructions that have stored bytes among their arguments, by range or external name."""
    out: dict[str, list[int]] = {}
    for call in method.calls:
        for arg in call.args:
            for tensor in method.leaves(arg):
                if tensor.stored is not None:
                    key = tensor.stored.get("external") or _key(tensor.stored["range"])
                    out.setdefault(key, []).append(call.index)
    for tensor in method.tensors.values():
        if tensor.stored is not None and "external" in tensor.stored:
            out.setdefault(tensor.stored["external"], [])
    return {key: tuple(dict.fromkeys(calls)) for key, calls in out.items()}


def _key(span: Sequence[int]) -> str:
    return f"{span[0]}..{span[1]}"
