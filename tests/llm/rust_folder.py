"""The folder that `rust/pteron-llm` is tested with, and what `pteron.llm.Generator` makes of it.

python -m tests.llm.rust_folder          writes the folder and the expected texts anew
python -m tests.llm.rust_folder texts    the expected texts alone
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.llm.recipe_folder import ROOT, SPECIAL

FOLDER = ROOT / "rust" / "pteron-llm" / "tests" / "folder"
EXPECTED = FOLDER / "expected.json"
CACHE = 64
TEMPLATE = """{{ bos_token }}
{%- for message in messages %}
    {%- if message.role not in ['system', 'user', 'assistant'] %}
        {{- raise_exception('no such role: ' + message.role) }}
    {%- endif %}
    {{- '<|' + message['role'] + '|>' + message['content'].strip() }}
    {%- if message['role'] == 'assistant' %}
        {%- generation %}{{ eos_token }}{% endgeneration %}
    {%- endif %}
    {%- if message.tool_calls is defined %}
        {{- message.tool_calls | tojson }}
    {%- endif %}
{%- endfor %}
{%- if tools %}
{{ tools | tojson(indent=2) }}
{%- endif %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}
"""
CHAT = [{"role": "user", "content": " a notice? "}, {"role": "assistant", "content": "The License"}]
CALLS = [{"role": "user", "content": "é", "tool_calls": [{"name": "f", "arguments": {"b": 1, "a": [2.5]}}]}]
TOOLS = {"tools": [{"type": "function", "function": {"name": "f"}}]}

#: A prompt and settings of `generate` each.
CASES: list[tuple[Any, dict[str, Any]]] = [
    ("the License", {"do_sample": False, "max_new_tokens": 20}),
    ("the License", {"max_new_tokens": 20, "seed": 3}),
    ("", {"max_new_tokens": 200, "seed": 4, "ignore_eos": True}),
    ([5, 6, 7, 300], {"max_new_tokens": 16, "temperature": 0.7, "top_k": 0, "seed": 2**64 - 1}),
    ("a copy of", {"max_new_tokens": 24, "temperature": 1.9, "top_k": 0, "top_p": 0.8, "seed": 11}),
    ("a copy of", {"max_new_tokens": 24, "temperature": 1.5, "top_k": 0, "min_p": 0.02, "seed": 12}),
    ("a copy of", {"max_new_tokens": 24, "top_k": 7, "top_p": 0.9, "min_p": 0.01, "seed": 13}),
    ("You may", {"max_new_tokens": 30, "do_sample": False, "repetition_penalty": 1.4}),
    (
        "You may",
        {"max_new_tokens": 30, "do_sample": False, "presence_penalty": 0.5, "frequency_penalty": 0.8},
    ),
    ("You may", {"max_new_tokens": 12, "seed": 1, "logit_bias": {40: 9.5, 41: 9.0, 100000: 1.0}}),
    (
        "You may",
        {"max_new_tokens": 40, "seed": 5, "min_new_tokens": 30, "stop_token_ids": list(range(1, 200))},
    ),
    ("You may", {"max_new_tokens": 40, "seed": 6, "skip_special_tokens": False, "temperature": 3.0}),
    (
        "You may",
        {"max_new_tokens": 50, "seed": 8, "temperature": 2.5, "top_k": 0, "stop_strings": ["z", "or", "e"]},
    ),
    (CHAT, {"max_new_tokens": 10, "seed": 9}),
    (CALLS, {"max_new_tokens": 10, "seed": 10}),
]

#: What templates of models use, given one message of a user.
SAID = [{"role": "user", "content": " <a> & 'b' "}]
TEMPLATES = [
    "{{ bos_token }}{{ messages[0]['content'] | trim }}",
    "{% for m in messages %}\n  {{ m.role.upper() }}\n{% endfor %}\n",
    "{{ messages[-1].content.strip().split('&')[1] }}",
    "{{ messages[1:] | length }}{{ tools is none }}{{ nothing is defined }}{{ 1.0 }}{{ none }}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% macro f(x, y='z') %}[{{ x }}{{ y }}]{% endmacro %}{{ f(1) ~ f(2, y=3) }}",
    "{%- generation -%} a {%- endgeneration %}{% generation %}b{% endgeneration %}",
    "{{ {'b': 1, 'a': '\\n<é>'} | tojson }}{{ [1, none, true] | tojson }}",
    "{{ messages | tojson(indent=4) }}",
    "{{ messages | map(attribute='role') | join(', ') }}",
    "{{ messages | selectattr('role', 'equalto', 'x') | list }}",
    "{% if 'a' in messages[0].content and messages[0].role != 'x' %}{{ '%02d' | length }}{% endif %}",
    "{% for m in messages %}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{% endfor %}",
    "{% set c = messages[0].content %}{{ c.startswith(' <') }}{{ c.replace('a', 'x') }}{{ c.lstrip() }}",
    "{% if messages[0].content is string and messages is iterable and messages[0] is mapping %}y{% endif %}",
    "{{ messages[0].get('name', 'nobody') }}{{ messages[0].content[1:4] }}{{ messages[0].content[::-1] }}",
    "{{ ['a', 'b'] + ['c'] }}{{ ('x' * 3) }}{{ 7 // 2 }}{{ 'a' if none else 'b' }}",
    "{{ messages[0].items() | list }}{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}",
]

#: Settings of single choices, over rows of different spreads.
CHOICES: list[dict[str, Any]] = [
    {},
    {"temperature": 0.7},
    {"temperature": 2.0, "top_p": 0.9},
    {"top_p": 0.5},
    {"top_p": 1e-9},
    {"min_p": 0.1},
    {"min_p": 0.3, "top_p": 0.99},
    {"top_k": 5},
    {"top_k": 299, "top_p": 0.7},
    {"top_k": 40, "top_p": 0.95, "min_p": 0.02, "temperature": 1.3},
    {"temperature": 0.0},
    {"repetition_penalty": 1.2, "top_p": 0.8},
    {"presence_penalty": 0.7, "frequency_penalty": 0.3, "temperature": 1.1},
]
ROW, PLACES = 300, 40


def row(number: int) -> Any:
    """Logits that any language computes alike: a few are equal."""
    import numpy as np

    bits = (np.arange(ROW, dtype=np.uint64) // 2 * 2654435761 + number * 40503 * 977) % 2**32 >> 12
    return (bits.astype(np.float64) / 2**20 * (2 + number % 5 * 6)).astype(np.float32)


def chosen(settings: dict[str, Any]) -> list[int]:
    """The tokens of a text whose logits are the rows."""
    from pteron.llm.sampling import SamplingParameters, TokenCounts, processed, sample

    parameters = SamplingParameters(seed=77, **settings)
    counts, found = TokenCounts(parameters, [1, 2, 3]), []
    for place in range(PLACES):
        token = sample(processed(row(place), parameters, counts), parameters, place)
        counts.add(token)
        found.append(token)
    return found


def write_folder() -> None:
    """A model of one layer with random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import pteron.llm
    from tests.llm.recipe_folder import trained_tokenizer

    tokenizer = trained_tokenizer(len(SPECIAL) + 256 + 59)
    source = FOLDER / "source"
    source.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(source / "tokenizer.json"))
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=CACHE,
        initializer_range=0.4,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=1,
    )
    model = LlamaForCausalLM(config).eval()
    pteron.llm.export(model, FOLDER, max_seq_len=CACHE, tokenizer=source)
    (source / "tokenizer.json").unlink()
    source.rmdir()
    texts = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": TEMPLATE}
    (FOLDER / "tokenizer_config.json").write_text(json.dumps(texts, indent=1) + "\n")
    stated = {"do_sample": True, "temperature": 0.9, "top_k": 40, "eos_token_id": 1, "bos_token_id": 0}
    (FOLDER / "generation_config.json").write_text(json.dumps(stated, indent=1) + "\n")


def texts(folder: Path = FOLDER) -> dict[str, Any]:
    """What the generator in Python makes of the cases, and the prompts of the template."""
    from pteron.llm import Generator
    from pteron.llm.chat_template import ChatTemplate

    generator = Generator(folder, threads=1, idle_caches=0)
    found = []
    for prompt, settings in CASES:
        result = generator.generate(prompt, **settings)
        found.append(
            {
                "prompt": prompt,
                "settings": settings,
                "prompt_tokens": generator.tokens_of(prompt),
                "tokens": list(result.tokens),
                "text": result.text,
                "finish_reason": result.finish_reason,
                "stop": result.stop,
            }
        )
    return {
        "cases": found,
        "rendered": [
            {"messages": messages, "variables": variables, "text": generator.render(messages, **variables)}
            for messages, variables in ((CHAT, {}), (CALLS, TOOLS))
        ],
        "choices": [{"settings": settings, "tokens": chosen(settings)} for settings in CHOICES],
        "templates": [
            {"source": source, "text": ChatTemplate(source, {"bos_token": "<s>"}).render(SAID)}
            for source in TEMPLATES
        ],
    }


def main() -> None:
    """Write what the arguments name."""
    if sys.argv[1:] != ["texts"]:
        write_folder()
    EXPECTED.write_text(json.dumps(texts(), indent=1) + "\n")


if __name__ == "__main__":
    main()
