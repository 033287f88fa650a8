"""The most anonymous memory of `pteron.llm.export`, beyond what imports took, in that of the file it writes.

    python benches/llm_export_memory.py [--scheme int4-weight] [--layers 24]

The model is Qwen2's of half a billion parameters with random weights, read from a folder. Pages of the
folder's file that are mapped do not count: the system takes them back when it needs them.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path

import torch
from resident import status
from transformers import Qwen2Config, Qwen2ForCausalLM

import pteron.llm


def save_model(folder: Path, layers: int) -> None:
    """Writes the folder of a model of transformers, with a tied table."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=151936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=layers,
        num_attention_heads=14,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        max_position_embeddings=2048,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)


def main() -> None:
    """Measure one export."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scheme", default="int4-weight", help="as `pteron.llm.export` has it, or none")
    parser.add_argument("--layers", type=int, default=24)
    options = parser.parse_args()
    scheme = None if options.scheme == "none" else options.scheme
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        # In a process of its own: what it leaves behind in the heap is none of the export's.
        make = torch.multiprocessing.get_context("spawn").Process(
            target=save_model, args=(model, options.layers)
        )
        make.start()
        make.join()
        if make.exitcode:
            raise SystemExit("the model could not be written")
        before, most, is_done = status("RssAnon"), 0.0, threading.Event()

        def watch() -> None:
            nonlocal most
            while not is_done.wait(0.01):
                most = max(most, status("RssAnon"))

        watcher = threading.Thread(target=watch)
        watcher.start()
        start = time.monotonic()
        try:
            made = pteron.llm.export(model, Path(folder) / "out", max_seq_len=512, scheme=scheme)
        finally:
            seconds = time.monotonic() - start
            is_done.set()
            watcher.join()
    size = made.file_bytes / (1 << 20)
    taken = most - before
    print(f"file {size:.0f} MiB, at most {taken:.0f} MiB anonymous, {taken / size:.2f}x, {seconds:.0f} s")


if __name__ == "__main__":
    main()
