"""What `quantize` did: layer by layer, as objects and as a table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerReport:
    """One layer with weights.

    `name`: as `named_modules` calls it. `kind`: of the layer (`"linear"`, `"conv2d"`, `"embedding"`).
    `scheme`: how it computes (`"int8"`, `"float32"`, ...). `float_bytes`, `bytes`: of its weight with scales,
    before and after. `error`: the root mean square of the difference that quantising this layer alone makes
    to its own result, as a part of that of the result; None where it was not measured. `reason`: why it is
    float.
    """

    name: str
    kind: str
    scheme: str
    float_bytes: int
    bytes: int
    error: float | None
    reason: str = ""


@dataclass(frozen=True)
class QuantizationReport:
    """What became of a model. `str()` is a table.

    `scheme`: what was applied. `layers`: in the order of the model. `output_error`: of the model's results on
    the example inputs, measured as `LayerReport.error`, all layers quantised; the largest of several outputs.
    """

    scheme: str
    layers: tuple[LayerReport, ...]
    output_error: float

    @property
    def float_bytes(self) -> int:
        """Bytes of all layers' weights before."""
        return sum(layer.float_bytes for layer in self.layers)

    @property
    def bytes(self) -> int:
        """Bytes of all layers' weights after."""
        return sum(layer.bytes for layer in self.layers)

    @property
    def left_in_float(self) -> tuple[str, ...]:
        """Names of the layers that stayed as they were."""
        return tuple(layer.name for layer in self.layers if layer.reason)

    def __str__(self) -> str:
        rows = [("layer", "kind", "scheme", "bytes", "was", "error", "")]
        for layer in self.layers:
            error = "" if layer.error is None else f"{layer.error:.2%}"
            sizes = (f"{layer.bytes:,}", f"{layer.float_bytes:,}")
            rows.append((layer.name, layer.kind, layer.scheme, *sizes, error, layer.reason))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        numbers = (3, 4, 5)
        lines = [
            "  ".join(
                cell.rjust(width) if column in numbers else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        total = (
            f"{self.scheme}: weights of {self.float_bytes:,} bytes in {self.bytes:,}, "
            f"error of the outputs {self.output_error:.2%}"
        )
        return "\n".join([*lines, total])
