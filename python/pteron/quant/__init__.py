"""From a float model to a quantised one that `pteron.export` and `pteron.exir` take. Needs torch and torchao.

`quantize` chooses; `PteronQuantizer` is for PT2E (`prepare_pt2e`, `convert_pt2e`) by hand.
"""

from pteron.quant.quantize_model import LAYER_LIMIT, Scheme, quantize
from pteron.quant.quantizer import PteronQuantizer
from pteron.quant.report import LayerReport, QuantizationReport

__all__ = ["LAYER_LIMIT", "LayerReport", "PteronQuantizer", "QuantizationReport", "Scheme", "quantize"]
