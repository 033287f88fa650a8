"""From a model to text by the two halves: what `pteron.llm.export` writes, `Generator` reads."""

from __future__ import annotations

from pathlib import Path

import pytest

import pteron.llm
from tests.llm.recipe_folder import RecipeFolder
from tests.llm.test_generator import PROMPT, transformers_text
from tests.support.extent import only_in

MAX = 80


@pytest.fixture(scope="module")
def exported(recipe: RecipeFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe's model, exported in one call, with logits of all positions as a second method."""
    folder = tmp_path_factory.mktemp("exported")
    pteron.llm.export(
        recipe.model, str(folder), max_seq_len=MAX, tokenizer=str(recipe.folder), all_logits=True
    )
    return folder


def test_greedy_is_that_of_transformers(recipe: RecipeFolder, exported: Path) -> None:
    generator = pteron.llm.Generator(exported, threads=1, prefill_chunk=4)
    assert generator.max_seq_len == MAX
    assert generator.folder.eos_ids == {1}
    assert generator.folder.can_rewind
    tokens = generator.tokenizer.encode(PROMPT)
    expected = transformers_text(recipe, tokens, 40)
    assert list(generator.generate(PROMPT, max_new_tokens=40).tokens) == expected
    fast = generator.generate(PROMPT, max_new_tokens=40, prompt_lookup_num_tokens=4)
    assert list(fast.tokens) == expected
    assert fast.proposed_tokens > 0


def test_both_methods_have_one_cache(exported: Path, copied: Path) -> None:
    plain = pteron.llm.Generator(exported)
    fast = pteron.llm.Generator(exported, draft=copied)
    settings = {"max_new_tokens": 40, "ignore_eos": True, "temperature": 0.9, "seed": 2}
    result = fast.generate(PROMPT, **settings)
    assert result.tokens == plain.generate(PROMPT, **settings).tokens
    assert result.accepted_tokens > 0


def test_conversations_travel(exported: Path, tmp_path: Path) -> None:
    generator = pteron.llm.Generator(exported)
    chat = generator.conversation("Be brief.", max_new_tokens=6, ignore_eos=True)
    chat.send("Why?")
    chat.save(tmp_path / "chat.bin")
    restored = generator.restore(tmp_path / "chat.bin", max_new_tokens=6, ignore_eos=True)
    assert restored.send("And then?").tokens == chat.send("And then?").tokens


@only_in("LLM")
def test_rings_are_computed_again_where_they_cannot_go_back(recipe: RecipeFolder, tmp_path: Path) -> None:
    import torch
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    ends = {"bos_token_id": 0, "eos_token_id": 1, "num_key_value_heads": 2, "initializer_range": 0.4}
    vocabulary = recipe.model.config.vocab_size
    model = MistralForCausalLM(MistralConfig(vocab_size=vocabulary, sliding_window=8, **sizes, **ends)).eval()
    for name, chunk in (("ring", {"max_chunk": 4}), ("whole", {})):
        pteron.llm.export(model, tmp_path / name, max_seq_len=MAX, tokenizer=str(recipe.folder), **chunk)
    ring, whole = (pteron.llm.Generator(tmp_path / name, threads=1) for name in ("ring", "whole"))
    assert (ring.max_seq_len, ring.folder.signature.chunk, ring.folder.can_rewind) == (MAX, 4, False)
    settings = {"max_new_tokens": 30, "ignore_eos": True}
    for prompt in (PROMPT, PROMPT + " and more", PROMPT):
        assert ring.generate(prompt, **settings).tokens == whole.generate(prompt, **settings).tokens
    chats = [generator.conversation("Be brief.", **settings) for generator in (ring, whole)]
    for said in ("Why?", "So?"):
        answers = [chat.send(said, max_new_tokens=6) for chat in chats]
        assert answers[0].tokens == answers[1].tokens
    with pytest.raises(pteron.InputError, match="cannot check several tokens"):
        ring.generate(PROMPT, prompt_lookup_num_tokens=4)
