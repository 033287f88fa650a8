"""Bytes that a backend puts beside its blob in the file, under names that it can look up at run time."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import Any

import torch

from pteron.exir.backend.file_backed_data import FileBackedData
from pteron.exir.edge.scalar_type import scalar_type_of
from pteron.exir.schema import ScalarType, TensorLayout


@dataclass
class DataEntry:
    """Where one key's bytes are: an index into `NamedDataStoreOutput.buffers`, and the alignment they
    need.
    """

    buffer_index: int
    alignment: int
    tensor_layout: TensorLayout | None = None


@dataclass
class NamedDataStoreOutput:
    """What a `NamedDataStore` holds, ready to be written.

    Attributes:
        buffers: the distinct byte strings; those that lie in a file stay there until they are written.
        pte_data: key to entry, for data inside the program file.
        external_data: file name to key to entry, for data in files of their own.
    """

    buffers: list[bytes | FileBackedData] = field(default_factory=list)
    pte_data: dict[str, DataEntry] = field(default_factory=dict)
    external_data: dict[str, dict[str, DataEntry]] = field(default_factory=dict)

    def content(self, entry: DataEntry) -> bytes | memoryview:
        """The bytes of an entry; those in a file are not read before they are looked at."""
        return content_of(self.buffers[entry.buffer_index])


class NamedDataStore:
    """Collects named bytes, keeping equal bytes once.

    A key stands for the same bytes everywhere in a program. Adding it again with the same bytes is harmless
    (that is how partitions share weights), with other bytes a ValueError.
    """

    #: As in `NamedDataStoreOutput`.
    buffers: list[bytes | FileBackedData]
    pte_data: dict[str, DataEntry]
    external_data: dict[str, dict[str, DataEntry]]
    #: Index into `buffers` of each key, wherever its entry is.
    key_to_buffer_idx: dict[str, int]

    def __init__(self) -> None:
        self.buffers, self.pte_data, self.external_data = [], {}, {}
        self.key_to_buffer_idx = {}
        self._index_of_digest: dict[bytes, int] = {}

    def add_named_data(
        self,
        key: str,
        data: bytes | FileBackedData | torch.Tensor,
        alignment: int | None = 1,
        external_tag: str | None = None,
        tensor_layout: TensorLayout | None = None,
    ) -> None:
        """Adds `data` under `key`.

        Args:
            key: unique in the program. Keys that start with ``pteron.`` are ours and refused.
            data: the bytes, a `FileBackedData`, which stays in its file, or a torch tensor whose elements are
                taken in memory order; the layout then says which order that is.
            alignment: bytes, at least 1. Keys that share bytes get a common multiple.
            external_tag: name of the data file to put it in; None for the program file.
            tensor_layout: dtype, shape and memory order, for readers that want them; of a tensor it may be
                left out.

        Raises:
            ValueError: the key is known with other bytes or another layout, or is reserved; the alignment is
                not positive; the tensor is neither contiguous nor channels-last; or the layout is another one
                than the tensor's.
        """
        if key.startswith("pteron."):
            raise ValueError(
                f"named data key {key!r}: keys that start with 'pteron.' are reserved; choose another"
            )
        content, tensor_layout = _bytes_and_layout(key, data, tensor_layout)
        step = 1 if alignment is None else alignment
        if step < 1:
            raise ValueError(
                f"Alignment must be greater than 0, received {alignment}: named data key {key!r}"
            )
        digest = _digest(content)
        index = self._index_of_digest.get(digest)
        known = self.key_to_buffer_idx.get(key)
        if known is not None and known != index:
            raise ValueError(
                f"Duplicate key {key} with different data: {len(self.buffers[known])} bytes are "
                "stored, "
                f"{len(content)} other bytes were added. Derive the key from the data, or share the data."
            )
        if index is None:
            index = len(self.buffers)
            self.buffers.append(content)
            self._index_of_digest[digest] = index
        self.key_to_buffer_idx[key] = index
        self._insert(key, index, step, external_tag, tensor_layout)

    def merge_named_data_store(self, other: NamedDataStoreOutput) -> None:
        """Adds everything in `other`; the same rules hold as for `add_named_data`."""
        for key, entry in other.pte_data.items():
            self.add_named_data(
                key, other.buffers[entry.buffer_index], entry.alignment, None, entry.tensor_layout
            )
        for tag, entries in other.external_data.items():
            for key, entry in entries.items():
                self.add_named_data(
                    key, other.buffers[entry.buffer_index], entry.alignment, tag, entry.tensor_layout
                )

    def get_named_data_store_output(self) -> NamedDataStoreOutput:
        """Everything that was added so far."""
        external = {tag: entries for tag, entries in self.external_data.items() if entries}
        return NamedDataStoreOutput(self.buffers, self.pte_data, external)

    def externalize_pte_data(self, max_data_bytes: int, tag_prefix: str) -> None:
        """Moves what is to be in the program file to data files of at most `max_data_bytes` bytes of data,
        alignment not counted. Keys that share bytes stay together. A file is named after `tag_prefix` and its
        keys, so equal stores give equal files, whatever was added first.

        Raises:
            ValueError: an argument is not as it says, bytes of one key are more than a file takes, or a file
                of the same name has other entries. Nothing is moved then.
        """
        if isinstance(max_data_bytes, bool) or not isinstance(max_data_bytes, int) or max_data_bytes <= 0:
            raise ValueError("external data shard cap must be a positive integer")
        if not tag_prefix:
            raise ValueError("external data tag prefix must be nonempty")
        files = {tag: dict(entries) for tag, entries in self.external_data.items()}
        for keys in self._shards(max_data_bytes):
            digest = hashlib.sha256("\0".join(keys).encode()).hexdigest()
            entries = {key: self.pte_data[key] for key in keys}
            if files.setdefault(f"{tag_prefix}_{digest}", entries) != entries:
                raise ValueError(f"external data tag collision for {tag_prefix}_{digest}")
        self.external_data, self.pte_data = files, {}

    def _shards(self, max_data_bytes: int) -> list[list[str]]:
        """Sorted keys of each file, in the order of their keys."""
        keys_of: dict[int, list[str]] = {}
        for key in sorted(self.pte_data):
            keys_of.setdefault(self.pte_data[key].buffer_index, []).append(key)
        shards: list[list[str]] = []
        room = 0
        for index, keys in sorted(keys_of.items(), key=lambda item: item[1]):
            size = len(self.buffers[index])
            if size > max_data_bytes:
                raise ValueError(
                    f"buffer {index} has {size} bytes and exceeds external data shard cap {max_data_bytes}"
                )
            if not shards or size > room:
                shards.append([])
                room = max_data_bytes
            shards[-1] += keys
            room -= size
        return [sorted(shard) for shard in shards]

    def _insert(
        self, key: str, index: int, step: int, external_tag: str | None, tensor_layout: TensorLayout | None
    ) -> None:
        if external_tag is None:
            table = self.pte_data
        else:
            table = self.external_data.setdefault(external_tag, {})
        previous = table.get(key)
        if previous is not None:
            step = math.lcm(step, previous.alignment)
            if (
                None not in (tensor_layout, previous.tensor_layout)
                and tensor_layout != previous.tensor_layout
            ):
                raise ValueError(
                    f"Duplicate key {key} with another layout: {previous.tensor_layout} is stored, "
                    f"{tensor_layout} was added"
                )
            tensor_layout = tensor_layout or previous.tensor_layout
        table[key] = DataEntry(index, step, tensor_layout)


def content_of(data: bytes | FileBackedData) -> bytes | memoryview:
    """The bytes; those in a file are not read before they are looked at."""
    return data.view() if isinstance(data, FileBackedData) else data


def _digest(content: bytes | memoryview | FileBackedData) -> bytes:
    """What stands for the bytes where contents are compared."""
    return content.sha256() if isinstance(content, FileBackedData) else hashlib.sha256(content).digest()


def _bytes_and_layout(
    key: str, data: Any, stated: TensorLayout | None
) -> tuple[bytes | FileBackedData, TensorLayout | None]:
    """The bytes of `data` in memory order, and its layout; None of bytes that come without one."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data), stated
    if isinstance(data, FileBackedData):
        return data, stated
    if not isinstance(data, torch.Tensor):
        raise TypeError(f"named data: expected bytes or a tensor, got {type(data).__name__}")
    layout = layout_of(data)
    if stated is not None and stated != layout:
        raise ValueError(
            f"Tensor {key} is a torch.Tensor, with tensor_layout {layout}. The provided tensor layout "
            f"{stated} does not match."
        )
    in_order = data.detach().cpu().permute(layout.dim_order).contiguous()
    # uint8 views exist for every dtype, bfloat16 and float8 included, which NumPy does not have.
    return bytes(in_order.reshape(-1).view(torch.uint8).numpy().tobytes()), layout


def layout_of(tensor: torch.Tensor) -> TensorLayout:
    """The layout of a tensor.

    Raises:
        ValueError: it is neither contiguous nor channels-last, so that its elements lie in no order that a
            file can state.
    """
    is_channels_last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    if not tensor.is_contiguous() and not is_channels_last:
        raise ValueError(
            "Tensor is not contiguous. Please call .contiguous() before creating the TensorLayout."
        )
    order = list(range(tensor.dim())) if tensor.is_contiguous() else [0, 2, 3, 1]
    return TensorLayout(ScalarType(scalar_type_of(tensor.dtype)), list(tensor.shape), order)
