"""Linear layers whose inputs become int8 in the call: in integers, with these rules off, in floats.

    python benches/dynamic_int8.py [--rows 1 128] [--threads 1]

Eight layers of 768 x 3072 with GELU between them, quantised by `PteronQuantizer(is_dynamic=True)` (PT2E)
and by `pteron.quant.quantize` (torchao's forms, with a scale for each row; weights of 8 bits, and of 4 in
groups of 32); `_int_mm` is torchao's `Int8DynamicActivationInt8WeightConfig`; `int4-weight` multiplies
floats. All run in turn in one process; printed is the shortest of 15 calls each, in milliseconds.
"""

from __future__ import annotations

import argparse
import time

import torch
from timing import cpu_model
from torch import nn
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import pteron
from pteron.exir import to_edge
from pteron.quant import PteronQuantizer, quantize

CALLS = 15
WIDTH, INNER, PAIRS = 768, 3072, 4


def network() -> nn.Module:
    """Blocks as transformers have them between attention."""
    pairs = ((nn.Linear(WIDTH, INNER), nn.GELU(), nn.Linear(INNER, WIDTH)) for _ in range(PAIRS))
    return nn.Sequential(*(layer for pair in pairs for layer in pair)).eval()


def exported(module: nn.Module, x: torch.Tensor) -> bytes:
    """The program file."""
    return to_edge(torch.export.export(module, (x,))).to_executorch().buffer


def quantised(module: nn.Module, x: torch.Tensor) -> nn.Module:
    """The network with weights per channel, inputs quantised in each call."""
    prepared = prepare_pt2e(torch.export.export(module, (x,)).module(), PteronQuantizer(is_dynamic=True))
    prepared(x)
    converted: nn.Module = convert_pt2e(prepared)
    return converted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 128])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    print(f"{cpu_model()}, {options.threads} threads")
    for rows in options.rows:
        torch.manual_seed(0)
        module, x = network(), torch.randn(rows, WIDTH)
        files = {"PT2E int8": exported(quantised(module, x), x), "f32": exported(module, x)}
        for scheme in ("int8-dynamic", "int4-dynamic", "int4-weight"):
            files[scheme] = exported(quantize(module, (x,), scheme=scheme, layer_limit=1.0), x)
        symmetric = network()
        symmetric.load_state_dict(module.state_dict())
        quantize_(symmetric, Int8DynamicActivationInt8WeightConfig())
        files["_int_mm"] = exported(symmetric, x)
        cases = [(name, file, []) for name, file in files.items()]
        rules = ["fuse_integer", "multiply_quantised_rows"]
        dynamic = ("PT2E int8", "int8-dynamic", "int4-dynamic", "_int_mm")
        cases += [(f"{name} unfused", files[name], rules) for name in dynamic]
        calls = {}
        for name, file, rules in cases:
            runtime = pteron.Runtime(num_threads=options.threads, disabled_rules=rules)
            calls[name] = pteron.load(file, runtime=runtime).load_method("forward")
        best = dict.fromkeys(calls, float("inf"))
        for _ in range(CALLS):
            for name, method in calls.items():
                start = time.perf_counter()
                method.execute([x.numpy()])
                best[name] = min(best[name], time.perf_counter() - start)
        print(f"{rows} rows: " + ", ".join(f"{name} {1e3 * t:.2f} ms" for name, t in best.items()))


if __name__ == "__main__":
    main()
