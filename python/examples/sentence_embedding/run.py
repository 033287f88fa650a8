"""Step 3 (no torch): embeds the sentences in a process in which importing torch raises."""

from __future__ import annotations

import argparse
import sys
import time
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec


class RefuseTorch(MetaPathFinder):
    """Makes every import of torch fail, so that the run half cannot lean on it unnoticed."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] == "torch":
            raise ImportError("torch is not allowed in this process")
        return None


sys.meta_path.insert(0, RefuseTorch())

import numpy as np  # noqa: E402
from sentences import SENTENCES  # noqa: E402
from timing import milliseconds_per_item  # noqa: E402
from tokens import SentenceTokenizer  # noqa: E402

import pteron  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="program file")
    parser.add_argument("--model", required=True, help="model folder, for its tokenizer")
    parser.add_argument("--output", required=True, help=".npz file to write")
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()

    started = time.perf_counter()
    program = pteron.load(options.program)
    method = program.load_method("forward", num_threads=options.threads)
    load_milliseconds = (time.perf_counter() - started) * 1e3

    tokenize = SentenceTokenizer(options.model, 256)
    inputs = [tokenize(s) for s in SENTENCES]
    embeddings = np.concatenate([method(*i) for i in inputs])
    times = milliseconds_per_item(lambda i: method(*i), inputs)
    tokens = [i[0].shape[1] for i in inputs]
    np.savez(
        options.output,
        embeddings=embeddings,
        milliseconds=times,
        tokens=tokens,
        load_milliseconds=load_milliseconds,
    )
    if "torch" in sys.modules:
        raise SystemExit("torch was imported after all")


if __name__ == "__main__":
    main()
