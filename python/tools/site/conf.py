"""The site: Sphinx over the Markdown of the repository, each page where it lies.

The source folder is the repository itself, so that a link works alike in an editor, on a code host and here.
A link to a page of the site stays one, a link to another file becomes a copy of the file, a dead link is a
warning; `make docs` takes warnings for errors. `docs/README.md` is the navigation: a table under a heading of
it is a room.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils.nodes import reference

import pteron

INDEX = "docs/README"
API = "docs/reference/api/README"
# Addresses outside of the repository, with the pages that link to them. Every build reads every page.
EXTERNAL: dict[str, set[str]] = {}
LINK = re.compile(r"^\| \[([^\]]+)\]\(([^)#:]+)\.md\)", flags=re.MULTILINE)

project = "pteron"
version = release = pteron.__version__
root_doc = INDEX
include_patterns = ["*.md", "docs/**.md", "schema/*.md", "benches/*.md"]
exclude_patterns = ["target", ".*", "python", "rust", "tests", "fuzz"]
extensions = ["myst_parser"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"pteron {pteron.__version__}"
html_extra_path = ["index.html"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False


def rooms(text: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Headings of an index with the titles and pages that the first column of their tables links to."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    found = [(heading, LINK.findall(body)) for heading, body in zip(parts[1::2], parts[2::2], strict=True)]
    return [room for room in found if room[1]] or [("", LINK.findall(text))]


def add_navigation(app: Any, name: str, source: list[str]) -> None:
    """Gives an index the list of its pages, and code blocks the names that the highlighter knows."""
    source[0] = source[0].replace("```rust,no_run", "```rust")
    if name not in (INDEX, API):
        return
    for heading, pages in rooms(source[0]):
        rows = [f"{title} <{page}>" if name == INDEX else page for title, page in pages]
        options = [":hidden:", *([f":caption: {heading}"] if heading else [])]
        source[0] += "\n".join(["", "```{toctree}", *options, "", *rows, "```", ""])


def collect_external(app: Any, tree: Any, name: str) -> None:
    """Notes the addresses outside of the repository that a page links to."""
    for node in tree.findall(reference):
        if "://" in node.get("refuri", ""):
            EXTERNAL.setdefault(node["refuri"], set()).add(name)


def list_external(app: Any, error: Exception | None) -> None:
    """Writes these addresses into a list beside the pages: they are listed, not fetched."""
    lines = [f"{address}  ({', '.join(sorted(pages))})" for address, pages in sorted(EXTERNAL.items())]
    if error is None:
        (Path(app.outdir) / "external-links.txt").write_text("\n".join([*lines, ""]))


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_navigation)
    app.connect("doctree-resolved", collect_external)
    app.connect("build-finished", list_external)
