"""Checks wheels as the tools of the packaging authority see them.

    python tests/platforms/check_wheels.py FOLDER

Of every wheel: the stable interface of the Python in its name and nothing else (abi3audit), no path of this
machine, a bill of materials. Of those for Linux also: no newer glibc or musl than the name says, and no
foreign library (auditwheel).
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(sys.executable).parent


def faults(wheel: Path) -> list[str]:
    """What is wrong with a wheel."""
    found = []
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for name in names:
            content = archive.read(name)
            found += [
                f"{name} holds {path}"
                for path in (str(ROOT), str(Path.home()))
                if f"{path}/".encode() in content
            ]
    if not any(re.search(r"\.dist-info/sboms/.*\.json$", name) for name in names):
        found.append("there is no bill of materials in it")
    if "-abi3-" in wheel.name:
        done = run("abi3audit", "--strict", "--summary", wheel)
        print(done.stdout + done.stderr, end="")
        if done.returncode != 0:
            found.append("abi3audit finds more than the stable interface")
    if "linux" in wheel.name:
        done = run("auditwheel", "show", "--json", wheel)
        if done.returncode != 0:
            return [*found, f"auditwheel: {done.stderr.strip()}"]
        seen = json.loads(done.stdout)
        policy, said = str(seen["overall_tag"]), wheel.name
        print(f"{wheel.name}: auditwheel says {policy}")
        if oldest(policy) is None or oldest(policy) != oldest(said):
            found.append(f"auditwheel says {policy}")
    return found


def oldest(tag: str) -> tuple[str, int, int] | None:
    """The C library that a tag names, and its oldest version."""
    match = re.search(r"(manylinux|musllinux)_(\d+)_(\d+)_", tag)
    return None if match is None else (match[1], int(match[2]), int(match[3]))


def run(tool: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A tool that is installed beside this Python."""
    return subprocess.run([TOOLS / tool, *arguments], capture_output=True, text=True, check=False)


def main() -> int:
    """1 where anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    wheels = sorted(parser.parse_args().folder.glob("*.whl"))
    if not wheels:
        parser.error("there is no wheel in the folder")
    is_bad = False
    for wheel in wheels:
        for fault in faults(wheel):
            print(f"{wheel.name}: {fault}", file=sys.stderr)
            is_bad = True
        print(f"{wheel.name}: {wheel.stat().st_size} bytes")
    return 1 if is_bad else 0


if __name__ == "__main__":
    sys.exit(main())
