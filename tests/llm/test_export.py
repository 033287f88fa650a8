"""`pteron.llm.export`: every family's logits against eager, whole prompts, chunks and single tokens."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pteron
from pteron.llm import export
from tests.llm.tiny_models import FAMILIES, QUICK, VOCABULARY, WINDOW, llama
from tests.support.extent import is_full

CACHE = 96
PROMPT = 2 * WINDOW + 3
DECODED = 64
_NAMES = tuple(FAMILIES) if is_full("LLM") else QUICK


def tokens(count: int) -> torch.Tensor:
    """[1, count] of the vocabulary."""
    return torch.randint(3, VOCABULARY, (1, count), generator=torch.Generator().manual_seed(1))


def step(method: pteron.Method, ids: torch.Tensor, begin: int, end: int) -> Any:
    """Logits [1, 1, vocabulary] of a call with the tokens `begin` to `end`."""
    return method(ids[:, begin:end].numpy(), np.arange(begin, end))


def assert_close(got: Any, expected: torch.Tensor) -> None:
    """Within 1e-4 of the largest logit."""
    limit = 1e-4 * float(expected.abs().max())
    np.testing.assert_allclose(np.asarray(got), expected.numpy(), rtol=0, atol=limit)


@pytest.mark.parametrize("name", _NAMES)
def test_families(name: str, tmp_path: Path) -> None:
    model = FAMILIES[name]()
    ids = tokens(PROMPT + DECODED)
    with torch.no_grad():
        expected = model(ids, use_cache=False).logits
    made = export(model, tmp_path, max_seq_len=CACHE)
    program = pteron.load(made.path)
    method = program.load_method()
    # A prompt longer than the window, then token by token.
    assert_close(step(method, ids, 0, PROMPT), expected[:, PROMPT - 1 : PROMPT])
    for at in range(PROMPT, PROMPT + DECODED):
        assert_close(step(method, ids, at, at + 1), expected[:, at : at + 1])
    # Another session has a cache of its own, and takes the same tokens in chunks.
    chunked = program.load_method()
    bounds = (0, 5, 6, 6 + 2 * WINDOW, PROMPT + DECODED)
    for begin, end in pairwise(bounds):
        assert_close(step(chunked, ids, begin, end), expected[:, end - 1 : end])
    # Back to an earlier position: rows behind it are not seen.
    assert_close(step(chunked, ids, 6, 9), expected[:, 8:9])
    assert program.run("get_vocab_size") == VOCABULARY
    with torch.no_grad():
        again = model(ids, use_cache=False).logits
    assert torch.equal(again, expected), "the caller's model was changed"


def test_all_logits_share_the_cache_and_the_folder_is_whole(tmp_path: Path) -> None:
    model = llama()
    source = tmp_path / "source"
    model.save_pretrained(source)
    (source / "tokenizer.json").write_text("{}")
    (source / "tokenizer.model").write_bytes(b"pieces")
    made = export(source, tmp_path / "out", max_seq_len=CACHE, all_logits=True)
    assert {path.name for path in made.folder.iterdir()} == {
        "model.pte",
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer.model",
    }
    assert json.loads((made.folder / "config.json").read_text())["model_type"] == "llama"
    program = pteron.load(made.path)
    stated = {name: program.run(name) for name in program.methods if name.startswith(("get_", "use_"))}
    assert stated["get_max_seq_len"] == CACHE
    assert stated["get_eos_id"] == 2
    assert stated["get_bos_id"] == 1
    assert stated["get_max_context_len"] == stated["get_max_seq_len"]
    assert (stated["get_n_layers"], stated["get_n_kv_heads"], stated["get_head_dim"]) == (2, 2, 8)
    assert stated["use_kv_cache"] is True
    assert stated["get_dtype"] == 6
    ids = tokens(PROMPT + 4)
    with torch.no_grad():
        expected = model(ids, use_cache=False).logits
    methods = program.load_methods(["forward", "forward_all"])
    step(methods["forward"], ids, 0, PROMPT)
    assert_close(step(methods["forward_all"], ids, PROMPT, PROMPT + 4), expected[:, PROMPT:])
    # One step for the attention of each layer: no copy of the cache, no keys for each head.
    assert program.plan_listing("forward").count("plan attention") == 2
    # Weights are there once.
    weights = 4 * sum(parameter.numel() for parameter in model.parameters())
    assert made.file_bytes < weights + 4 * 2 * 2 * 2 * CACHE * 8 + 500_000
    # More tokens than the cache has rows.
    with pytest.raises(pteron.InputError):
        methods["forward"](np.zeros((1, CACHE + 1), np.int64), np.arange(CACHE + 1))
    assert_close(step(methods["forward"], ids, 0, PROMPT), expected[:, PROMPT - 1 : PROMPT])


RING_NAMES = [name for name in ("gemma2", "gemma3", "mistral") if name in _NAMES] or ["gemma2"]
CHUNK = 5


@pytest.mark.parametrize("name", RING_NAMES)
def test_layers_with_a_window_keep_a_ring(name: str, tmp_path: Path) -> None:
    model = FAMILIES[name]()
    ids = tokens(PROMPT + DECODED)
    with torch.no_grad():
        expected = model(ids, use_cache=False).logits
    made = export(model, tmp_path, max_seq_len=CACHE, max_chunk=CHUNK)
    program = pteron.load(made.path)
    rows = WINDOW + CHUNK - 1
    extents = [spec.shape[2] for spec in program.buffers("forward") if len(spec.shape) == 4]
    kinds = getattr(model.config, "layer_types", None) or ["sliding_attention"] * 2
    assert sorted(extents) == sorted(2 * [rows if kind == "sliding_attention" else CACHE for kind in kinds])
    assert (program.run("get_max_seq_len"), program.run("get_max_context_len")) == (CHUNK, CACHE)
    method = program.load_method()
    # Chunks of all lengths, so that calls begin and end at every row of the ring; the ring wraps many times.
    begin = 0
    for length in [CHUNK, 1, 3, CHUNK, 2, CHUNK, CHUNK, 4, *[1] * 2 * rows, CHUNK, CHUNK, *[1] * 4]:
        end = begin + length
        assert_close(step(method, ids, begin, end), expected[:, end - 1 : end])
        begin = end
    assert begin > 4 * rows
    with pytest.raises(pteron.InputError):
        step(method, ids, begin, begin + CHUNK + 1)
