"""Step 2 (torch): the same sentences in eager PyTorch, as reference and as peer for the speed."""

from __future__ import annotations

import argparse

import numpy as np
import torch
from model import MAX_TOKENS, load_model
from sentences import SENTENCES
from timing import milliseconds_per_item
from tokens import SentenceTokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="model folder or hub name")
    parser.add_argument("--output", required=True, help=".npz file to write")
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    model = load_model(options.model)
    tokenize = SentenceTokenizer(options.model, MAX_TOKENS)
    inputs = [tuple(torch.from_numpy(a) for a in tokenize(s)) for s in SENTENCES]
    with torch.inference_mode():
        embeddings = np.concatenate([model(*i).numpy() for i in inputs])
        times = milliseconds_per_item(lambda i: model(*i), inputs)
    np.savez(options.output, embeddings=embeddings, milliseconds=times)


if __name__ == "__main__":
    main()
