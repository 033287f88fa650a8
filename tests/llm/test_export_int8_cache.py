"""`pteron.llm.export(cache="int8")`: keys and values in 8 bits, read by attention as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pteron
from pteron.errors import ExportError
from pteron.llm import Generator, export
from pteron.llm.export_cache import as_int8, quantised_rows
from pteron.llm.export_model import _prepared, _probed, _WithCache
from tests.llm.recipe_folder import trained_tokenizer
from tests.llm.tiny_encoder_decoders import t5
from tests.llm.tiny_models import FAMILIES, VOCABULARY, llama
from tests.support.extent import only_in

LENGTH = 48
TOKENS = 30


def _ids() -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (1, TOKENS), generator=torch.Generator().manual_seed(1))


def _in_eager(model: Any, *, is_int8: bool) -> torch.Tensor:
    """Logits of the last of some tokens: a prompt, then token by token."""
    with torch.no_grad():
        prepared = _prepared(model, LENGTH, None)
        layers = [None] * model.config.num_hidden_layers
        buffers = _probed(prepared, 1, LENGTH, layers)
        module = _WithCache(prepared, as_int8(buffers) if is_int8 else buffers, LENGTH, 1)
        for at in _calls():
            logits = module(_ids()[:, at], torch.arange(TOKENS)[at])
    return logits


def _calls() -> list[slice]:
    return [slice(0, 20), *(slice(at, at + 1) for at in range(20, TOKENS))]


def _logits(method: Any) -> np.ndarray[Any, Any]:
    for at in _calls():
        logits = method(_ids().numpy()[:, at], np.arange(TOKENS)[at])
    return np.asarray(logits)


def test_logits_are_those_of_eager_with_the_same_cache(tmp_path: Path) -> None:
    model = llama()
    made = export(model, tmp_path, max_seq_len=LENGTH, cache="int8")
    program = pteron.load(made.path)
    expected, exact = (_in_eager(model, is_int8=is_int8).numpy() for is_int8 in (True, False))
    got = _logits(program.load_method())
    largest = float(np.abs(exact).max())
    # A key that is near the middle of two integers may become either, as its product is rounded.
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-3 * largest)
    assert 0 < float(np.abs(expected - exact).max()) < 0.1 * largest
    layers = model.config.num_hidden_layers
    kernels = program.kernels()
    assert sum(kernel.startswith("attention.int8") for kernel in kernels) == layers, kernels
    buffers = {spec.name: spec for spec in program.buffers()}
    assert buffers.keys() == {
        f"{part}_{layer}"
        for part in ("key", "value", "key_factor", "value_factor")
        for layer in range(layers)
    }
    assert buffers["key_0"].dtype == buffers["value_0"].dtype == "int8"
    assert buffers["key_factor_0"].shape == (*buffers["key_0"].shape[:3], 1)


def test_rows_are_symmetric_and_zeros_stay() -> None:
    rows = torch.tensor([[[[1.0, -2.0, 0.5], [0.0, 0.0, 0.0], [1e-42, 0.0, 0.0], [127.0, 63.4, -63.6]]]])
    found, factors = quantised_rows(rows)
    assert found.dtype == torch.int8
    assert factors.shape == (1, 1, 4, 1)
    assert found[0, 0].tolist()[:2] == [[64, -127, 32], [0, 0, 0]]
    assert found[0, 0, 3].tolist() == [127, 63, -64]
    assert float((found * factors - rows).abs().max()) <= 0.5


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, marks=only_in("LLM")),
        pytest.param({"max_chunk": 8}, marks=only_in("LLM")),
        {"ragged": True},
        pytest.param({"scheme": "int4-weight"}, marks=only_in("LLM")),
    ],
)
def test_texts_come_out_whatever_the_chunks(settings: dict[str, Any], tmp_path: Path) -> None:
    tokenizer = trained_tokenizer()
    model = llama(vocab_size=tokenizer.get_vocab_size(), initializer_range=0.3)
    source = tmp_path / "source"
    source.mkdir()
    tokenizer.save(str(source / "tokenizer.json"))
    folder = tmp_path / "model"
    export(model, folder, max_seq_len=LENGTH, tokenizer=source, cache="int8", all_logits=True, **settings)
    prompt = list(range(10, 30))
    whole = Generator(folder, threads=1).generate(prompt, max_new_tokens=12, ignore_eos=True)
    pieces = Generator(folder, threads=2, prefill_chunk=3)
    assert pieces.generate(prompt, max_new_tokens=12, ignore_eos=True).tokens == whole.tokens
    assert len(set(whole.tokens)) > 3
    # The cache goes back to a common beginning.
    again = pieces.generate([*prompt[:10], 7, 8], max_new_tokens=4, ignore_eos=True)
    assert again.reused_tokens == 10
    if "ragged" in settings:
        texts = pieces.generate_batch([prompt, prompt[:5]], max_new_tokens=6, ignore_eos=True)
        assert texts[0].tokens == whole.tokens[:6]


def test_layers_with_a_window_keep_rings_of_int8(tmp_path: Path) -> None:
    model = FAMILIES["mistral"]()
    logits = []
    for name, chunk in (("ring", 4), ("whole", None)):
        made = export(model, tmp_path / name, max_seq_len=LENGTH, cache="int8", max_chunk=chunk)
        program = pteron.load(made.path)
        rows = {buffer.shape[2] for buffer in program.buffers() if buffer.dtype == "int8"}
        assert rows == {LENGTH if chunk is None else model.config.sliding_window + chunk - 1}
        method = program.load_method()
        for begin in range(0, TOKENS - 2, 4):
            ids = _ids().numpy()[:, begin : begin + 4]
            got = method(ids, np.arange(begin, begin + 4))
        logits.append(np.asarray(got))
    np.testing.assert_allclose(logits[0], logits[1], rtol=0, atol=2e-3 * np.abs(logits[1]).max())


def test_what_cannot_have_such_a_cache_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r'cache=\.\.\.\): expected "int8"'):
        export(llama(), tmp_path, max_seq_len=LENGTH, cache="int4")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="for decoders"):
        export(t5(), tmp_path, max_seq_len=LENGTH, max_source_len=8, cache="int8")
    with pytest.raises(ExportError, match="bfloat16"):
        export(llama(), tmp_path, max_seq_len=LENGTH, cache="int8", dtype="bfloat16")
