"""Chat templates: Jinja that came with a model, so nobody trusts it.

It runs in Jinja's immutable sandbox, with bounds on loops, on texts and on what it writes: a hostile template
ends in `ProgramError`. Names and functions are those that transformers gives templates.
"""

from __future__ import annotations

import datetime
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from pteron.errors import InputError, ProgramError
from pteron.llm.extras import needed
from pteron.llm.model_folder import damaged, read_json

#: A message: {"role": "user", "content": "..."}; templates may look at further keys.
Message = Mapping[str, Any]

_MOST_ROUNDS = 100_000
#: Seconds of one prompt. No step between two looks at the clock takes long: all sizes are bounded.
_MOST_SECONDS = 10.0
#: Calls of macros inside calls.
_MOST_CALLS = 50
#: Characters that a template may write or compute beyond those of the messages.
_MOST_CHARACTERS = 1 << 20
# Methods of texts whose result can be longer than any limit on what goes in.
_REFUSED = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs", "format", "format_map", "translate"})


class TemplateLimitError(Exception):
    """A template went beyond a bound."""


class ChatTemplate:
    """Turns messages into a prompt."""

    def __init__(self, source: str, special: Mapping[str, Any]) -> None:
        """`source`: Jinja. `special`: names such as "bos_token" with their texts.

        Raises ImportError without jinja2, ProgramError where the source is no template.
        """
        self.source = source
        self._special = dict(special)
        jinja2 = needed("jinja2", "llm", "a chat template")
        self._limits = _Limits()
        self._turn = threading.Lock()
        try:
            self._template = _environment_class()(self._limits).from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise damaged("the chat template", str(error)[:200]) from None

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Any] | None = None,
        **variables: Any,
    ) -> str:
        """The prompt. `variables`: what else the template looks at, such as `enable_thinking`.

        Raises InputError where the template refuses the messages, ProgramError where the template fails.
        """
        jinja2 = needed("jinja2", "llm", "a chat template")
        names = {
            **self._special,
            **variables,
            "messages": [dict(message) for message in messages],
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            given = len(json.dumps([names["messages"], tools], default=str))
        except (ValueError, RecursionError):
            raise InputError("messages cannot hold themselves") from None
        try:
            with self._turn:
                self._limits.begin(_MOST_CHARACTERS + 4 * given)
                return self._written(names)
        except _RefusalError as error:
            raise InputError("the chat template refuses the messages", got=str(error)[:200]) from None
        except (TemplateLimitError, jinja2.TemplateError, RecursionError, MemoryError) as error:
            raise damaged("the chat template", str(error)[:200] or type(error).__name__) from None
        except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
            raise ProgramError("the chat template fails on these messages", got=str(error)[:200]) from None

    def _written(self, names: Mapping[str, Any]) -> str:
        parts, length = [], 0
        for part in self._template.generate(names):
            length += len(part)
            self._limits.check_length(length)
            parts.append(part)
        return "".join(parts)


def open_template(folder: Path, config: Mapping[str, Any]) -> ChatTemplate | None:
    """The template of a folder: chat_template.jinja, or "chat_template" of chat_template.json or of
    tokenizer_config.json, where a list of several has one named "default". None where there is none.
    """
    file = folder / "chat_template.jinja"
    source: Any = read_json(folder / "chat_template.json").get("chat_template", config.get("chat_template"))
    if file.exists():
        if file.stat().st_size > _MOST_CHARACTERS:
            raise damaged(file.name, "it is too long")
        try:
            source = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise damaged(file.name, "it is no UTF-8") from None
    if isinstance(source, list):
        named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
        source = named.get("default")
    if source is None:
        return None
    if not isinstance(source, str) or len(source) > _MOST_CHARACTERS:
        raise damaged("tokenizer_config.json", "its chat_template is no text, or too long")
    return ChatTemplate(source, special_texts(config))


def special_texts(config: Mapping[str, Any]) -> dict[str, str]:
    """Texts of special tokens that a tokenizer_config.json states, by names such as "eos_token"."""
    found = {}
    for name, token in config.items():
        content = token.get("content") if isinstance(token, dict) else token
        if name.endswith("_token") and isinstance(content, str):
            found[name] = content
    return found


class _RefusalError(Exception):
    """The template called raise_exception."""


class _Limits:
    """What a run of a template may still do."""

    def __init__(self) -> None:
        self.begin(_MOST_CHARACTERS)

    def begin(self, characters: int) -> None:
        self._characters = characters
        self._rounds = self._depth = 0
        self._end = time.monotonic() + _MOST_SECONDS

    def round(self) -> str:
        """Called at each round of each loop, and at each call of a macro."""
        self._rounds += 1
        if self._rounds > _MOST_ROUNDS:
            raise TemplateLimitError(f"its loops do more than {_MOST_ROUNDS} rounds")
        if time.monotonic() > self._end:
            raise TemplateLimitError(f"it takes more than {_MOST_SECONDS:.0f} seconds")
        return ""

    @contextmanager
    def call(self) -> Iterator[None]:
        """Around a call: endless recursion is stopped long before the stack of Python is full."""
        self._depth += 1
        if self._depth > _MOST_CALLS:
            raise TemplateLimitError(f"its calls are nested more than {_MOST_CALLS} deep")
        yield
        self._depth -= 1

    def shown(self, value: Any) -> Any:
        """A value that becomes text: lists that hold themselves many times over are refused."""
        waiting, count = [value], 0
        while waiting:
            one = waiting.pop()
            count += 1
            self.check_length(count + len(waiting))
            if isinstance(one, Mapping):
                waiting += [*one.keys(), *one.values()]
            elif isinstance(one, (list, tuple, set)):
                waiting += one
            elif isinstance(one, str):
                count += len(one)
        return value

    def whole(self, parts: Any) -> str:
        """The text of a block or macro, of its parts."""
        texts = list(parts)
        self.check_length(sum(map(len, texts)))
        return "".join(texts)

    def check_length(self, length: int) -> None:
        if length > self._characters:
            raise TemplateLimitError(f"it makes a text of more than {self._characters} characters")

    def concatenated(self, *parts: Any) -> str:
        """The operator ~."""
        return self.whole(str(self.shown(part)) for part in parts)

    def check_operator(self, operator: str, left: Any, right: Any) -> None:
        """Lengths and numbers that an operator would make."""
        sizes = [len(value) if isinstance(value, (str, list, tuple)) else None for value in (left, right)]
        if operator == "+" and None not in sizes:
            self.check_length(sum(size or 0 for size in sizes))
        if operator == "*" and (sizes[0] is not None or sizes[1] is not None):
            size = sizes[0] if sizes[0] is not None else sizes[1]
            count = right if sizes[0] is not None else left
            self.check_length((size or 0) * count if isinstance(count, int) else 0)
        if operator == "**" or (operator == "%" and isinstance(left, str)):
            raise TemplateLimitError(f"the operator {operator} is not for chat templates")
        if operator == "*" and any(
            isinstance(value, int) and abs(value) > 1 << 64 for value in (left, right)
        ):
            raise TemplateLimitError("its numbers are too large")

    def check_call(self, function: Any, arguments: Sequence[Any]) -> None:
        """Methods of texts that can make far longer ones."""
        text, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
        if not isinstance(text, str):
            return
        if name == "replace" and len(arguments) >= 2:
            old, new = str(arguments[0]), str(arguments[1])
            self.check_length(len(text) + text.count(old) * max(0, len(new) - len(old)))
        if name == "join" and arguments:
            self.check_length(sum(len(str(part)) + len(text) for part in arguments[0]))


#: Filters that a template may use: none takes a width.
_FILTERS = {
    *("abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float"),
    *("groupby", "int", "items", "last", "length", "list", "lower", "map", "max", "min", "reject"),
    *("reverse", "safe", "select", "selectattr", "sort", "striptags", "title", "trim", "unique", "upper"),
    *("forceescape", "rejectattr", "values"),
}


@cache
def _environment_class() -> Any:
    """The sandbox with bounds; a function, since jinja2 is optional."""
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %} ... {% endgeneration %} marks what a model says; it is written as it is."""

        tags = {"generation"}  # noqa: RUF012 -- Jinja's own form

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    class Environment(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset({"+", "*", "**", "%"})

        def __init__(self, limits: _Limits) -> None:
            super().__init__(
                trim_blocks=True,
                lstrip_blocks=True,
                extensions=[loopcontrols, Generation],
                finalize=limits.shown,
                cache_size=0,
            )
            self.limits = limits
            self.count_round, self.concatenate = limits.round, limits.concatenated
            self.concat = limits.whole  # type: ignore[method-assign]
            self.filters = {name: work for name, work in self.filters.items() if name in _FILTERS}
            self.filters |= {"tojson": self._tojson, "join": self._join, "replace": self._replace}
            self.filters |= {"indent": _indent, "string": lambda value: str(limits.shown(value))}
            self.globals = {
                "raise_exception": _refuse,
                "strftime_now": _now,
                "range": self.globals["range"],
                "dict": dict,
                "namespace": self.globals["namespace"],
            }

        def _parse(self, source: str, name: Any, filename: Any) -> Any:
            tree = super()._parse(source, name, filename)
            for kind in (nodes.For, nodes.Macro, nodes.CallBlock):
                found: list[Any] = list(tree.find_all(kind))
                for node in found:
                    tick = nodes.Call(nodes.EnvironmentAttribute("count_round"), [], [], None, None)
                    node.body.insert(0, nodes.ExprStmt(tick, lineno=node.lineno))
            _with_checked_concatenation(tree, nodes)
            return tree

        def wrap_str_format(self, value: Any) -> None:
            # The sandbox would let format() through, whose widths make texts of any length.
            return None

        def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
            if isinstance(obj, str) and attr in _REFUSED:
                return False
            return super().is_safe_attribute(obj, attr, value)

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            self.limits.check_operator(operator, left, right)
            return super().call_binop(context, operator, left, right)

        def call(self, context: Any, obj: Any, *arguments: Any, **keywords: Any) -> Any:
            self.limits.check_call(obj, arguments)
            with self.limits.call():
                return super().call(context, obj, *arguments, **keywords)

        def _join(self, value: Any, d: str = "", attribute: str | None = None) -> str:
            parts = [part if attribute is None else self.getitem(part, attribute) for part in value]
            texts = [str(part) for part in self.limits.shown(parts)]
            self.limits.check_length(sum(map(len, texts)) + len(d) * len(texts))
            return d.join(texts)

        def _replace(self, value: Any, old: str, new: str, count: int = -1) -> str:
            self.limits.check_call(str(value).replace, (old, new))
            return str(value).replace(old, new, count)

        def _tojson(self, value: Any, indent: int | None = None, **settings: Any) -> str:
            known = {"ensure_ascii": False, **settings}
            if not known.keys() <= {"ensure_ascii", "separators", "sort_keys"}:
                raise TypeError("tojson takes indent, ensure_ascii, separators and sort_keys")
            width = None if indent is None else max(0, min(int(indent), 16))
            text = json.dumps(self.limits.shown(value), indent=width, **known)
            self.limits.check_length(len(text))
            return text

    return Environment


def _with_checked_concatenation(tree: Any, nodes: Any) -> None:
    """Puts a call in the place of every a ~ b, which the sandbox does not intercept."""

    def checked(node: Any) -> Any:
        for field, value in node.iter_fields():
            if isinstance(value, nodes.Node):
                setattr(node, field, checked(value))
            elif isinstance(value, list):
                value[:] = [checked(item) if isinstance(item, nodes.Node) else item for item in value]
        if not isinstance(node, nodes.Concat):
            return node
        function = nodes.EnvironmentAttribute("concatenate")
        return nodes.Call(function, list(node.nodes), [], None, None, lineno=node.lineno)

    checked(tree)
    tree.set_environment(tree.environment)


def _refuse(message: str) -> None:
    raise _RefusalError(message)


def _now(form: str) -> str:
    return datetime.datetime.now().strftime(form[:100])


def _indent(value: str, width: int = 4, first: bool = False, blank: bool = False) -> str:
    space = " " * max(0, min(int(width), 64))
    lines = str(value).split("\n")
    rest = [space + line if line or blank else line for line in lines[1:]]
    return "\n".join([space + lines[0] if first else lines[0], *rest])
