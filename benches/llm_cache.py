"""A decoded token behind a long text, with a cache of float32 and of int8 rows: time, and bytes of the cache.

    python benches/llm_cache.py [--length 4000] [--layers 4] [--threads 1] [--rounds 5]

Layers of Qwen2's half billion parameters with random weights of 4 bits and a small vocabulary. Both programs
are open in one process and take turns.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

import pteron
import pteron.llm

TOKENS = 20


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--length", type=int, default=4000, help="tokens before the measured ones")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=1000,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=options.layers,
        num_attention_heads=14,
        num_key_value_heads=2,
        max_position_embeddings=8192,
    )
    model = Qwen2ForCausalLM(config).eval()
    length = options.length + TOKENS
    methods = {}
    with tempfile.TemporaryDirectory() as folder:
        for cache in (None, "int8"):
            place = Path(folder) / str(cache)
            made = pteron.llm.export(model, place, max_seq_len=length, scheme="int4-weight", cache=cache)
            method = pteron.load(made.path).load_method(num_threads=options.threads)
            for begin in range(0, options.length, 500):
                end = min(begin + 500, options.length)
                method(np.full((1, end - begin), 7), np.arange(begin, end))
            methods[cache] = method
    best = dict.fromkeys(methods, float("inf"))
    for _ in range(options.rounds):
        for cache, method in methods.items():
            begun = time.perf_counter()
            for at in range(options.length, length):
                method(np.array([[7]]), np.array([at]))
            best[cache] = min(best[cache], (time.perf_counter() - begun) / TOKENS)
    for cache, method in methods.items():
        size = sum(buffer.nbytes for buffer in method.get_state().values())
        print(f"{cache or 'float32':8} {best[cache] * 1e3:.2f} ms a token, cache {size / (1 << 20):.1f} MiB")
    print(f"int8 takes {best['int8'] / best[None]:.2f}x")


if __name__ == "__main__":
    main()
