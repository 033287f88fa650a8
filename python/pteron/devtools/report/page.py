"""The page of a report: markup, style, script and data in one file.

Names of operators, modules and files are untrusted. They are in the page as JSON alone, in which no character
can end the element around it, and the script makes text nodes of them. A Content-Security-Policy admits this
script and this style sheet by their hashes, and nothing else: no other script, no network.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

#: Joined in this order: each uses what stands before it.
SCRIPTS = (
    "model.js",
    "elements.js",
    "colours.js",
    "selection.js",
    "zoom.js",
    "summary.js",
    "table.js",
    "flame.js",
    "timeline.js",
    "layout.js",
    "graph.js",
    "memory.js",
    "treemap.js",
    "compare.js",
    "main.js",
)
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>pteron report</title>
<style>{style}</style>
</head>
<body>
<noscript>This report needs JavaScript, which is in the file itself.</noscript>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def page(data: Mapping[str, Any]) -> str:
    """The page that shows `data`: the same text for the same data."""
    assets = resources.files("pteron.devtools.report") / "assets"
    script = "".join((assets / name).read_text(encoding="utf-8") for name in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{script}}})();\n'
    style = (assets / "report.css").read_text(encoding="utf-8")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
    return PAGE.format(policy=policy, style=style, data=as_element(data), script=script)


def as_element(data: Any) -> str:
    """JSON that may stand in a script element: ASCII without `<`, `>` and `&`."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
