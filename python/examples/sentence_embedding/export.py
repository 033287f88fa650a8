"""Step 1 (torch): exports the sentence encoder with a dynamic sequence length and saves the program."""

from __future__ import annotations

import argparse
import sys
import time

import torch
from model import MAX_TOKENS, check_pooling, example_inputs, load_model

from pteron.exir import to_edge


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="model folder or hub name")
    parser.add_argument("--output", required=True, help="program file to write")
    options = parser.parse_args()

    started = time.perf_counter()

    def step(text: str) -> None:
        print(f"      {time.perf_counter() - started:5.1f} s  {text}", file=sys.stderr, flush=True)

    check_pooling(options.model)
    step("loading the weights")
    model = load_model(options.model)
    step("torch.export with a sequence length of 1 to 256")
    tokens = torch.export.Dim("tokens", min=1, max=MAX_TOKENS)
    with torch.no_grad():
        exported = torch.export.export(
            model,
            example_inputs(),
            dynamic_shapes={"input_ids": {1: tokens}, "attention_mask": {1: tokens}},
        )
    step("to_edge: core ATen, edge operators")
    edge = to_edge(exported)
    step("to_executorch: out variants, memory plan, emit")
    program = edge.to_executorch()
    step(f"writing {options.output}")
    program.save(options.output)
    step("done")


if __name__ == "__main__":
    main()
