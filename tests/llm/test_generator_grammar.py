"""Texts that follow a schema or grammar, whatever the model would say."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest

from pteron.errors import InputError
from pteron.llm import Generator
from tests.llm.recipe_folder import RecipeFolder

PROMPT = "Every step"
SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["first", "second"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
        "done": {"type": "boolean"},
    },
    "required": ["kind", "count", "done"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("settings", [{}, *({"temperature": 1.3, "seed": seed} for seed in range(6))])
def test_texts_follow_a_schema(generator: Generator, settings: dict[str, Any]) -> None:
    for schema in (SCHEMA, json.dumps(SCHEMA)):
        result = generator.generate(PROMPT, max_new_tokens=70, json_schema=schema, **settings)
        assert result.finish_reason == "stop"
        found = json.loads(result.text)
        assert list(found) == ["kind", "count", "done"]
        assert found["kind"] in ("first", "second")
        assert 0 <= found["count"] <= 99


def test_texts_follow_a_grammar(generator: Generator) -> None:
    grammar = 'start: "<" word ("," word)? ">"\nword: /[a-f]{2,4}/'
    texts = {
        generator.generate(PROMPT, max_new_tokens=40, grammar=grammar, temperature=1.5, seed=seed).text
        for seed in range(5)
    }
    assert len(texts) > 1
    assert all(re.fullmatch(r"<[a-f]{2,4}(,[a-f]{2,4})?>", text) for text in texts)


def test_guesses_keep_to_the_grammar(generator: Generator) -> None:
    prompt = '{"kind":"first","count":1,"done":true} {"kind":"first'
    plain = generator.generate(prompt, max_new_tokens=60, json_schema=SCHEMA)
    fast = generator.generate(prompt, max_new_tokens=60, json_schema=SCHEMA, prompt_lookup_num_tokens=4)
    assert fast.tokens == plain.tokens


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"json_schema": {"type": "nonsense"}}, "cannot be followed.*nonsense"),
        ({"json_schema": "{"}, "cannot be followed"),
        ({"grammar": "start: nowhere"}, "cannot be followed"),
        ({"grammar": 'start: "a"', "json_schema": {}}, "one schema or one grammar"),
        ({"json_schema": {}, "ignore_eos": True}, "to its end"),
    ],
)
def test_mistakes(generator: Generator, settings: dict[str, Any], text: str) -> None:
    expected = generator.generate(PROMPT, max_new_tokens=5).tokens
    with pytest.raises(InputError, match=text):
        generator.generate(PROMPT, **settings)
    assert generator.generate(PROMPT, max_new_tokens=5).tokens == expected


def test_the_package_is_optional(recipe: RecipeFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    generator = Generator(recipe.folder)
    assert generator.generate(PROMPT, max_new_tokens=2).tokens
    with pytest.raises(ImportError, match=r'pip install "pteron\[grammar\]"'):
        generator.generate(PROMPT, json_schema={})
