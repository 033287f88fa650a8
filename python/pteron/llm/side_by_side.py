"""Several prompts at a time: sessions side by side over one copy of the weights.

A text that ends makes room for the next prompt at once, so lengths may differ. Each text is the one that
`Generator.generate` gives alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from pteron.llm.generation_result import GenerationResult
from pteron.llm.token_stream import TokenStream


def available_threads() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def generate_all(
    begin: Callable[[list[int]], TokenStream], prompts: Sequence[list[int]], at_once: int
) -> list[GenerationResult]:
    """The result of each prompt in order, `at_once` of them at a time; `begin` makes the stream of one.

    The first error is raised when the texts beside it have ended; prompts behind it are not begun.
    """
    running: set[TokenStream] = set()
    lock = threading.Lock()
    is_over = threading.Event()

    def stop() -> None:
        is_over.set()
        with lock:
            for stream in running:
                stream.cancel()

    def one(tokens: list[int]) -> GenerationResult | None:
        if is_over.is_set():
            return None
        stream = begin(tokens)
        with lock:
            running.add(stream)
        # Between the question above and here, another text may have failed.
        if is_over.is_set():
            stream.cancel()
        try:
            return stream.result
        except BaseException:
            stop()
            raise
        finally:
            with lock:
                running.discard(stream)

    with ThreadPoolExecutor(at_once, thread_name_prefix="pteron-llm") as executor:
        futures: list[Future[GenerationResult | None]] = [executor.submit(one, each) for each in prompts]
        try:
            found = [each.result() for each in futures]
        except BaseException:
            stop()
            raise
    return [each for each in found if each is not None]
