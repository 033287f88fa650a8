"""Steps and time of one token of a language model, beside the time to read its weights.

    python benches/llm_steps.py [--layers 30] [--schemes none int8-weight int4-weight] [--position 100]

A Llama of SmolLM's shape, 135 M parameters at 30 layers, with random weights and a cache of 512 positions.
Each scheme's program runs as it is, and with `fuse_rms_norm` and `fuse_rotary` switched off; the two in turn.
Printed are the steps of a call, the least microseconds of a call over all turns, and what of that is reading
weights: their bytes by the bandwidth that `pteron.devtools.ceiling` measures.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast, get_args

import numpy as np
import torch
from timing import cpu_model
from transformers import LlamaConfig, LlamaForCausalLM

import pteron
from pteron.devtools.ceiling import machine_ceiling
from pteron.devtools.description import describe_plan
from pteron.llm import export
from pteron.llm.export_call import Scheme

CACHE, VOCABULARY, HIDDEN, INNER, HEADS, KEY_HEADS = 512, 49152, 576, 1536, 9, 3
SWITCHED = ("fuse_rms_norm", "fuse_rotary")
TURNS, CALLS = 8, 10
#: Bytes of a weight: a group of 32 weights of four bits has a scale of four bytes.
BYTES = {"none": 4.0, "int8-weight": 1.0, "int4-weight": 0.5 + 4 / 32, "int8-dynamic": 1.0}


def exported(folder: Path, layers: int, scheme: str) -> Path:
    """The program of a model with random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        tie_word_embeddings=True,
    )
    model: Any = LlamaForCausalLM(config)
    model.eval()
    chosen = None if scheme == "none" else cast(Scheme, scheme)
    return export(model, folder, max_seq_len=CACHE, scheme=chosen).path


def weight_bytes(layers: int, scheme: str) -> float:
    """What a token reads; the head has eight bits where layers have four."""
    heads = (2 * HEADS + 2 * KEY_HEADS) * (HIDDEN // HEADS)
    in_layers = layers * HIDDEN * (heads + 3 * INNER)
    head = VOCABULARY * HIDDEN * (1.0 if scheme == "int4-weight" else BYTES[scheme])
    return in_layers * BYTES[scheme] + head


class Model:
    """A program with some rules off, its cache filled up to a position."""

    def __init__(self, path: Path, position: int, threads: int, disabled: tuple[str, ...]) -> None:
        runtime = pteron.Runtime(num_threads=threads, disabled_rules=list(disabled))
        self.program = pteron.load(path, runtime=runtime)
        self.method = self.program.load_method()
        self.inputs: list[Any] = [np.array([[5]]), np.array([position])]
        self.method(np.arange(position)[None] % VOCABULARY, np.arange(position))
        self.steps = len(describe_plan(self.program, "forward").steps)
        self.best = float("inf")

    def turn(self) -> None:
        """Some calls; keeps the least time, in microseconds."""
        for _ in range(CALLS):
            start = time.perf_counter()
            self.method(*self.inputs)
            self.best = min(self.best, (time.perf_counter() - start) * 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--schemes", nargs="+", default=["none", "int8-weight", "int4-weight"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--position", type=int, default=100)
    options = parser.parse_args()
    known = ("none", *get_args(Scheme))
    if unknown := set(options.schemes) - set(known):
        parser.error(f"schemes are {known}, not {sorted(unknown)}")
    reads = machine_ceiling(options.threads).reads
    bandwidth = reads[max(reads)] * 1e9
    print(f"{cpu_model()}, {options.threads} threads, {bandwidth / 1e9:.1f} GB/s")
    print(f"{options.layers} layers, position {options.position} of {CACHE}")
    for scheme in options.schemes:
        with TemporaryDirectory() as folder:
            path = exported(Path(folder), options.layers, scheme)
            models = [Model(path, options.position, options.threads, rules) for rules in ((), SWITCHED)]
            for _ in range(TURNS):
                for model in models:
                    model.turn()
        least = weight_bytes(options.layers, scheme) / bandwidth * 1e6
        for name, model in zip(("as it is", "without " + " and ".join(SWITCHED)), models, strict=True):
            share = f"{least / model.best:4.0%} of it reading weights"
            print(f"{scheme:12} {model.steps:5} steps {model.best:9.0f} us a token, {share}, {name}")


if __name__ == "__main__":
    main()
