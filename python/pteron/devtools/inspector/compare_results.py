"""Measures of how far the outputs of two runs are apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pteron.devtools.inspector.comparators import float_array, signal_to_noise

_DECIMALS = 2


def _mse(reference: Any, value: Any) -> float:
    return float(((reference - value) ** 2).mean())


def _cosine(reference: Any, value: Any) -> float:
    if reference.shape != value.shape:
        raise ValueError("Input tensors must have the same shape")
    norms = np.linalg.norm(reference) * np.linalg.norm(value)
    return float((reference * value).sum() / norms) if norms else float("nan")


_METRICS: dict[str, Callable[[Any, Any], float]] = {
    "snr": signal_to_noise,
    "mse": _mse,
    "cosine_similarity": _cosine,
}


def compare_results(
    reference_output: Sequence[Any],
    run_output: Sequence[Any],
    metrics: Sequence[str] | None = None,
    plot: bool = False,
) -> dict[str, list[float | None]]:
    """Metric → its value for each pair of outputs, rounded to two decimals; None for what is no tensor.

    `metrics`: of "snr", "mse" and "cosine_similarity", all of them if left out. They are printed; with
    `plot` drawn instead.

    Raises:
        ImportError: `plot` is asked for without matplotlib.
    """
    found: dict[str, list[float | None]] = {}
    for name, measure in _METRICS.items():
        if metrics is not None and name not in metrics:
            continue
        found[name] = [
            round(measure(float_array(reference), float_array(value)), _DECIMALS)
            if hasattr(reference, "shape") and hasattr(value, "shape")
            else None
            for reference, value in zip(reference_output, run_output, strict=False)
        ]
        if plot:
            _draw(name, found[name])
        else:
            print(name)
            for index, value in enumerate(found[name]):
                print(f"{index:<5}{'none' if value is None else f'{value:.5f}':>8}")
    return found


def _draw(name: str, values: Sequence[float | None]) -> None:
    import matplotlib.pyplot as plt  # type: ignore[import-not-found]

    _, axes = plt.subplots(figsize=(8, 6))
    axes.bar(range(len(values)), [value or 0.0 for value in values], width=0.5)
    axes.set(xlabel="Output value index", ylabel=name, title=f"Metric {name}")
    plt.savefig(f"{name}_output_plot.png")
    plt.show()
