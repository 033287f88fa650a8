"""Operators of the edge dialect in operators of ONNX: a function for each, found by name."""

from pteron_onnxruntime.operators import elementwise, layers, movement, reductions
from pteron_onnxruntime.operators.table import CONVERTERS, Arguments, Converter, converted

__all__ = [
    "CONVERTERS",
    "Arguments",
    "Converter",
    "converted",
    "elementwise",
    "layers",
    "movement",
    "reductions",
]
