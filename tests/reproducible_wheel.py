"""Builds the wheel of a commit twice, from clones in different folders, and compares the two.

    python tests/reproducible_wheel.py [COMMIT]

Prints the hash if they are the same file. If not, prints what differs and ends with 1. Either way no path of
this machine may be inside.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Of different lengths, so that a path that gets in moves what lies behind it.
FOLDERS = ("a", "another/folder/further/down")


def build(folder: Path, commit: str) -> Path:
    """The wheel of `commit`, built in a clone at `folder` with a target directory of its own."""
    subprocess.run(["git", "clone", "--quiet", "--no-checkout", ROOT, folder], check=True)
    subprocess.run(["git", "checkout", "--quiet", commit], cwd=folder, check=True)
    environment = ROOT / ".venv"
    (folder / ".venv").symlink_to(environment.resolve())
    subprocess.run(["make", "--silent", "release-wheel"], cwd=folder, check=True)
    (wheel,) = (folder / "target" / "wheels").glob("*.whl")
    return wheel


def contents(wheel: Path) -> dict[str, bytes]:
    """The files in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def differences(first: Path, second: Path) -> list[str]:
    """What is not the same, in words."""
    out = []
    a, b = contents(first), contents(second)
    out += [f"{name}: in one of them only" for name in sorted(a.keys() ^ b.keys())]
    for name in sorted(a.keys() & b.keys()):
        if a[name] != b[name]:
            at = next((i for i, (x, y) in enumerate(zip(a[name], b[name], strict=False)) if x != y), 0)
            out.append(f"{name}: from byte {at} on, {a[name][at : at + 64]!r} and {b[name][at : at + 64]!r}")
    if not out and first.read_bytes() != second.read_bytes():
        out.append("the archives differ in order, times or attributes of their files")
    return out


def paths_inside(wheel: Path, folder: Path) -> list[str]:
    """Files of the wheel that hold a path of this machine."""
    own = [str(folder), str(ROOT), str(Path.home()), str(Path.home() / ".cargo")]
    return [
        f"{name} holds {path}"
        for name, data in contents(wheel).items()
        for path in own
        if f"{path}/".encode() in data
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default="HEAD")
    commit = subprocess.check_output(
        ["git", "rev-parse", parser.parse_args().commit], cwd=ROOT, text=True
    ).strip()
    with tempfile.TemporaryDirectory(prefix="pteron-wheels-") as place:
        folders = [Path(place) / name for name in FOLDERS]
        wheels = [build(folder, commit) for folder in folders]
        found = differences(*wheels)
        for wheel, folder in zip(wheels, folders, strict=True):
            found += paths_inside(wheel, folder)
            print(hashlib.sha256(wheel.read_bytes()).hexdigest(), wheel.name)
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
