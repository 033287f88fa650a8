"""Tokens a second of four prompts of other lengths side by side against one: `Generator.generate_batch`.

    python benches/llm_sequences.py [MODEL ...] [--schemes int4] [--engine "pteron dynamic"] [--shared]

Models, schemes and engines are those of `llm_speed.py`. One process times both in turns, prompts included:
four texts one behind another with all threads, then side by side; with `--shared` in one cache, whose calls
compute the tokens of all of them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from llm_models import BITS, SHAPES, make_pteron, write_weights
from llm_speed import prompt
from results import Tables, add_json_option
from timing import cpu_model

COLUMNS = ("model", "scheme", "threads", "one, tok/s", "four, tok/s", "ratio", "load of the machine")
_LENGTHS = (16, 40, 64, 96)


def measured(folder: Path, options: argparse.Namespace) -> tuple[float, float]:
    """Tokens a second of texts one behind another, and side by side; medians."""
    from pteron.llm import Generator

    generator = Generator(folder, threads=options.threads, idle_caches=options.parallel)
    settings = {"max_new_tokens": options.tokens, "ignore_eos": True}
    at_once = len(_LENGTHS) if options.shared else options.parallel
    alone, beside = [], []
    for pair in range(options.pairs + 1):
        prompts = [prompt(length, 10 * pair + place) for place, length in enumerate(_LENGTHS)]
        begin = time.perf_counter()
        expected = [generator.generate(each, **settings).tokens for each in prompts]
        middle = time.perf_counter()
        found = generator.generate_batch(prompts, parallel=at_once, **settings)
        end = time.perf_counter()
        # In one cache sums have another order, and random weights make tokens that are as likely as others.
        same = [len(each.tokens) for each in found] if options.shared else [each.tokens for each in found]
        assert same == ([len(each) for each in expected] if options.shared else expected)
        # The first pair makes the caches.
        if pair > 0:
            count = len(prompts) * options.tokens
            alone.append(count / (middle - begin))
            beside.append(count / (end - middle))
    return statistics.median(alone), statistics.median(beside)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(SHAPES))
    parser.add_argument("--schemes", nargs="+", default=["int4"], choices=list(BITS))
    parser.add_argument("--engine", default="pteron", choices=["pteron", "pteron dynamic"])
    parser.add_argument("--shared", action="store_true", help="programs with `forward_ragged`")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--parallel", type=int, default=2, help="texts at a time, each with a cache of its own"
    )
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--files", type=Path, help="where llm_speed.py keeps its models")
    add_json_option(parser)
    options = parser.parse_args()
    print(cpu_model())
    print(" | ".join(COLUMNS))
    tables = Tables()
    tables.begin(COLUMNS)
    with tempfile.TemporaryDirectory() as temporary:
        base = options.files or Path(temporary)
        for name in options.models or ["135m"]:
            weights = base / name / "weights"
            if not (weights / "config.json").exists():
                weights.mkdir(parents=True, exist_ok=True)
                write_weights(weights, name)
            for scheme in options.schemes:
                kind = f"{options.engine} shared" if options.shared else options.engine
                folder = base / name / f"{kind.replace(' ', '_')}-{scheme}"
                if not (folder / "model.pte").exists():
                    make_pteron(weights, folder, scheme, kind)
                load = f"{os.getloadavg()[0]:.1f}"
                one, four = measured(folder, options)
                cells = [
                    name,
                    scheme,
                    options.threads,
                    f"{one:.1f}",
                    f"{four:.1f}",
                    f"{four / one:.2f}x",
                    load,
                ]
                print(" | ".join(map(str, cells)), flush=True)
                tables.row(*cells)
    tables.save(options)


if __name__ == "__main__":
    main()
