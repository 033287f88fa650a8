"""Element types as program files number them: the one table of both halves, without torch."""

from __future__ import annotations

# Source: the ScalarType enumeration of the file format; complex numbers are stored and executed though its
# schema does not list them.
SCALAR_TYPES: dict[str, int] = {
    "uint8": 0,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "float16": 5,
    "float32": 6,
    "float64": 7,
    "complex32": 8,
    "complex64": 9,
    "complex128": 10,
    "bool": 11,
    "bfloat16": 15,
    "bits16": 22,
    "float8_e5m2": 23,
    "float8_e4m3fn": 24,
    "float8_e5m2fnuz": 25,
    "float8_e4m3fnuz": 26,
    "uint16": 27,
    "uint32": 28,
    "uint64": 29,
}
"""Name, as NumPy and PyTorch have it → number."""
