"""A package with a backend that works, written from templates: where a vendor begins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

#: Languages of the run half, with what templates say of them.
LANGUAGES = {
    "c": {"kind": "native", "run_half": "src/module/_run.c", "how": "a library in C", "damaged": "64"},
    "python": {"kind": "Python", "run_half": "src/module/run.py", "how": "NumPy", "damaged": "64"},
    "rust": {"kind": "native", "run_half": "rust/", "how": "a library in Rust", "damaged": "64"},
}
#: Files of pteron that a package gets a copy of, by language: where to, and which of `pteron/include`.
_COPIED = {"rust": {"rust/pteron_backend.rs": "pteron_backend.rs"}}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_.][A-Za-z0-9]+)*")


def new_package(name: str, directory: Path, language: str = "c") -> list[Path]:
    """Writes a package called `name` into `directory`, which must be empty or not there.

    It has both halves of a backend that adds, multiplies and takes the positive part of float32 tensors, with
    entry points, tests and a page that says how to go on.

    Args:
        name: of the package; letters and digits, with `-`, `_` or `.` between them.
        directory: where to write it.
        language: of the run half, a key of `LANGUAGES`.

    Returns: the files, in order.

    Raises:
        ValueError: a name that a package cannot have, or an unknown language.
        FileExistsError: `directory` is a file, or holds something.
    """
    words = _words(name, language)
    if directory.is_file() or (directory.is_dir() and any(directory.iterdir())):
        raise FileExistsError(f"{directory} is there already and not empty")
    templates = files("pteron.plugins") / "templates"
    written = []
    for part in ("common", language):
        for place, template in _templates(templates / part):
            file = directory / place.replace("module", words["module"])
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(_filled(template.read_text(encoding="utf-8"), words), encoding="utf-8")
            written.append(file)
    for place, name in _COPIED.get(language, {}).items():
        (directory / place).write_bytes((files("pteron") / "include" / name).read_bytes())
        written.append(directory / place)
    return sorted(written)


def _words(name: str, language: str) -> dict[str, str]:
    """What stands for each `@word@` of the templates."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name for a package: letters and digits, with - _ or . between them")
    if language not in LANGUAGES:
        raise ValueError(f"unknown language {language!r}; there are: {', '.join(LANGUAGES)}")
    parts = re.split(r"[-_.]", name)
    module = "_".join(parts).lower()
    camel = "".join(part[0].upper() + part[1:] for part in parts)
    words = LANGUAGES[language] | {"distribution": name, "module": module, "Class": camel}
    words["Backend"] = f"{camel}Backend"
    words["libraries"] = ", and so does `LIBRARIES` of setup.py" if language == "c" else ""
    words["run_half"] = words["run_half"].replace("module", module)
    # A crash of native code on a damaged blob is to be a finding, not the end of the tests.
    words["isolate"] = f'"{module}:register"' if words["kind"] == "native" else "None"
    return words


def _templates(folder: Traversable, place: str = "") -> Iterator[tuple[str, Traversable]]:
    """Each template below `folder` with the place of its file."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _templates(entry, f"{place}{entry.name}/")
        elif entry.name.endswith(".in"):
            name = entry.name.removesuffix(".in")
            yield place + {"gitignore": ".gitignore"}.get(name, name), entry


def _filled(text: str, words: dict[str, str]) -> str:
    """`text` with the words in place."""
    return re.sub(r"@(\w+)@", lambda found: words[found[1]], text)
