"""The Python snippets of a documentation page run as one script; links between pages lead somewhere.

A block that starts with `# file: name.py` is written to that file, which later blocks can import.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.extent import only_in
from tests.support.forks import forks

ROOT = Path(__file__).resolve().parents[1]
# `make docs` writes the pages of the API.
API = ROOT / "docs" / "reference" / "api"
PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if API not in page.parents)
#: Pages that export language models: `make test-pages`.
LONG = {
    "export-language-models",
    "hugging-face",
    "images-in-prompts",
    "language-models",
    "text-embeddings",
    "transcribe-speech",
}
BLOCK = re.compile(r"^```python\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# file: (\w+\.py)\n")
FENCED = re.compile(r"^```.*?^```", flags=re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def script_of(page: Path, folder: Path) -> str:
    """The snippets of a page as one script; those with a name of their own are written to the folder."""
    blocks = []
    for block in BLOCK.findall(page.read_text()):
        named = FILE.match(block)
        if named:
            (folder / named[1]).write_text(block)
        else:
            blocks.append(block.replace('"schema/', f'"{ROOT}/schema/'))
    return "\n".join(blocks)


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=only_in("PAGES") if page.stem in LONG else [], id=page.stem) for page in PAGES],
)
def test_snippets_run(page: Path, tmp_path: Path) -> None:
    script = script_of(page, tmp_path)
    if not script:
        assert "```python" not in page.read_text()
        return
    (tmp_path / "page.py").write_text(script)
    done = forks().run(Path("page.py"), folder=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    prose = FENCED.sub("", page.read_text())
    for target in LINK.findall(prose):
        path = (page.parent / target).resolve()
        if "://" not in target and API not in path.parents:
            assert path.exists(), f"{page.name} links to {target}"


def test_the_index_names_every_page() -> None:
    listed = set(LINK.findall((ROOT / "docs" / "README.md").read_text()))
    assert {str(page.relative_to(ROOT / "docs")) for page in PAGES} - {"README.md"} <= listed


def test_the_guides_backend_is_short() -> None:
    files = [
        block
        for block in BLOCK.findall((ROOT / "docs" / "how-to" / "backend-guide.md").read_text())
        if FILE.match(block)
    ]
    lines = [line for block in files for line in block.splitlines()[1:] if line.strip()]
    assert len(files) == 2
    assert len(lines) <= 66, "the guide's backend, both halves, should stay a 60-line read"
