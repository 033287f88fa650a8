"""What the wheel says of the crates it is made of: all of them, with hashes, and no path of a machine."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_bill_names_every_crate_and_no_path(tmp_path: Path) -> None:
    file = tmp_path / "bill.json"
    script = ROOT / "python" / "tools" / "bill_of_materials.py"
    subprocess.run([sys.executable, script, file], check=True)
    text = file.read_text()
    assert "file://" not in text
    assert "/home/" not in text
    bill = json.loads(text)
    parts = {one["name"]: one for one in bill["components"]}
    locked = {
        (one["name"], one["version"]): one.get("checksum")
        for one in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    }
    for one in bill["components"]:
        checksum = locked[one["name"], one["version"]]
        assert one.get("hashes", [{}])[0].get("content") == checksum
    assert parts["pteron-runtime"]["scope"] == parts["pyo3"]["scope"] == "required"
    assert parts["pyo3-macros"]["scope"] == "excluded"
    # What tests alone need is no part of it.
    assert "proptest" not in parts
    assert "criterion" not in parts
    references = {one["bom-ref"] for one in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    for edge in bill["dependencies"]:
        assert {edge["ref"], *edge["dependsOn"]} <= references
