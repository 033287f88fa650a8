"""Models in bfloat16 and float16 beside float32, in one process, call by call in turn.

    python benches/sixteen_bit.py [--threads 1] [--seconds 2] [--models linears llama]

`linears` is 24 x Linear(1024, 1024) at 1, 4, 16 and 128 rows; `llama` a Llama of 65 M weights that decodes a
token behind 128 others and takes a prompt of 128 (needs transformers). Printed: the median of each in
milliseconds, and how many times faster than float32 the 16-bit models are.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from timing import cpu_model

import pteron
from pteron.exir import to_edge

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
#: Positions in the cache of the decoder, and how many of them the prompt takes.
CACHE, PROMPT = 256, 128
#: Label → what is timed, one call of each element type by its name.
Cases = dict[str, dict[str, Callable[[], object]]]


def _load(exported: torch.export.ExportedProgram, threads: int) -> pteron.Method:
    buffer = to_edge(exported).to_executorch().buffer
    return pteron.load(buffer, runtime=pteron.Runtime(num_threads=threads)).load_method("forward")


def linears(threads: int) -> Cases:
    """Layers of a model that reads every weight once."""
    cases: Cases = {f"linears, {rows} rows": {} for rows in (1, 4, 16, 128)}
    rows = torch.export.Dim("rows", min=1, max=128)
    for name, dtype in DTYPES.items():
        layers = (torch.nn.Linear(1024, 1024) for _ in range(24))
        model = torch.nn.Sequential(*layers).eval().to(dtype)
        example = (torch.randn(8, 1024, dtype=dtype),)
        method = _load(torch.export.export(model, example, dynamic_shapes=({0: rows},)), threads)
        for label, count in zip(cases, (1, 4, 16, 128), strict=True):
            x = torch.randn(count, 1024, dtype=dtype)
            cases[label][name] = lambda method=method, x=x: method.execute([x])
    return cases


def llama(threads: int) -> Cases:
    """A decoder with a static cache."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.integrations.executorch import TorchExportableModuleForDecoderOnlyLM

    cases: Cases = {"llama, a token": {}, f"llama, {PROMPT} tokens": {}}
    for name, dtype in DTYPES.items():
        config = LlamaConfig(
            vocab_size=32000, hidden_size=512, num_hidden_layers=10, num_attention_heads=8,
            num_key_value_heads=4, intermediate_size=1408, max_position_embeddings=512, dtype=dtype,
        )  # fmt: skip
        model = LlamaForCausalLM(config).to(dtype).eval()
        model.generation_config.use_cache = True
        model.generation_config.cache_implementation = "static"
        decoder = TorchExportableModuleForDecoderOnlyLM(model, batch_size=1, max_cache_len=CACHE).model.eval()
        length = torch.export.Dim("tokens", min=1, max=PROMPT)
        inputs = {"input_ids": torch.ones(1, 16, dtype=torch.int64), "cache_position": torch.arange(16)}
        shapes = {"input_ids": {1: length}, "cache_position": {0: length}}
        with torch.no_grad():
            exported = torch.export.export(decoder, (), inputs, dynamic_shapes=shapes, strict=True)
        method = _load(exported, threads)
        prompt = [torch.randint(5, 32000, (1, PROMPT)), torch.arange(PROMPT)]
        token = [torch.randint(5, 32000, (1, 1)), torch.tensor([PROMPT])]
        for label, arguments in zip(cases, (token, prompt), strict=True):
            cases[label][name] = lambda method=method, arguments=arguments: method.execute(arguments)
    return cases


def medians(calls: dict[str, Callable[[], object]], seconds: float) -> Iterator[float]:
    """Milliseconds of each call, all in turn."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["float32"]) < 5:
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - start) * 1e3)
    return (statistics.median(values) for values in times.values())


def main() -> None:
    """Times and prints."""
    models = {"linears": linears, "llama": llama}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(models), choices=models)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    print(f"{cpu_model()}, {arguments.threads} threads")
    for model in arguments.models:
        for label, calls in models[model](arguments.threads).items():
            plain, brain, binary = medians(calls, arguments.seconds)
            print(
                f"{label:<20} float32 {plain:8.3f} ms   bfloat16 {brain:8.3f} ms {plain / brain:5.2f}x"
                f"   float16 {binary:8.3f} ms {plain / binary:5.2f}x"
            )


if __name__ == "__main__":
    main()
