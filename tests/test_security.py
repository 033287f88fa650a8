"""The table of threats is complete, and what it names exists; dependencies are pinned."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "why" / "security.md"
LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
ROW = re.compile(r"^\| (T\d+) \| (.+) \|$", flags=re.MULTILINE)


def _rows() -> dict[str, list[str]]:
    """Threat, check and tests of each row."""
    return {name: rest.split(" | ") for name, rest in ROW.findall(PAGE.read_text())}


def test_every_threat_has_a_check_and_a_test() -> None:
    rows = _rows()
    assert list(rows) == [f"T{n}" for n in range(1, 29)]
    for name, cells in rows.items():
        assert len(cells) == 3, name
        assert LINK.search(cells[2]), f"{name} has no test"


@pytest.mark.parametrize("row", [f"T{n}" for n in range(1, 29)])
def test_what_the_table_names_exists(row: str) -> None:
    _, check, tests = _rows()[row]
    for name, target in LINK.findall(check):
        source = (PAGE.parent / target).read_text()
        definition = rf"\b(?:fn|struct|const|def|impl)(?:<[^>]*>)? {name}\b"
        assert re.search(definition, source), f"{target} defines no {name}"
    for name, target in LINK.findall(tests):
        source = (PAGE.parent / target).read_text()
        definition = rf"\b(?:fn|def) {name}\(|\(\"{name}\", "
        assert re.search(definition, source), f"{target} has no test {name}"


def test_every_dependency_is_pinned() -> None:
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["dependencies"]
    for name, spec in cargo.items():
        if isinstance(spec, dict) and "path" in spec:
            continue
        version = spec if isinstance(spec, str) else spec["version"]
        assert version.startswith("="), f"{name} = {version}: pin it (`=x.y.z`)"
    for crate in (ROOT / "rust").glob("*/Cargo.toml"):
        data = tomllib.loads(crate.read_text())
        for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
            for name, spec in data.get(kind, {}).items():
                version = spec if isinstance(spec, str) else spec.get("version", "=")
                assert version.startswith("="), f"{crate.parent.name}: {name} = {version}: pin it"
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    for requirement in groups["dev"]:
        assert "==" in requirement, f"{requirement}: pin it"
