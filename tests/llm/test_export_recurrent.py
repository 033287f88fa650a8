"""`pteron.llm.export` of a state-space model: logits and text against eager; a state that cannot go back."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pteron
from pteron.llm import Generator, export
from pteron.llm.export_quantised import quantise
from tests.llm.recipe_folder import RecipeFolder, trained_tokenizer
from tests.llm.tiny_models import mamba

NEW = 64
PROMPT = "The tests of the files"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RecipeFolder:
    """A Mamba with a tokenizer."""
    folder = tmp_path_factory.mktemp("mamba")
    tokenizer = trained_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    model = mamba(vocab_size=tokenizer.get_vocab_size())
    export(model, folder / "out", max_seq_len=96, tokenizer=folder)
    return RecipeFolder(folder / "out", model)


def test_logits_and_the_state(made: RecipeFolder) -> None:
    program = pteron.load(made.folder / "model.pte")
    method = program.load_method()
    ids = torch.randint(3, 500, (1, 70), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = made.model(ids, use_cache=False).logits.numpy()
    limit = 1e-4 * float(np.abs(expected).max())
    for _ in range(2):
        for at in range(ids.shape[1]):
            got = method(ids[:, at : at + 1].numpy(), np.array([at]))
            np.testing.assert_allclose(np.asarray(got)[0, 0], expected[0, at], rtol=0, atol=limit)
        method.reset_state()
    # The same memory for any number of tokens: the width of the convolution and the states of each channel.
    assert {tuple(buffer.shape or ()) for buffer in program.buffers()} == {(1, 64, 4)}
    assert program.run("can_rewind") is False
    assert "get_n_kv_heads" not in program.methods


def test_the_same_text_as_transformers(made: RecipeFolder) -> None:
    generator = Generator(made.folder, threads=1)
    assert generator.folder.can_rewind is False
    expected = []
    for prompt in (PROMPT, PROMPT + " and more", "Another"):
        ids = torch.tensor([generator.tokenizer.encode(prompt)])
        settings: dict[str, Any] = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": None}
        # The first token has the number of the one that pads.
        settings["attention_mask"] = torch.ones_like(ids)
        expected.append(made.model.generate(ids, **settings)[0, ids.shape[1] :].tolist())
        # A prompt with the same beginning as an earlier one: what cannot go back is computed again.
        result = generator.generate(prompt, max_new_tokens=NEW, ignore_eos=True)
        assert list(result.tokens) == expected[-1]
    assert expected[0] != expected[1] != expected[2]


def test_guesses_are_refused(made: RecipeFolder) -> None:
    generator = Generator(made.folder, threads=1)
    with pytest.raises(pteron.InputError, match=r"cannot check several tokens.*a cache that can go back"):
        generator.generate(PROMPT, prompt_lookup_num_tokens=2)
    with pytest.raises(pteron.InputError, match="does not fit into the cache"):
        generator.generate([5] * 97)


def test_scheme(tmp_path: Path) -> None:
    model = mamba(vocab_size=2048, hidden_size=128, initializer_range=0.1)
    quantised = copy.deepcopy(model)
    quantise(quantised, "int8-weight", tmp_path)
    ids = torch.tensor([[5, 9, 77]])
    with torch.no_grad():
        expected, exact = (each(ids, use_cache=False).logits[0, -1] for each in (quantised, model))
    made = export(model, tmp_path, max_seq_len=8, scheme="int8-weight")
    method = pteron.load(made.path).load_method()
    got = [method(ids[:, at : at + 1].numpy(), np.array([at])) for at in range(3)][-1]
    largest = float(exact.abs().max())
    np.testing.assert_allclose(np.asarray(got)[0, 0], expected.numpy(), rtol=0, atol=2e-3 * largest)
    assert 0 < float((expected - exact).abs().max()) < 0.2 * largest
    assert made.file_bytes < 2 * sum(weight.numel() for weight in model.parameters())
