"""What the bytes of a program file are."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pteron._native import Program
from pteron.devtools.bundle_part import program_part
from pteron.devtools.callable_module import make_callable
from pteron.devtools.description import MethodDescription, ProgramDescription, TensorValue, describe
from pteron.devtools.html_table import html_table
from pteron.devtools.program_file import is_pack
from pteron.devtools.sources import Sources
from pteron.devtools.text_table import size_text, text_table

#: Named data of ours that is no weight.
OURS = "pteron."


@dataclass(frozen=True)
class Duplicate:
    """The same bytes at several places of the file."""

    names: tuple[str, ...]
    nbytes: int


@dataclass(frozen=True, repr=False)
class SizeReport:
    """Bytes of a program file; `str()` of it is tables.

    `parts` make up the whole file. `modules`, `dtypes` are of the constants and initial contents in the file,
    each range of bytes counted once; `delegates` are blobs by backend.
    """

    file_bytes: int
    parts: dict[str, int]
    modules: dict[str, int]
    dtypes: dict[str, int]
    delegates: dict[str, int]
    duplicates: tuple[Duplicate, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {
            "file_bytes": self.file_bytes,
            "parts": self.parts,
            "modules": self.modules,
            "dtypes": self.dtypes,
            "delegates": self.delegates,
            "duplicates": [{"names": list(d.names), "nbytes": d.nbytes} for d in self.duplicates],
        }

    def __repr__(self) -> str:
        largest = max(self.modules, key=self.modules.__getitem__, default="")
        most = f", most in {largest}" if largest else ""
        return (
            f"<SizeReport: {size_text(self.file_bytes)}, {size_text(self.parts['weights'])} of weights{most}>"
        )

    def __str__(self) -> str:
        shares = [(name, n, f"{n / max(self.file_bytes, 1):.1%}") for name, n in self.parts.items()]
        rows = [*shares, ("file", self.file_bytes, "100.0%")]
        tables = [text_table(("part", "bytes", "share"), [(name, str(n), share) for name, n, share in rows])]
        for title, sizes in (
            ("module", self.modules),
            ("dtype", self.dtypes),
            ("delegate", self.delegates),
        ):
            if sizes:
                order = sorted(sizes.items(), key=lambda item: -item[1])
                tables.append(text_table((title, "bytes"), [(name, str(nbytes)) for name, nbytes in order]))
        for one in self.duplicates:
            names = ", ".join(one.names)
            tables.append(f"stored {len(one.names)} times: {names} ({size_text(one.nbytes)})\n")
        return "\n".join(tables)

    def _repr_html_(self) -> str:
        tables = []
        for title in ("parts", "modules", "dtypes", "delegates"):
            table: dict[str, int] = getattr(self, title)
            order = sorted(table.items(), key=lambda item: -item[1])
            shares = [nbytes / max(self.file_bytes, 1) for _, nbytes in order]
            rows = [
                (name, size_text(nbytes), f"{share:.1%}")
                for (name, nbytes), share in zip(order, shares, strict=True)
            ]
            if rows:
                heads = (title.removesuffix("s"), "bytes", "of the file")
                tables.append(html_table(title, heads, rows, shares, is_open=title == "parts"))
        twice = [(", ".join(one.names), size_text(one.nbytes)) for one in self.duplicates]
        if twice:
            none = [0.0] * len(twice)
            tables.append(
                html_table("duplicates", ("stored more than once", "bytes each"), twice, none, is_open=False)
            )
        return f"<p>{size_text(self.file_bytes)}</p>" + "".join(tables)


def size_report(program: Program, content: bytes, *, depth: int = 3) -> SizeReport:
    """The sizes of `program`, which was loaded from `content`; module paths are cut to `depth` parts. What a
    bundled program has beside its program counts as test cases.
    """
    file = describe(program)
    part = program_part(content)
    stored = dict(stored_tensors(program, file))
    blobs = {tuple(d["blob"]): d["backend"] for m in file.methods.values() for d in m.delegates}
    modules: Counter[str] = Counter()
    dtypes: Counter[str] = Counter()
    for (start, end), (tensor, module) in stored.items():
        modules[".".join(module.split(".")[:depth]) if module else "(not known)"] += end - start
        dtypes[tensor.dtype] += end - start
    delegates: Counter[str] = Counter()
    for (start, end), backend in blobs.items():
        delegates[backend] += end - start
    parts = {
        "program": file.program_bytes,
        "weights": sum(end - start for start, end in stored),
        "delegates": sum(delegates.values()),
        "named data": sum(n for key, n in file.named_data.items() if not key.startswith(OURS)),
        "packed weights": sum(n for key, n in file.named_data.items() if is_pack(key)),
        "debug, interface": sum(
            n for key, n in file.named_data.items() if key.startswith(OURS) and not is_pack(key)
        ),
    }
    rest = len(part) - sum(parts.values())
    if rest > 0:
        parts["padding and others"] = rest
    if len(part) < len(content):
        parts["test cases"] = len(content) - len(part)
    return SizeReport(
        len(content),
        parts,
        dict(modules),
        dict(dtypes),
        dict(delegates),
        tuple(find_duplicates(part, stored, blobs)),
    )


def stored_tensors(
    program: Program, file: ProgramDescription
) -> Iterator[tuple[tuple[int, int], tuple[TensorValue, str]]]:
    """Each range of stored bytes with a tensor that has it, and the module that reads or owns it."""
    seen = set()
    for name, method in file.methods.items():
        modules = _modules(program, name, method)
        for tensor in method.tensors.values():
            if tensor.stored is None or "range" not in tensor.stored:
                continue
            start, end = tensor.stored["range"]
            if (start, end) in seen or start == end:
                continue
            seen.add((start, end))
            owner = tensor.name.rpartition(".")[0] if tensor.name else modules.get(tensor.index, "")
            yield (start, end), (tensor, owner)


def _modules(program: Program, name: str, method: MethodDescription) -> dict[int, str]:
    """For each value the module of the first call that reads it."""
    sources = Sources(program, name)
    out: dict[int, str] = {}
    for call in method.calls:
        module = sources.module_of(call.index)
        for arg in call.args:
            for tensor in method.leaves(arg):
                out.setdefault(tensor.index, module)
    return out


def find_duplicates(
    content: bytes | memoryview, stored: dict[tuple[int, int], tuple[TensorValue, str]], blobs: dict[Any, str]
) -> Iterator[Duplicate]:
    """Ranges of `content` with the same bytes: tensors and blobs, by range."""
    found: dict[tuple[int, bytes], list[str]] = defaultdict(list)
    names = {span: tensor.name or f"constant at {span[0]}" for span, (tensor, _) in stored.items()}
    names |= {span: f"{backend} blob at {span[0]}" for span, backend in blobs.items()}
    for (start, end), name in names.items():
        if end > start:
            found[end - start, hashlib.sha256(content[start:end]).digest()].append(name)
    for (nbytes, _), same in found.items():
        if len(same) > 1:
            yield Duplicate(tuple(same), nbytes)


make_callable(__name__)
