"""`pteron.llm.export` of encoder-decoders: logits against eager, schemes, and what is refused."""

from __future__ import annotations

import copy
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pteron
import pteron.llm
from pteron.llm.export_quantised import quantise
from tests.llm.tiny_encoder_decoders import FAMILIES, POSITIONS, QUICK, ROWS, VOCABULARY, sources, t5, whisper
from tests.llm.tiny_models import llama
from tests.support.extent import is_full, only_in

CACHE = 72
SOURCE = 24
PROMPT, DECODED = 5, 64
_NAMES = tuple(FAMILIES) if is_full("LLM") else QUICK


def export(model: Any, folder: Path, **settings: Any) -> Any:
    """The folder; a source of texts has `SOURCE` tokens at most."""
    if model.main_input_name == "input_ids":
        settings.setdefault("max_source_len", SOURCE)
    settings.setdefault("max_seq_len", CACHE)
    return pteron.llm.export(model, folder, **settings)


def ids(count: int) -> torch.Tensor:
    """[1, count] of the vocabulary."""
    return torch.randint(3, VOCABULARY, (1, count), generator=torch.Generator().manual_seed(1))


def eager(model: Any, source: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Logits of all tokens."""
    with torch.no_grad():
        logits: torch.Tensor = model(source, decoder_input_ids=tokens, use_cache=False).logits
    return logits


def assert_close(got: Any, expected: torch.Tensor) -> None:
    """Within 1e-4 of the largest."""
    limit = 1e-4 * float(expected.abs().max())
    np.testing.assert_allclose(np.asarray(got), expected.numpy(), rtol=0, atol=limit)


@pytest.mark.parametrize("name", _NAMES)
def test_families(name: str, tmp_path: Path) -> None:
    model = FAMILIES[name]()
    made = export(model, tmp_path, all_logits=True)
    program = pteron.load(made.path)
    methods = program.load_methods(["encode", "forward", "forward_all"])
    tokens = ids(PROMPT + DECODED)
    # A shorter source behind a longer one: rows of the first are not seen any more.
    for rows in (SOURCE, 9, 1):
        source = sources(model, rows)
        expected = eager(model, source, tokens)
        with torch.no_grad():
            hidden = model.get_encoder()(source).last_hidden_state
        assert_close(methods["encode"](source.numpy()), hidden)
        bounds = (0, *range(PROMPT, PROMPT + (DECODED if rows == SOURCE else 2) + 1))
        for begin, end in pairwise(bounds):
            got = methods["forward"](tokens[:, begin:end].numpy(), np.arange(begin, end))
            assert_close(got, expected[:, end - 1 : end])
    # Back to an earlier position, several tokens at once.
    assert_close(methods["forward_all"](tokens[:, 3:9].numpy(), np.arange(3, 9)), expected[:, 3:9])
    # Attention over the tokens and over the source are a step each in every layer; the steps of the decoder
    # that keys and values of the source do not need are not in `encode`.
    assert program.plan_listing("forward").count("plan attention") == 4
    assert program.plan_listing("encode").count("plan attention") == 2
    weights = 4 * sum(parameter.numel() for parameter in model.parameters())
    assert made.file_bytes < weights + 600_000
    again = eager(model, source, tokens)
    assert torch.equal(again, expected), "the caller's model was changed"


@pytest.mark.parametrize(
    ("build", "scheme"),
    [
        pytest.param(
            lambda: t5(vocab_size=2048, d_model=128, d_ff=512, initializer_factor=0.5),
            "int4-weight",
            marks=only_in("LLM"),
        ),
        pytest.param(
            lambda: whisper(vocab_size=2048, d_model=128, decoder_ffn_dim=512, init_std=0.02),
            "int8-weight",
            marks=only_in("LLM"),
        ),
    ],
)
def test_schemes(build: Any, scheme: str, tmp_path: Path) -> None:
    model = build()
    quantised = copy.deepcopy(model)
    quantise(quantised, scheme, tmp_path)
    source, tokens = sources(model, 9), ids(6)
    expected, exact = (eager(each, source, tokens)[:, -1:] for each in (quantised, model))
    made = export(model, tmp_path, scheme=scheme)
    methods = pteron.load(made.path).load_methods(["encode", "forward"])
    methods["encode"](source.numpy())
    got = np.asarray(methods["forward"](tokens.numpy(), np.arange(6)))
    largest = float(exact.abs().max())
    np.testing.assert_allclose(got, expected.numpy(), rtol=0, atol=2e-3 * largest)
    assert float((expected - exact).abs().max()) < 0.3 * largest
    # A byte for each weight at most, a tied table once, scales, convolutions and tables of positions.
    left = sum(weight.numel() for name, weight in model.named_parameters() if "conv" in name)
    size = sum(weight.numel() for weight in model.parameters()) + 3 * left
    assert made.file_bytes < 1.1 * size + 450_000, (made.file_bytes, size)


def test_what_the_folder_states(tmp_path: Path) -> None:
    made = export(t5(num_layers=1), tmp_path, max_seq_len=8)
    found = made.metadata
    assert (found["get_max_seq_len"], found["get_n_layers"], found["get_n_kv_heads"]) == (8, 1, 4)
    assert (found["decoder_start_token_id"], found["get_eos_id"], found["can_rewind"]) == (0, 1, True)
    program = pteron.load(made.path)
    extent = program.inputs("encode")[0].shape[1]
    assert (extent.min, extent.max) == (1, SOURCE)
    assert program.run("decoder_start_token_id") == 0
    # A folder of transformers is opened by the class that its configuration asks for.
    t5(num_layers=1).save_pretrained(tmp_path / "source")
    again = pteron.llm.export(tmp_path / "source", tmp_path / "again", max_seq_len=8, max_source_len=SOURCE)
    assert again.metadata == made.metadata


@pytest.mark.parametrize(
    ("build", "settings", "text"),
    [
        (t5, {"max_source_len": None}, r"max_source_len=\.\.\.\): expected a number from 1 up, got None"),
        (t5, {"max_source_len": 0}, r"max_source_len=\.\.\.\): expected a number from 1 up, got 0"),
        (FAMILIES["bart"], {"max_source_len": POSITIONS + 1}, f"at most {POSITIONS}"),
        (FAMILIES["bart"], {"max_seq_len": POSITIONS + 1}, f"at most {POSITIONS}"),
        (whisper, {"max_source_len": 7}, f"always takes {ROWS} rows"),
        (whisper, {"max_seq_len": POSITIONS + 1}, f"at most {POSITIONS}"),
        (lambda: t5().train(), {}, r"training mode.*call model\.eval\(\)"),
        (lambda: t5().encoder, {}, "no head for the next token"),
        (llama, {"max_source_len": 7}, "only an encoder-decoder has a source"),
    ],
)
def test_what_is_refused(build: Any, settings: dict[str, Any], text: str, tmp_path: Path) -> None:
    model = build()
    if model.main_input_name == "input_ids" and "max_source_len" not in settings:
        settings = {**settings, "max_source_len": SOURCE}
    with pytest.raises((pteron.ExportError, ValueError), match=text):
        pteron.llm.export(model, tmp_path / "out", **{"max_seq_len": 8, **settings})
    assert not (tmp_path / "out").exists()
