"""From a model of transformers to text: what `export` writes, `Generator` opens."""

from __future__ import annotations

from pathlib import Path

import torch

from pteron.llm import Generator, export
from tests.llm.recipe_folder import CACHE, small_llama, trained_tokenizer

_PROMPT = "The tests of the files"
_NEW = 24


def test_the_same_text_as_transformers(tmp_path: Path) -> None:
    tokenizer = trained_tokenizer()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    model = small_llama(tokenizer.get_vocab_size())
    made = export(model, tmp_path / "model", max_seq_len=CACHE, tokenizer=tmp_path, all_logits=True)
    generator = Generator(made.folder, threads=1)
    prompt = tokenizer.encode(_PROMPT).ids
    settings = {"max_new_tokens": _NEW, "do_sample": False, "pad_token_id": 1, "eos_token_id": None}
    expected = model.generate(torch.tensor([prompt]), **settings)[0, len(prompt) :].tolist()
    result = generator.generate(_PROMPT, max_new_tokens=_NEW, ignore_eos=True)
    assert list(result.tokens) == expected
    # Guesses are checked by `forward_all`, on the same cache.
    guessed = generator.generate(_PROMPT, max_new_tokens=_NEW, ignore_eos=True, prompt_lookup_num_tokens=3)
    assert list(guessed.tokens) == expected
