"""The list of threats is complete, and what it names exists; dependencies are pinned."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "why" / "security.md"
LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
THREAT = re.compile(
    r"^### (T\d+): [^\n]+\n\nCheck: (.+?)\n\nTests:\n\n(.+?)\n*(?=\n### |\Z)", flags=re.M | re.S
)
TESTS = re.compile(r"^- \[[^\]]+\]\(([^)]+)\):((?:\s+`\w+`(?: \([^)]+\))?,?)+)$", flags=re.MULTILINE)


def _threats() -> dict[str, tuple[str, str]]:
    """Check and tests of each threat."""
    return {name: (check, tests) for name, check, tests in THREAT.findall(PAGE.read_text())}


def test_every_threat_has_a_check_and_a_test() -> None:
    threats = _threats()
    assert list(threats) == [f"T{n}" for n in range(1, 30)]
    for name, (check, tests) in threats.items():
        assert check, name
        listed = [line for line in tests.splitlines() if line.startswith("- ")]
        assert listed, f"{name} has no test"
        assert len(TESTS.findall(tests)) == len(listed), f"{name}: a line of tests is not as the others"


@pytest.mark.parametrize("threat", [f"T{n}" for n in range(1, 30)])
def test_what_the_table_names_exists(threat: str) -> None:
    check, tests = _threats()[threat]
    for name, target in LINK.findall(check):
        source = (PAGE.parent / target).read_text()
        definition = rf"\b(?:fn|struct|const|def|impl)(?:<[^>]*>)? {name}\b"
        assert re.search(definition, source), f"{target} defines no {name}"
    for target, names in TESTS.findall(tests):
        source = (PAGE.parent / target).read_text()
        for name in re.findall(r"`(\w+)`", names):
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
    for group, requirements in groups.items():
        for requirement in requirements:
            # A group that stands in another is checked as itself.
            is_pinned = (
                "==" in requirement if isinstance(requirement, str) else "include-group" in requirement
            )
            assert is_pinned, f"{group}: {requirement}: pin it"
