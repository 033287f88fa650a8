"""A headless Chromium, driven over its debugging pipe: it opens files, runs expressions, clicks and types."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

#: Debian's names; `make test-report` says what to install where none is there.
NAMES = ("chromium", "chromium-headless-shell", "google-chrome")
_KEYS = {
    "ArrowRight": 39,
    "ArrowLeft": 37,
    "ArrowDown": 40,
    "ArrowUp": 38,
    "Enter": 13,
    "Escape": 27,
    "Tab": 9,
}


class BrowserError(Exception):
    """The browser refused a command, or a script in the page threw."""


class Browser:
    """One process with one page."""

    def __init__(self, width: int = 1500, height: int = 950) -> None:
        program = next(filter(None, map(shutil.which, NAMES)), None)
        assert program, "no Chromium: apt-get install chromium"
        self._folder = tempfile.TemporaryDirectory(prefix="pteron-chromium-")
        read_here, write_there = os.pipe()
        read_there, write_here = os.pipe()

        # The browser reads commands from descriptor 3 and answers on descriptor 4.
        script = f'exec 3<&{read_there} 4>&{write_there}; exec "$0" "$@"'
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                script,
                program,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                "--force-color-profile=srgb",
                "--remote-debugging-pipe",
                f"--window-size={width},{height}",
                f"--user-data-dir={self._folder.name}",
                "about:blank",
            ],
            pass_fds=(read_there, write_there),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_there)
        os.close(write_there)
        self._input = os.fdopen(write_here, "wb", buffering=0)
        self._output = os.fdopen(read_here, "rb", buffering=0)
        self._left = b""
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        pages = self.send("Target.getTargets")["targetInfos"]
        target = next(one["targetId"] for one in pages if one["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.size(width, height)

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)
        self._input.close()
        self._output.close()
        self._folder.cleanup()

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command to the page; its answer. What happens until then is kept in `events`."""
        return self._send(self._session, method, parameters)

    def _send(self, session: str | None, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        self._input.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            part = os.read(self._output.fileno(), 1 << 20)
            if not part:
                raise BrowserError("the browser has ended")
            self._left += part
        text, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def size(self, width: int, height: int) -> None:
        """The size of the page in pixels."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, scheme: str) -> None:
        """`light` or `dark`."""
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, path: Path) -> None:
        """Opens a file from disk and waits until its script is done."""
        self.events.clear()
        self.send("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())
        self.frame()

    def run(self, expression: str) -> Any:
        """The value of an expression, or of the promise that it is."""
        done = self.send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True
        )
        if "exceptionDetails" in done:
            raise BrowserError(json.dumps(done["exceptionDetails"])[:2000])
        return done["result"].get("value")

    def run_in_frame(self, expression: str) -> Any:
        """The value of an expression in the one frame inside the page, which has a process of its own."""
        targets = self._send(None, "Target.getTargets", {})["targetInfos"]
        (target,) = (one["targetId"] for one in targets if one["type"] == "iframe")
        session = self._send(None, "Target.attachToTarget", {"targetId": target, "flatten": True})
        done = self._send(
            session["sessionId"], "Runtime.evaluate", {"expression": expression, "returnByValue": True}
        )
        return done["result"].get("value")

    def frame(self) -> None:
        """Waits until what was asked for is on the screen."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def click(self, selector: str, x: float = 0.5, y: float = 0.5) -> None:
        """A click of the mouse at a share of the width and height of an element."""
        self.run(
            f"document.querySelector({json.dumps(selector)}).scrollIntoView("
            "{block: 'center', behavior: 'instant'})"
        )
        box = self.run(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return [b.x, b.y, b.width, b.height]; })()"
        )
        at = {"x": box[0] + box[2] * x, "y": box[1] + box[3] * y, "button": "left", "clickCount": 1}
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=at["x"], y=at["y"])
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, **at)
        self.frame()

    def key(self, name: str) -> None:
        """A key, pressed and released."""
        text = {} if len(name) > 1 else {"text": name}
        for kind in ("keyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=name,
                windowsVirtualKeyCode=_KEYS.get(name, ord(name[0].upper())),
                **(text if kind == "keyDown" else {}),
            )
        self.frame()

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """A picture of what is in sight, or of the whole page."""
        picture = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(picture["data"]))

    def pdf(self, path: Path) -> None:
        """The page on paper."""
        path.write_bytes(base64.b64decode(self.send("Page.printToPDF", printBackground=True)["data"]))

    def complaints(self) -> list[str]:
        """Exceptions, errors of the console and refusals of the policy since the page was opened."""
        self.run("1")
        found = []
        for event in self.events:
            kind, parameters = event.get("method"), event.get("params", {})
            if kind == "Runtime.exceptionThrown":
                found.append(json.dumps(parameters["exceptionDetails"])[:1000])
            elif kind == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
                found.append(str(parameters["args"]))
            elif kind == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                found.append(parameters["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """Addresses that the page asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
