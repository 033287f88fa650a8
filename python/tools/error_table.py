"""Writes `docs/reference/errors.md`: every exception class with an example, a remedy, and its texts.

    python python/tools/error_table.py           writes the page
    python python/tools/error_table.py --check   fails where the page is not what the code says

Texts are those that the sources construct errors with: calls of `Error::...` in Rust, calls of exception
classes in Python. Examples are made by running something that fails. A changed text thus shows as a
difference of the page, which `make check` finds.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from pteron import errors  # noqa: E402
from pteron._native import error_kinds  # noqa: E402
from tests.support.failing_calls import EXAMPLES  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "errors.md"

HEAD = """# Errors

Every exception of pteron: when it comes, an example, what to do, and all messages that it comes with.
Written by `python/tools/error_table.py` from the sources and from calls that fail; `make check` compares, so
that no text changes unseen.

The text of an exception is its place (method, instruction, operator, argument), the message, what was
expected, what was found, the line of the model where the file tells, and a hint; fields of the exception hold
the same. A part in braces stands for a name, number or shape. Names from files are escaped and cut; no text
holds an address, a path of the machine that pteron was built on, or contents of tensors.

After every one of these errors the next correct call works, except after `InternalError`, and after a
`DelegateError` that says that the session cannot be used any more.
"""

# The table of kinds, rust/pteron-core/src/error_kind.rs. A file that is not there is a built-in class.
KINDS = [row for row in error_kinds() if row["exception"] != "FileNotFoundError"]
CLASSES = {row["kind"]: getattr(errors, row["exception"]) for row in KINDS}
CONSTRUCTORS = {row["constructor"]: row["kind"] for row in KINDS}
REMEDIES = {CLASSES[row["kind"]]: row["remedy"] for row in KINDS}
REMEDIES[errors.CaseMismatchError] = "change the test case, or the method that it is for"
EXPORT_REMEDY = "the text names the node and the line of the model; change that line, or how it is lowered"

STRING = r'"((?:[^"\\]|\\.)*)"'
CALL = re.compile(
    r"Error::(?:(" + "|".join(CONSTRUCTORS) + r")\(|new\(\s*(?:pteron_core::)?ErrorKind::(\w+),)"
    r"\s*(?:format!\(\s*)?" + STRING,
    re.DOTALL,
)
# `limits::reached`, which every limit's error is made by.
LIMIT = re.compile(r'reached\(\s*"(\w+)",\s*(?:&format!\(\s*)?' + STRING, re.DOTALL)


def rust_sources() -> Iterator[tuple[str, str]]:
    """Name of the crate and text of every Rust source of the product, without its tests."""
    for path in sorted((ROOT / "rust").glob("*/src/**/*.rs")):
        crate = path.relative_to(ROOT / "rust").parts[0]
        if crate in {"xtask", "pteron-fuzz"} or "generated" in path.parts or path.stem.endswith("tests"):
            continue
        if path.stem == "testing":
            continue
        yield crate, path.read_text().split("#[cfg(test)]\nmod tests")[0]


def unescaped(literal: str) -> str:
    """The text of a Rust string literal."""
    literal = re.sub(r"\\\n\s*", "", literal)
    return (
        literal.replace('\\"', '"')
        .replace("\\n", " ")
        .replace("{{", "{")
        .replace("}}", "}")
        .replace("\\\\", "\\")
    )


def rust_texts() -> Iterator[tuple[type[errors.PteronError], str, str]]:
    """Class, text and crate of every error that Rust constructs."""
    for crate, text in rust_sources():
        for call in CALL.finditer(text):
            kind = CONSTRUCTORS.get(call[1] or "", call[2])
            if kind in CLASSES:
                yield CLASSES[kind], unescaped(call[3]), crate
        for call in LIMIT.finditer(text):
            yield errors.LimitExceeded, f"{unescaped(call[2])} (limits.{call[1]})", crate


def _shown(argument: ast.expr) -> str | None:
    match argument:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(p.value if isinstance(p, ast.Constant) else "{...}" for p in parts)  # type: ignore[misc]
        case ast.BinOp(left=left, right=right):
            return (_shown(left) or "{...}") + (_shown(right) or "{...}")
    return None


def python_texts() -> Iterator[tuple[type[errors.PteronError], str, str]]:
    """Class, text and package of every error that Python constructs."""
    classes = dict(inspect.getmembers(errors, inspect.isclass))
    for path in sorted((ROOT / "python" / "pteron").rglob("*.py")):
        package = ".".join(path.relative_to(ROOT / "python").parts[:2]).removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args:
                name = (
                    node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
                )
                text = _shown(node.args[0])
                if name in classes and text is not None and issubclass(classes[name], errors.PteronError):
                    yield classes[name], text, package


def example(cls: type[errors.PteronError]) -> str | None:
    """The text of a real error of this class; None for those of bugs and of the compile half."""
    if cls not in EXAMPLES:
        return None
    try:
        EXAMPLES[cls]()
    except cls as error:
        if type(error) is cls:
            return str(error)
        raise
    raise AssertionError(f"the example of {cls.__name__} does not fail")


def page() -> str:
    """The whole page."""
    texts: dict[type[errors.PteronError], dict[str, set[str]]] = {}
    for cls, text, part in [*rust_texts(), *python_texts()]:
        texts.setdefault(cls, {}).setdefault(" ".join(text.split()), set()).add(part)
    out = [HEAD]
    ordered = [*CLASSES.values(), errors.ExportError, errors.VerificationError]
    ordered += [errors.MissingOutVariantError, errors.ExampleMismatchError, errors.CaseMismatchError]
    ordered += [errors.UnsupportedProgramError]
    for cls in ordered:
        bases = [
            b.__name__ for b in cls.__mro__[1:] if b.__name__ not in {"object", "Exception", "BaseException"}
        ]
        out.append(
            f"\n## {cls.__name__}\n\n{' '.join((cls.__doc__ or '').split())}\n\nAlso a {', '.join(bases)}.\n"
        )
        out.append(f"\nWhat to do: {REMEDIES.get(cls, EXPORT_REMEDY)}.\n")
        shown = example(cls)
        if shown is not None:
            out.append(f"\n```text\n{shown}\n```\n")
        rows = sorted(texts.get(cls, {}).items())
        if rows:
            out.append("\n| message | from |\n|---|---|\n")
            escape = str.maketrans({"|": "\\|", "<": "&lt;"})
            out += [f"| {text.translate(escape)} | {', '.join(sorted(parts))} |\n" for text, parts in rows]
    return "".join(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    is_checked = parser.parse_args().check
    text = page()
    if not is_checked:
        PAGE.write_text(text)
        return 0
    if PAGE.exists() and PAGE.read_text() == text:
        return 0
    print(
        f"{PAGE.relative_to(ROOT)} is not what the code says; run: python python/tools/error_table.py",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
