"""Long byte strings in parts, in memory or in files, which are not copied until they are written."""

from __future__ import annotations

import io
from typing import IO

from pteron.exir.backend.file_backed_data import FileBackedData

__all__ = ["Cord", "CordBuffer", "FileBackedData"]

CordBuffer = bytes | FileBackedData


class Cord:
    """Bytes in parts. `len` counts bytes, `bytes(cord)` joins them."""

    def __init__(self, data: CordBuffer | Cord | None = None) -> None:
        self._buffers: list[CordBuffer] = []
        self._byte_size = 0
        if data is not None:
            self.append(data)

    def __len__(self) -> int:
        return self._byte_size

    def __bytes__(self) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part.to_bytes() for part in self._buffers)

    def append(self, data: CordBuffer | Cord) -> None:
        """Adds bytes, a file or the parts of another cord; TypeError for anything else."""
        if isinstance(data, Cord):
            self._buffers.extend(data._buffers)
        elif isinstance(data, (bytes, FileBackedData)):
            self._buffers.append(data)
        else:
            raise TypeError(f"Can only append bytes, FileBackedData, or Cords, received {type(data)}")
        self._byte_size += len(data)

    def write_to_file(self, outfile: IO[bytes] | io.BufferedIOBase) -> None:
        """Writes the parts to an open binary file, one after the other."""
        for part in self._buffers:
            if isinstance(part, bytes):
                outfile.write(part)
            else:
                part.write_to_file(outfile)
