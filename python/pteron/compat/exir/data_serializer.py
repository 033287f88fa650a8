"""Named data as objects, and the interface of what writes and reads it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from pteron.compat.exir.cord import Cord, CordBuffer
from pteron.exir.backend.named_data_store import DataEntry

__all__ = ["DataEntry", "DataPayload", "DataSerializer"]


@dataclass
class DataPayload:
    """Distinct buffers, and the entry of each key: an index into them, an alignment and a layout."""

    buffers: Sequence[CordBuffer]
    named_data: dict[str, DataEntry]


class DataSerializer(ABC):
    """A file format of named data."""

    @abstractmethod
    def serialize(self, data: DataPayload) -> Cord:
        """The file."""

    @abstractmethod
    def deserialize(self, blob: Cord) -> DataPayload:
        """What is in a file."""
