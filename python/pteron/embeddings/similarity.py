"""How alike vectors are, by the names and formulas of sentence-transformers: the larger the more alike."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]


def unit(vectors: Vectors) -> Vectors:
    """The vectors with length 1; zeros stay zeros. float32 [..., dimension]."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    found: Vectors = vectors / np.maximum(length, np.float32(1e-12))
    return found


def _cosine(a: Vectors, b: Vectors) -> Vectors:
    return _dot(unit(a), unit(b))


def _dot(a: Vectors, b: Vectors) -> Vectors:
    found: Vectors = a @ b.T
    return found


def _euclidean(a: Vectors, b: Vectors) -> Vectors:
    return np.stack([-np.linalg.norm(b - row, axis=-1) for row in a])


def _manhattan(a: Vectors, b: Vectors) -> Vectors:
    return np.stack([-np.abs(b - row).sum(axis=-1) for row in a])


#: Vectors float32 [n, dimension] and [m, dimension] to float32 [n, m]; distances are negative.
SIMILARITIES: dict[str, Callable[[Vectors, Vectors], Vectors]] = {
    "cosine": _cosine,
    "dot": _dot,
    "euclidean": _euclidean,
    "manhattan": _manhattan,
}
