"""Data that all methods of a program share: constants, initial values, delegate blobs, named data."""

from __future__ import annotations

import math
from typing import Any

import torch

from pteron.errors import ExportError
from pteron.exir.schema import BackendDelegateInlineData, Buffer, NamedData, Program


def tensor_bytes(value: torch.Tensor) -> bytes:
    """The elements of a contiguous or channels-last tensor in memory order, little-endian."""
    flat = value.detach().cpu()
    if flat.numel() == 0:
        return b""
    if not flat.is_contiguous():
        # Dense in another order of dimensions: read memory as it lies.
        flat = flat.permute(sorted(range(flat.dim()), key=lambda i: (-flat.stride()[i], i)))
    return flat.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


class SharedData:
    """Fills the lists of a `Program` that belong to no single method; each distinct item is stored once."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._constants: dict[Any, int] = {}
        self._blobs: dict[bytes, int] = {}
        self._named: dict[str, NamedData] = {}
        self._of_delegates: list[tuple[str, str, bytes, int]] = []
        # Keys of `_constants` are addresses; the tensors must outlive them.
        self._kept: list[torch.Tensor] = []

    def constant(self, value: torch.Tensor) -> int:
        """The index in `constant_buffer` of a constant's bytes; the same memory gets the same index."""
        address = (value.data_ptr(), value.dtype, tuple(value.shape), tuple(value.stride()))
        if value.numel() and address in self._constants:
            return self._constants[address]
        self._kept.append(value)
        self._program.constant_buffer.append(Buffer(tensor_bytes(value)))
        index = len(self._program.constant_buffer) - 1
        self._constants[address] = index
        return index

    def initial_value(self, value: torch.Tensor) -> int:
        """The index in `mutable_data` of a buffer's initial bytes."""
        self._program.mutable_data.append(Buffer(tensor_bytes(value)))
        return len(self._program.mutable_data) - 1

    def blob(self, data: bytes) -> int:
        """The index in `backend_delegate_data` of a delegate's blob; equal blobs get the same index."""
        if data not in self._blobs:
            self._program.backend_delegate_data.append(BackendDelegateInlineData(data))
            self._blobs[data] = len(self._program.backend_delegate_data) - 1
        return self._blobs[data]

    def named(self, key: str, data: bytes, alignment: int) -> None:
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
        if store.external_data:
            raise ExportError(
                f"a backend asked for data files of their own ({', '.join(sorted(store.external_data))}); "
                "only data inside the program file is supported",
                hint="add the data without external_tag",
            )
        for key, entry in store.pte_data.items():
            data = store.buffers[entry.buffer_index]
            self._of_delegates.append((key, f"{method}/{delegate}", data, entry.alignment))

    def place_delegate_data(self, *, is_scoped: bool) -> None:
        """Store the named data of all delegates.

        A key to which all delegates give the same bytes is stored as it is. One that has different bytes in
        different delegates is stored once for each of them, under a key that names the delegate
        (`scoped_key`): each then reads its own. Only our runtime looks there, so without `is_scoped` such a
        key is an ExportError.
        """
        contents: dict[str, set[bytes]] = {}
        for key, _, data, _ in self._of_delegates:
            contents.setdefault(key, set()).add(data)
        for key, place, data, alignment in self._of_delegates:
            is_shared = len(contents[key]) == 1 or not is_scoped
            self.named(key if is_shared else scoped_key(key, place), data, alignment)


def scoped_key(key: str, place: str) -> str:
    """The key of data that only the delegate at `place` (`<method>/<index in the method>`) sees under
    `key`.
    """
    return f"pteron.delegate.{key}@{place}"
