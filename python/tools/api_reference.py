"""Writes the API reference, from docstrings, as Markdown pages of the site.

    python python/tools/api_reference.py docs/reference/api

A page holds a package with its public modules; names that a front door exports stand on its page alone. Names
of the native module have the types of its stub file. Exits with 1 when an export of a front door has no
docstring.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import pkgutil
import re
import shutil
import sys
import warnings
from pathlib import Path
from typing import get_origin

from pdoc import doc, doc_pyi, docstrings

import pteron

# Modules whose `__all__` is the front door: all that they name has a docstring.
FRONT_DOORS = ("pteron", "pteron.errors", "pteron.runtime", "pteron.exir", "pteron.quant")
# Special methods that a user calls, if by another spelling; the others are of Python's machinery.
SHOWN_SPECIAL = {"__call__", "__enter__", "__getitem__", "__len__"}
# Dimensions of a heading in a page: the page, a module, a name, a member of a class.
MODULE, NAME, MEMBER = "##", "###", "####"
# Modules of engines that the environment of the documents lacks; docs/how-to/at-scale.md has them.
ELSEWHERE = ("pteron.integrations.beam",)
CODE = re.compile(r"(```.*?```|`[^`]*`)", flags=re.DOTALL)


def public_modules() -> list[str]:
    """Names of all modules of the package without a private part."""
    walked = (module.name for module in pkgutil.walk_packages(pteron.__path__, "pteron."))
    return ["pteron", *(name for name in walked if "._" not in name and name not in ELSEWHERE)]


def page_of(module: str) -> str:
    """The package on whose page a module stands: two parts of its name, three below `pteron.exir`."""
    parts = module.split(".")
    depth = 3 if parts[:2] == ["pteron", "exir"] else 2
    package = ".".join(parts[:depth])
    return package if hasattr(sys.modules[package], "__path__") or len(parts) <= 2 else "pteron.exir"


def undocumented() -> list[str]:
    """Exported classes and functions, and public methods of exported classes, without a docstring."""
    missing = []
    for name in FRONT_DOORS:
        module = importlib.import_module(name)
        for exported in getattr(module, "__all__", []):
            item = getattr(module, exported)
            # A type alias can be called on some versions of Python, and has no docstring of its own on any.
            is_alias = get_origin(item) is not None
            if callable(item) and not is_alias and not inspect.getdoc(item):
                missing.append(f"{name}.{exported}")
            if not inspect.isclass(item):
                continue
            for attribute, value in vars(item).items():
                is_described = (
                    callable(value) or isinstance(value, property) or inspect.isdatadescriptor(value)
                )
                if not attribute.startswith("_") and is_described and not inspect.getdoc(value):
                    missing.append(f"{name}.{exported}.{attribute}")
    return missing


def prose(docstring: str) -> str:
    """A docstring in Google's form as Markdown without headings or HTML of its own."""
    text = docstrings.convert(docstring, "google", None)
    text = re.sub(r"^#+ (.*)$", r"**\1**", text, flags=re.MULTILINE)
    parts = CODE.split(text)
    parts[::2] = [part.replace("<", "\\<") for part in parts[::2]]
    return "".join(parts).strip()


def is_shown(member: doc.Doc[object]) -> bool:
    """Whether a reader looks for it: a public name with something said of it."""
    return bool(member.docstring) and (not member.name.startswith("_") or member.name in SHOWN_SPECIAL)


def headed(heading: str, member: doc.Doc[object]) -> list[str]:
    """Heading, call, bases or type, and prose of a function, a class or a variable."""
    lines = [f"{heading} `{member.name}`", ""]
    if isinstance(member, doc.Function):
        lines += ["```python", f"{member.name}{member.signature}", "```", ""]
    elif isinstance(member, doc.Class):
        init = member.members.get("__init__")
        if isinstance(init, doc.Function) and init.docstring and init.signature.parameters:
            lines += ["```python", f"{member.name}{init.signature}", "```", ""]
        bases = [name for _, name, _ in member.bases]
        lines += [f"Bases: {', '.join(f'`{base}`' for base in bases)}.", ""] if bases else []
    elif isinstance(member, doc.Variable) and member.annotation_str:
        lines += ["```python", f"{member.name}{member.annotation_str}", "```", ""]
    return [*lines, prose(member.docstring), ""]


def described(member: doc.Doc[object]) -> list[str]:
    """A name of a module; a class with the members that it defines itself."""
    lines = headed(NAME, member)
    if isinstance(member, doc.Class):
        for inner in member.own_members:
            if is_shown(inner) and not isinstance(inner, doc.Class):
                lines += headed(MEMBER, inner)
    return lines


def section(name: str, exported: set[str]) -> list[str]:
    """A module: its docstring and the names that it defines, or exports where it is a front door."""
    module = doc.Module(importlib.import_module(name))
    doc_pyi.include_typeinfo_from_stub_files(module)
    native = doc.Module(importlib.import_module("pteron._native"))
    doc_pyi.include_typeinfo_from_stub_files(native)
    lines = [f"{MODULE} {name}", "", prose(module.docstring), ""]
    for member in module.members.values():
        home, key = member.taken_from[0], ".".join(member.taken_from)
        if not is_shown(member) or isinstance(member, doc.Module):
            continue
        is_own = home in (name, "pteron._native") and key not in exported
        is_exported = name in FRONT_DOORS and (home == name or home not in FRONT_DOORS)
        if is_own or is_exported:
            lines += described(native.members.get(member.name, member))
    return lines


def exported_names() -> set[str]:
    """Modules and names of all that the front doors export from elsewhere or define."""
    found: set[str] = set()
    for name in FRONT_DOORS:
        members = doc.Module(importlib.import_module(name)).members.values()
        found |= {".".join(member.taken_from) for member in members}
    return found


def write(folder: Path) -> None:
    """The pages and their index."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    exported = exported_names()
    pages: dict[str, list[str]] = {}
    for module in public_modules():
        importlib.import_module(module)
        page = pages.setdefault(page_of(module), [])
        page += section(module, exported)
    for name, lines in pages.items():
        (folder / f"{name}.md").write_text("\n".join([f"# {name}", "", *lines]))
    head = ["# Python API", "", "Made from the docstrings by `python/tools/api_reference.py`.", ""]
    rows = ["| package | says |", "|---|---|"]
    for name in pages:
        summary = prose(inspect.getdoc(sys.modules[name]) or "").split("\n\n")[0].replace("\n", " ")
        rows.append(f"| [{name}]({name}.md) | {summary} |")
    (folder / "README.md").write_text("\n".join([*head, *rows, ""]))


def main(folder: str) -> int:
    """Writes the pages, and the names that have no docstring to standard error; gives the exit status."""
    with warnings.catch_warnings():
        # A package without `__all__` brings its modules along; naming them again is harmless. Names that a
        # package resolves on first use have their page where they are defined.
        warnings.simplefilter("ignore")
        write(Path(folder))
    missing = undocumented()
    for name in missing:
        print(f"no docstring: {name}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", help="where the pages go")
    sys.exit(main(parser.parse_args().folder))
