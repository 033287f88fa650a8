"""Distances between what the reference and the run computed at one operator."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.devtools.data_frames import pandas_or_error

DebugHandle = tuple[int, ...]
#: (handles, output) of the reference → (handles, output) of the run.
IntermediateOutputMapping = dict[tuple[DebugHandle, Any], tuple[DebugHandle, Any]]


def float_array(value: Any) -> npt.NDArray[np.float64]:
    """A tensor, an array or a number as float64.

    Raises:
        ValueError: the value is none of these.
    """
    if hasattr(value, "detach"):  # of torch, some of whose types NumPy does not have
        value = value.detach().cpu().double().numpy()
    try:
        found: npt.NDArray[np.float64] = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"a value of type {type(value).__name__} cannot be compared: {error}") from None
    return found


def _difference(a: Any, b: Any) -> npt.NDArray[np.float64]:
    """The difference, 0 where both are the same infinity or both NaN."""
    ours, theirs = float_array(a), float_array(b)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    with np.errstate(invalid="ignore"):
        return np.where(same, 0.0, ours - theirs)


def signal_to_noise(reference: Any, value: Any) -> float:
    """10 log10 of the power of the reference by that of the difference; infinite without a difference."""
    noise = float((_difference(reference, value) ** 2).mean())
    signal = float((float_array(reference) ** 2).mean())
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal > 0 else -math.inf


class NumericalComparatorBase(ABC):
    """A distance for `Inspector.calculate_numeric_gap`: subclasses have `element_compare`, and may change the
    pairs in `preprocessing` before.
    """

    def __init__(self, inspector: Any = None) -> None:
        self._inspector = inspector

    @property
    def inspector(self) -> Any:
        """The Inspector that compares; set by it where nobody did."""
        return self._inspector

    @inspector.setter
    def inspector(self, value: Any) -> None:
        self._inspector = value

    def preprocessing(self, mapping: IntermediateOutputMapping) -> IntermediateOutputMapping:
        """The pairs that are compared, such as dequantised ones; the same ones unless overridden."""
        return mapping

    @abstractmethod
    def element_compare(self, a: Any, b: Any) -> float:
        """The distance of one output of the reference from that of the run."""

    def compare(
        self,
        mapping: IntermediateOutputMapping,
        aot_debug_handle_to_op_names: dict[DebugHandle, list[str]],
        runtime_debug_handle_to_op_names: dict[DebugHandle, list[str]],
    ) -> Any:
        """A pandas data frame, a row for each pair. Operators with several results in the reference have
        none.

        Raises:
            TypeError, ValueError: `preprocessing` gives something else than pairs.
            ImportError: pandas is not installed.
        """
        pairs = self.preprocessing(mapping)
        _check_pairs(pairs)
        rows = []
        for (handles, reference), (run_handles, value) in pairs.items():
            if reference is None or value is None or (_is_list(reference) and len(reference) > 1):
                continue
            rows.append(
                {
                    "aot_debug_handle": handles,
                    "aot_ops": find_op_names(handles, aot_debug_handle_to_op_names),
                    "aot_intermediate_output": reference,
                    "runtime_ops": find_op_names(run_handles, runtime_debug_handle_to_op_names),
                    "runtime_debug_handle": run_handles,
                    "runtime_intermediate_output": value,
                    "gap": self._gaps(reference, value),
                }
            )
        return pandas_or_error("calculate_numeric_gap").DataFrame(rows)

    def _gaps(self, reference: Any, value: Any) -> list[float]:
        if _is_list(reference) != _is_list(value):
            raise ValueError("one of the outputs is a list and the other is none")
        if not _is_list(reference):
            return [self.element_compare(reference, value)]
        return [self.element_compare(a, b) for a, b in zip(reference, value, strict=True)]


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _check_pairs(pairs: Any) -> None:
    if not isinstance(pairs, dict):
        raise TypeError(f"preprocessing() must return a dict, got {type(pairs).__name__}")
    for side in (each for pair in pairs.items() for each in pair):
        is_pair = isinstance(side, tuple) and len(side) == 2
        if not is_pair or not isinstance(side[0], tuple) or not all(isinstance(x, int) for x in side[0]):
            raise ValueError(
                f"preprocessing() must return pairs of debug handles (a tuple of int) and output, got {side}"
            )


def find_op_names(handles: DebugHandle, names: dict[DebugHandle, list[str]]) -> list[str]:
    """The names of all operators whose handles are among the given ones."""
    wanted = set(handles)
    return [name for key, listed in names.items() if wanted.issuperset(key) for name in listed]


class MSEComparator(NumericalComparatorBase):
    """The mean of squared differences."""

    def element_compare(self, a: Any, b: Any) -> float:
        """The mean of squared differences."""
        return float((_difference(a, b) ** 2).mean())


class L1Comparator(NumericalComparatorBase):
    """The sum of absolute differences."""

    def element_compare(self, a: Any, b: Any) -> float:
        """The sum of absolute differences."""
        return float(np.abs(_difference(a, b)).sum())


class SNRComparator(NumericalComparatorBase):
    """The ratio of signal to noise in decibels."""

    def element_compare(self, a: Any, b: Any) -> float:
        """The ratio of signal to noise in decibels."""
        return signal_to_noise(a, b)


COMPARATORS: dict[str, type[NumericalComparatorBase]] = {
    "MSE": MSEComparator,
    "L1": L1Comparator,
    "SNR": SNRComparator,
}


def comparator_of(distance: str | NumericalComparatorBase, inspector: Any) -> NumericalComparatorBase:
    """The comparator of a name, or the one given.

    Raises:
        ValueError: there is none of that name.
    """
    if isinstance(distance, NumericalComparatorBase):
        if distance.inspector is None:
            distance.inspector = inspector
        return distance
    found = COMPARATORS.get(distance.strip().upper())
    if found is None:
        raise ValueError(f"Unsupported distance metric {distance!r}; there are {', '.join(COMPARATORS)}")
    return found(inspector)
