"""Sizes and offsets at multiples of an alignment."""

from __future__ import annotations


def padding_required(offset: int, alignment: int) -> int:
    """Bytes from `offset` to the next multiple of `alignment`."""
    return -offset % alignment


def aligned_size(input_size: int, alignment: int) -> int:
    """The smallest multiple of `alignment` that is at least `input_size`."""
    return input_size + padding_required(input_size, alignment)


def pad_to(data: bytes, length: int) -> bytes:
    """`data` with zeros behind it, `length` bytes in all; ValueError if it is longer already."""
    if length < len(data):
        raise ValueError(f"Data length {len(data)} > padded length {length}")
    return data.ljust(length, b"\0")
