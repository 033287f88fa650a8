"""One way to call every engine of `llm_speed.py`: a prompt in, tokens out, with the seconds of both."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_models import CONTEXT


@dataclass(frozen=True)
class Generated:
    """Seconds until the first token, seconds of the others, and all of them."""

    first: float
    others: float
    tokens: list[int]


#: A prompt and the number of tokens → what was generated; every call begins with an empty cache.
Generate = Callable[[Sequence[int], int], Generated]


def _timed(first: Callable[[], int], after: Callable[[int], int], count: int) -> Generated:
    """The loop of an engine that has none: the first token, then each from the one before."""
    begin = time.perf_counter()
    tokens = [first()]
    middle = time.perf_counter()
    while len(tokens) < count:
        tokens.append(after(tokens[-1]))
    return Generated(middle - begin, time.perf_counter() - middle, tokens)


def open_pteron(folder: Path, threads: int) -> Generate:
    """`pteron.llm.Generator`."""
    from pteron.llm import Generator

    generator = Generator(folder, threads=threads, prefill_chunk=CONTEXT, idle_caches=1)

    def generate(prompt: Sequence[int], count: int) -> Generated:
        found = generator.generate(list(prompt), max_new_tokens=count, ignore_eos=True)
        assert found.reused_tokens == 0
        return Generated(found.timings.first_token, found.timings.decode, list(found.tokens))

    return generate


def open_llama_cpp(folder: Path, threads: int) -> Generate:
    """llama.cpp's own calls with their defaults; the batch takes the whole prompt."""
    import ctypes

    import llama_cpp
    import numpy as np

    llama_cpp.llama_backend_init()
    model_settings = llama_cpp.llama_model_default_params()
    model = llama_cpp.llama_model_load_from_file(str(folder / "model.gguf").encode(), model_settings)
    assert model
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = settings.n_batch = CONTEXT
    settings.n_threads = settings.n_threads_batch = threads
    context = llama_cpp.llama_init_from_model(model, settings)
    assert context
    size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))

    def call(tokens: Sequence[int]) -> int:
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        code = llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(array, len(tokens)))
        assert code == 0, code
        logits = llama_cpp.llama_get_logits_ith(context, -1)
        return int(np.argmax(np.ctypeslib.as_array(ctypes.cast(logits, type(logits)), (size,))))

    def generate(prompt: Sequence[int], count: int) -> Generated:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        return _timed(lambda: call(prompt), lambda token: call([token]), count)

    return generate


def open_onnxruntime(folder: Path, threads: int) -> Generate:
    """ONNX Runtime GenAI."""
    import json

    import numpy as np
    import onnxruntime_genai as genai

    config = genai.Config(str(folder))
    options = {"session_options": {"intra_op_num_threads": threads}}
    config.overlay(json.dumps({"model": {"decoder": options}}))
    model = genai.Model(config)

    def generate(prompt: Sequence[int], count: int) -> Generated:
        parameters = genai.GeneratorParams(model)
        length = len(prompt) + count
        parameters.set_search_options(do_sample=False, max_length=length, min_length=length)
        generator = genai.Generator(model, parameters)

        def first() -> int:
            generator.append_tokens(np.asarray([prompt], np.int32))
            return after(0)

        def after(_: int) -> int:
            generator.generate_next_token()
            return int(generator.get_next_tokens()[0])

        return _timed(first, after, count)

    return generate


def open_openvino(folder: Path, threads: int) -> Generate:
    """OpenVINO GenAI's pipeline over the GGUF file."""
    import numpy as np
    import openvino
    import openvino_genai

    settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
    pipeline = openvino_genai.LLMPipeline(str(folder / "model.gguf"), "CPU", **settings)
    config = openvino_genai.GenerationConfig()
    config.ignore_eos, config.do_sample = True, False

    def generate(prompt: Sequence[int], count: int) -> Generated:
        config.max_new_tokens = count
        ids = openvino.Tensor(np.asarray([prompt], np.int64))
        times: list[float] = []
        begin = time.perf_counter()
        found = pipeline.generate(ids, config, _watch(times))
        return Generated(times[0] - begin, times[-1] - times[0], list(found.tokens[0]))

    return generate


def _watch(times: list[float]) -> Any:
    """A streamer that notes when tokens come."""
    import openvino_genai

    class Watch(openvino_genai.StreamerBase):  # type: ignore[misc]
        def write(self, _token: object) -> Any:
            times.append(time.perf_counter())
            return openvino_genai.StreamingStatus.RUNNING

        def end(self) -> None:
            return None

    return Watch()


OPEN: dict[str, Callable[[Path, int], Generate]] = {
    "pteron": open_pteron,
    "pteron packed": open_pteron,
    "pteron dynamic": open_pteron,
    "llama.cpp": open_llama_cpp,
    "onnxruntime": open_onnxruntime,
    "openvino": open_openvino,
}
