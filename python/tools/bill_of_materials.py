"""Writes what the native module of the wheel is made of, as CycloneDX 1.6, without a path of the machine.

    python python/tools/bill_of_materials.py FILE [--target TRIPLE]

maturin puts the file into the wheel (PEP 770). Its own bill names crates by where their sources lie on the
machine of the build; this one names them by package URL and hash, and is the same wherever it is made.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MODULE = "pteron-python"


def main() -> None:
    """Writes the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--target", help="the platform of the wheel (default: this one)")
    options = parser.parse_args()
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform"]
    metadata = json.loads(output(*command, options.target or host()))
    hashes = {
        (one["name"], one["version"]): one["checksum"]
        for one in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
        if "checksum" in one
    }
    options.file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(bill(metadata, hashes), indent=1, sort_keys=True) + "\n"
    if str(ROOT) in text or str(Path.home()) in text:
        raise SystemExit("a path of this machine got into the bill of materials")
    options.file.write_text(text)


def output(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def host() -> str:
    """The platform that rustc compiles for by itself."""
    return next(line.split()[1] for line in output("rustc", "-vV").splitlines() if line.startswith("host:"))


def bill(metadata: dict[str, Any], hashes: dict[tuple[str, str], str]) -> dict[str, Any]:
    """The document: the module, every crate that it is built from, and who needs whom.

    Crates that only run in the build, macros and what build scripts need, are of scope `excluded`: nothing of
    them is in the wheel.
    """
    packages = {one["id"]: one for one in metadata["packages"]}
    nodes = {one["id"]: one for one in metadata["resolve"]["nodes"]}
    (root,) = (one["id"] for one in metadata["packages"] if one["name"] == MODULE)
    shipped = reachable(root, packages, nodes, is_shipped=True)
    everything = reachable(root, packages, nodes, is_shipped=False)
    order = sorted(everything, key=lambda one: (packages[one]["name"], packages[one]["version"]))
    components = []
    for one in order:
        package = packages[one]
        component: dict[str, Any] = {
            "type": "library",
            "bom-ref": purl(package),
            "name": package["name"],
            "version": package["version"],
            "purl": purl(package),
            "scope": "required" if one in shipped else "excluded",
            "licenses": [{"expression": (package["license"] or "NOASSERTION").replace("/", " OR ")}],
        }
        checksum = hashes.get((package["name"], package["version"]))
        if checksum is not None:
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        components.append(component)
    needed = [
        {
            "ref": purl(packages[one]),
            "dependsOn": sorted(purl(packages[dep]) for dep in needs(nodes[one], packages, is_shipped=False)),
        }
        for one in [root, *order]
    ]
    top = packages[root]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": purl(top),
                "name": "pteron",
                "version": top["version"],
                "purl": f"pkg:pypi/pteron@{top['version']}",
            }
        },
        "components": components,
        "dependencies": needed,
    }


def needs(node: dict[str, Any], packages: dict[str, Any], *, is_shipped: bool) -> list[str]:
    """What a crate depends on but for its tests, or with `is_shipped` what gets into the binary with it."""
    out = []
    for dep in node["deps"]:
        kinds = {kind["kind"] for kind in dep["dep_kinds"]}
        is_macro = any("proc-macro" in target["kind"] for target in packages[dep["pkg"]]["targets"])
        if (None in kinds and not (is_shipped and is_macro)) or ("build" in kinds and not is_shipped):
            out.append(dep["pkg"])
    return out


def reachable(root: str, packages: dict[str, Any], nodes: dict[str, Any], *, is_shipped: bool) -> set[str]:
    """Everything that `root` is built from, without itself."""
    found: set[str] = set()
    left = [root]
    while left:
        for one in needs(nodes[left.pop()], packages, is_shipped=is_shipped):
            if one not in found:
                found.add(one)
                left.append(one)
    return found


def purl(package: dict[str, Any]) -> str:
    """The package URL of a crate."""
    return f"pkg:cargo/{package['name']}@{package['version']}"


if __name__ == "__main__":
    main()
