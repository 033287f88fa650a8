"""Chat templates: as transformers applies them, and hostile ones within bounds."""

from __future__ import annotations

import json
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from pteron.errors import InputError, ProgramError, PteronError
from pteron.llm import chat_template
from pteron.llm.chat_template import ChatTemplate, open_template
from tests.llm.recipe_folder import TEMPLATE

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": 'What is "1 + 1"? <é>'},
    {"role": "assistant", "content": " 2\n"},
    {"role": "user", "content": "Sure?"},
]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"a": "int"}}}]
RICH = """{%- set ns = namespace(count=0) -%}
{% macro show(m) %}[{{ m.role | upper }}] {{ m['content'] | trim }}{% endmacro %}
{% if tools %}{{ tools | tojson(indent=2) }}{% endif %}
{% for message in messages if message.role != 'system' %}
    {%- if loop.index0 == 1 %}{% continue %}{% endif %}
    {%- set ns.count = ns.count + 1 %}
{{ show(message) ~ '/' ~ ns.count }}
{{ message.content.split(' ')[-1].strip() }} {{ message | tojson }}
{% endfor %}
{% generation %}{{ messages[-1].content[:3] * 2 }}{% endgeneration %}
{{ messages | map(attribute='role') | join(', ') }}{{ bos_token if add_generation_prompt else eos_token }}"""


@pytest.mark.parametrize("source", [TEMPLATE, RICH])
@pytest.mark.parametrize("is_open", [True, False])
def test_prompts_are_those_of_transformers(source: str, is_open: bool) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    special = {"bos_token": "<s>", "eos_token": "</s>"}
    theirs, _ = render_jinja_template(
        [MESSAGES], tools=TOOLS, chat_template=source, add_generation_prompt=is_open, **special
    )
    template = ChatTemplate(source, special)
    assert template.render(MESSAGES, tools=TOOLS, add_generation_prompt=is_open) == theirs[0]


def _loop(body: str, start: str = "'a'") -> str:
    rounds = f"{{% for i in range(60) %}}{{% set ns.x = {body} %}}{{% endfor %}}"
    return f"{{% set ns = namespace(x={start}) %}}{rounds}"


HOSTILE = {
    "rounds": "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "macros": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "joined": _loop("ns.x ~ ns.x"),
    "added": _loop("ns.x + ns.x"),
    "lists": _loop("ns.x + ns.x", "[1]"),
    "replaced": _loop("ns.x.replace('a', 'aa')"),
    "filter": _loop("ns.x | replace('a', 'aa')"),
    "escaped": _loop("ns.x | tojson", "'\"'"),
    "nested": _loop("[ns.x, ns.x]") + "{{ ns.x }}",
    "nested JSON": _loop("[ns.x, ns.x]") + "{{ ns.x | tojson }}",
    "repeated": "{{ messages[0].content * 1000000000 }}",
    "power": "{{ 10 ** 1000000000 }}",
    "padded": "{{ 'a'.ljust(1000000000) }}",
    "percent": "{{ '%1000000000d' % 1 }}",
    "format": "{{ '{:1000000000}'.format(1) }}",
    "center": "{{ 'a' | center(1000000000) }}",
    "block": "{% set x %}{% for i in range(100000) %}" + "A" * 100000 + "{% endfor %}{% endset %}",
    "output": "{% for i in range(100000) %}" + "A" * 1000 + "{% endfor %}",
    "class": "{{ ''.__class__.__mro__ }}",
    "globals": "{{ raise_exception.__globals__['json'] }}",
    "append": "{{ messages.append(1) }}",
    "include": "{% include '/etc/passwd' %}",
    "filter of attributes": "{{ '' | attr('__class__') }}",
    "syntax": "{% if %}",
    "undefined": "{{ nothing.at.all }}",
    "division": "{{ 1 / 0 }}",
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_hostile_templates_end_in_an_error(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # What libraries of a process may set: errors in deep stacks take minutes then.
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    monkeypatch.setattr(chat_template, "_MOST_SECONDS", 3.0)
    tracemalloc.start()
    begin = time.process_time()
    with pytest.raises(PteronError, match="chat template"):
        ChatTemplate(source, {}).render(MESSAGES)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    sys.setrecursionlimit(limit)
    assert most < 200 << 20
    assert time.process_time() - begin < 30


def test_a_template_may_refuse_messages() -> None:
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}", {})
    with pytest.raises(InputError, match="roles must alternate"):
        template.render(MESSAGES)
    looped: list[Any] = []
    looped.append(looped)
    with pytest.raises(InputError, match="hold themselves"):
        template.render([{"role": "user", "content": looped}])


def test_where_a_folder_keeps_its_template(tmp_path: Path) -> None:
    assert open_template(tmp_path, {}) is None
    named = {"chat_template": [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]}
    found = open_template(tmp_path, json.loads(json.dumps(named)))
    assert found is not None
    assert found.render(MESSAGES) == "a"
    (tmp_path / "chat_template.jinja").write_text("{{ eos_token }}")
    found = open_template(tmp_path, {**named, "eos_token": {"content": "</s>"}})
    assert found is not None
    assert found.render(MESSAGES) == "</s>"
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(ProgramError, match="chat_template"):
        open_template(tmp_path, {"chat_template": 5})


def test_without_jinja(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r'a chat template needs the package jinja2: .*"pteron\[llm\]"'):
        ChatTemplate("", {})
