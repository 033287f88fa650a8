"""Data that all methods of a program share: constants, initial values, delegate blobs, named data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from pteron.errors import ExportError
from pteron.exir.edge.scalar_type import scalar_type_of
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.emit.equal_constants import EqualConstants
from pteron.exir.emit.external_tags import checked_tag
from pteron.exir.schema import (
    BackendDelegateInlineData,
    Buffer,
    DataFileEntry,
    NamedData,
    Program,
    ScalarType,
    TensorLayout,
)


class BorrowedWeights:
    """Remembers what the tensors were when the program was emitted."""

    def __init__(self) -> None:
        self._tensors: list[tuple[str, torch.Tensor, int]] = []

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Note that `tensor` is borrowed; `name` is for messages."""
        if not tensor.is_inference():  # such tensors count no changes
            self._tensors.append((name, tensor, tensor._version))

    def check(self) -> None:
        """ExportError where a tensor was changed in place since it was added."""
        changed = [name for name, tensor, version in self._tensors if tensor._version != version]
        if changed:
            shown = ", ".join(map(repr, changed[:6])) + (", ..." if len(changed) > 6 else "")
            raise ExportError(
                f"{len(changed)} weights of the program were changed in place after to_executorch: {shown}",
                expected="the weights that the program was made with",
                got=shown,
                hint="save the program, or take its buffer, before the model changes; or export it again",
            )


class DataFiles:
    """Entries by file and key. A key stands for the same bytes in the whole program, and is in one file."""

    def __init__(self) -> None:
        self._files: dict[str, dict[str, DataFileEntry]] = {}
        self._file_of_key: dict[str, str] = {}

    def add(
        self, tag: str, key: str, data: bytes | memoryview, alignment: int, layout: TensorLayout | None
    ) -> None:
        """Store `data` under `key` in the file `tag`.

        ExportError where the key is taken by other bytes, another layout, or in another file.
        """
        known_tag = self._file_of_key.setdefault(key, tag)
        known = self._files.setdefault(known_tag, {}).get(key)
        if known is None:
            self._files[tag][key] = DataFileEntry(key, data, alignment, layout)
            return
        if known_tag != tag:
            raise ExportError(
                f"{key!r} is to go into two data files, {known_tag!r} and {tag!r}",
                expected="one file for all methods",
                got=f"{known_tag!r} and {tag!r}",
                hint="give the same tag wherever the name is the same",
            )
        if known.layout != layout or known.data != data:
            raise ExportError(
                f"two different tensors are called {key!r}, and data files find tensors by name",
                got=key,
                hint="export the methods from one module that has both under different names, or keep one of "
                "them in the program file: external_constants=<function that returns None for it>",
            )
        known.alignment = math.lcm(known.alignment, alignment)

    def entries(self) -> dict[str, list[DataFileEntry]]:
        """File to its entries, in the order in which they were added."""
        return {tag: list(entries.values()) for tag, entries in sorted(self._files.items())}


def tensor_bytes(value: torch.Tensor) -> memoryview:
    """The elements of a contiguous or channels-last tensor in memory order, little-endian: the tensor's own
    memory where that is possible.
    """
    flat = value.detach().cpu().resolve_conj().resolve_neg()
    if flat.numel() == 0:
        return memoryview(b"")
    if not flat.is_contiguous():
        # Dense in another order of dimensions: read memory as it lies.
        flat = flat.permute(sorted(range(flat.dim()), key=lambda i: (-flat.stride()[i], i)))
    elements: Any = flat.contiguous().view(-1).view(torch.uint8).numpy()
    return memoryview(elements)


def tensor_layout(spec: TensorSpec) -> TensorLayout:
    """What a data file says about a tensor."""
    return TensorLayout(ScalarType(scalar_type_of(spec.dtype)), list(spec.shape), list(spec.dim_order))


@dataclass
class _DelegateData:
    """What a delegate keeps under a key: in the program file, or in the data file `tag`."""

    key: str
    place: str
    data: bytes | memoryview
    alignment: int
    tag: str | None
    layout: Any


class SharedData:
    """Fills the lists of a `Program` that belong to no single method; each distinct item is stored once."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._constants: dict[Any, int] = {}
        self._equal = EqualConstants()
        self._initial_values: dict[bytes, int] = {}
        self._blobs: dict[bytes, int] = {}
        self._named: dict[str, NamedData] = {}
        self._of_delegates: list[_DelegateData] = []
        # Keys of `_constants` are addresses; the tensors must outlive them.
        self._kept: list[torch.Tensor] = []
        self.weights = BorrowedWeights()
        self.data_files = DataFiles()

    def constant(self, value: torch.Tensor, name: str = "a constant") -> int:
        """The index in `constant_buffer` of a constant's bytes; equal tensors get the same index.

        The bytes are not copied; `name` is for messages about that.
        """
        kind = (value.dtype, tuple(value.shape), tuple(value.stride()))
        address = (value.data_ptr(), *kind)
        if value.numel() and address in self._constants:
            return self._constants[address]
        self._kept.append(value)
        data = tensor_bytes(value)
        index = self._equal.find(kind, data)
        if index is None:
            self.weights.add(name, value)
            self._program.constant_buffer.append(Buffer(data))
            index = len(self._program.constant_buffer) - 1
            self._equal.add(kind, data, index)
        self._constants[address] = index
        return index

    def initial_value(self, value: torch.Tensor) -> int:
        """The index in `mutable_data` of a buffer's initial bytes; equal bytes get the same index."""
        data = tensor_bytes(value).tobytes()
        if data not in self._initial_values:
            self._program.mutable_data.append(Buffer(data))
            self._initial_values[data] = len(self._program.mutable_data) - 1
        return self._initial_values[data]

    def external_constant(self, value: torch.Tensor, spec: TensorSpec, name: str, tag: str) -> None:
        """Put a constant into the data file `tag`, under `name`; its bytes are not copied."""
        self.weights.add(name, value)
        self.data_files.add(tag, name, tensor_bytes(value), 1, tensor_layout(spec))

    def external_initial_value(self, value: torch.Tensor, spec: TensorSpec, name: str, tag: str) -> None:
        """Put the initial value of a mutable buffer into the data file `tag`, under `name`."""
        self.data_files.add(tag, name, tensor_bytes(value).tobytes(), 1, tensor_layout(spec))

    def blob(self, data: bytes) -> int:
        """The index in `backend_delegate_data` of a delegate's blob; equal blobs get the same index."""
        if data not in self._blobs:
            self._program.backend_delegate_data.append(BackendDelegateInlineData(data))
            self._blobs[data] = len(self._program.backend_delegate_data) - 1
        return self._blobs[data]

    def named(self, key: str, data: bytes | memoryview, alignment: int) -> None:
        """Store `data` under `key`. ExportError where the key is taken by other bytes."""
        known = self._named.get(key)
        if known is None:
            known = self._named[key] = NamedData(key, data, alignment)
            self._program.named_data.append(known)
        elif known.data != data:
            raise ExportError(
                f"named data {key!r} is given twice with different bytes ({len(known.data)} and {len(data)})",
                got=key,
                hint="derive the key from the data",
            )
        known.alignment = math.lcm(known.alignment, alignment)

    def named_from(self, store: Any, method: str, delegate: int) -> None:
        """Take what a backend put beside the blob of a delegate (a `NamedDataStoreOutput`, or None).

        It is stored by `place_delegate_data`, when all delegates are known.
        """
        if store is None:
            return
        place = f"{method}/{delegate}"
        tables: list[tuple[str | None, Any]] = [(None, store.pte_data)]
        for tag, entries in store.external_data.items():
            where = f"method {method!r}, delegate {delegate}: NamedDataStore.add_named_data(external_tag=...)"
            tables.append((checked_tag(tag, where), entries))
        for tag, entries in tables:
            for key, entry in entries.items():
                data = store.content(entry)
                self._of_delegates.append(
                    _DelegateData(key, place, data, entry.alignment, tag, entry.tensor_layout)
                )

    def place_delegate_data(self, *, is_scoped: bool) -> None:
        """Store the named data of all delegates.

        A key to which all delegates give the same bytes is stored as it is. One that has different bytes in
        different delegates is stored once for each of them, under a key that names the delegate
        (`scoped_key`): each then reads its own. Only our runtime looks there, so without `is_scoped` such a
        key is an ExportError.
        """
        contents: dict[str, list[bytes | memoryview]] = {}
        for item in self._of_delegates:
            known = contents.setdefault(item.key, [])
            if item.data not in known:
                known.append(item.data)
        for item in self._of_delegates:
            is_shared = len(contents[item.key]) == 1 or not is_scoped
            key = item.key if is_shared else scoped_key(item.key, item.place)
            if item.tag is None:
                self.named(key, item.data, item.alignment)
            else:
                self.data_files.add(item.tag, key, item.data, item.alignment, _own_layout(item.layout))


def _own_layout(layout: Any) -> TensorLayout | None:
    if layout is None:
        return None
    return TensorLayout(ScalarType(int(layout.scalar_type)), list(layout.sizes), list(layout.dim_order))


def scoped_key(key: str, place: str) -> str:
    """The key of data that only the delegate at `place` (`<method>/<index in the method>`) sees under
    `key`.
    """
    return f"pteron.delegate.{key}@{place}"
