"""Writes the source distribution with the sources of every crate in it, so that it builds without a network.

    python python/tools/offline_sdist.py [--out FOLDER]

maturin makes the archive; this takes out what only tests need, adds `vendor/` with what Cargo.lock names and
a `.cargo/config.toml` that sends cargo there, and packs it again, the same bytes each time.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: What the crates of the package need to be tested only, at the end of the folder's name.
TESTS_ONLY = ("pteron-fuzz",)
CONFIG = """\
# All crates lie in vendor/: no registry is asked.
[source.crates-io]
replace-with = "vendored-sources"

[source.vendored-sources]
directory = "vendor"
"""
#: A table of a manifest that only tests read, up to the next table.
DEV_TABLE = re.compile(r"^\[(?:target\..*\.)?dev-dependencies\]\n(?:(?!\[).*\n?)*", re.MULTILINE)


def main() -> int:
    """Writes the archive and prints its path."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "target" / "sdist")
    out: Path = parser.parse_args().out.resolve()
    with tempfile.TemporaryDirectory(prefix="pteron-sdist-") as place:
        maturin = Path(sys.executable).with_name("maturin")
        subprocess.run([maturin, "sdist", "--out", place], cwd=ROOT, check=True, capture_output=True)
        (archive,) = Path(place).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(place, filter="data")
        (tree,) = (path for path in Path(place).iterdir() if path.is_dir())
        vendor(tree)
        out.mkdir(parents=True, exist_ok=True)
        pack(tree, out / archive.name)
    print(f"{out / archive.name}: {(out / archive.name).stat().st_size} bytes")
    return 0


def vendor(tree: Path) -> None:
    """Puts the crates into `tree`, an unpacked distribution."""
    for name in TESTS_ONLY:
        shutil.rmtree(tree / "rust" / name)
    manifest = tree / "Cargo.toml"
    text = manifest.read_text()
    for name in TESTS_ONLY:
        text, count = re.subn(rf'"rust/{name}",? ?', "", text, count=1)
        if count != 1:
            raise SystemExit(f"{manifest}: rust/{name} is not among the members; see TESTS_ONLY")
    manifest.write_text(text)
    for crate in (tree / "rust").glob("*/Cargo.toml"):
        crate.write_text(DEV_TABLE.sub("", crate.read_text()))
    before = locked(tree)
    # Not --locked: what the tables above named leaves the lock file.
    subprocess.run(
        ["cargo", "vendor", "--quiet", "--versioned-dirs", "vendor"],
        cwd=tree,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    if not locked(tree) <= before:
        raise SystemExit(f"cargo chose other crates than Cargo.lock names: {sorted(locked(tree) - before)}")
    (tree / ".cargo").mkdir(exist_ok=True)
    (tree / ".cargo" / "config.toml").write_text(CONFIG)


def locked(tree: Path) -> set[tuple[str, str, str]]:
    """Name, version and hash of every crate of a registry in the lock file."""
    packages = tomllib.loads((tree / "Cargo.lock").read_text())["package"]
    return {(one["name"], one["version"], one["checksum"]) for one in packages if "checksum" in one}


def pack(tree: Path, path: Path) -> None:
    """Writes `tree` as an archive: names in order, the time of the commit, nobody's files."""
    when = int(os.environ.get("SOURCE_DATE_EPOCH") or commit_time())

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = when, 0, 0, "", ""
        entry.mode = 0o755 if entry.mode & 0o100 else 0o644
        return entry

    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for file in sorted(file for file in tree.rglob("*") if file.is_file()):
            tar.add(file, f"{tree.name}/{file.relative_to(tree)}", filter=plain)
    with path.open("wb") as file, gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=when) as packed:
        packed.write(content.getvalue())


def commit_time() -> str:
    """Seconds since 1970."""
    done = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


if __name__ == "__main__":
    raise SystemExit(main())
