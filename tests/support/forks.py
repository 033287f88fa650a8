"""Scripts in processes that begin where another stands: torch is imported and has exported a first model.

Both take seconds of a processor and are the same for every script. A script has a main module, a folder, an
output and a random state of its own, and imports pteron itself, so that an import it forgot is an error; who
tests imports of torch takes `own_interpreter`.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.cpu_budgets import busy, elsewhere

_ROOT = Path(__file__).resolve().parents[2]


def _prepare() -> None:
    """What all scripts would do again."""
    import torch

    state = torch.get_rng_state()
    torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)).run_decompositions()
    torch.set_rng_state(state)


def _run(request: dict[str, Any]) -> None:
    """The script, in a child that has just begun."""
    import runpy

    os.setsid()
    for number, flags in enumerate((os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)):
        file = os.open(request["files"][number], flags)
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    sys.argv = [request["script"], *request["arguments"]]
    sys.path[0] = str(Path(request["script"]).parent.absolute())
    code = 0
    try:
        runpy.run_path(request["script"], run_name="__main__")
    except SystemExit as e:
        if isinstance(e.code, str):
            print(e.code, file=sys.stderr)
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    # As an interpreter ends: threads, what is registered, buffers.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _serve() -> None:
    """Starts a child for each line of the input, says its number, then how it ended."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _prepare()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            out.close()
            _run(json.loads(line))
        print(child, file=out, flush=True)
        _, status, usage = os.wait4(child, 0)
        print(os.waitstatus_to_exitcode(status), busy(usage), file=out, flush=True)


class Forks:
    """The process that children begin at."""

    def __init__(self) -> None:
        """Starts it; it is ready when it answers the first request."""
        paths = filter(None, [str(_ROOT), *sys.path])
        self._server = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=_ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self.close)

    def close(self) -> None:
        """Ends it."""
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()

    def _heard(self) -> str:
        """The next line that it says."""
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        assert line, f"the process to fork from has ended with status {self._server.wait()}"
        return line

    def run(
        self,
        script: Path,
        *arguments: object,
        folder: Path,
        said: str = "",
        timeout: float = 300,
    ) -> subprocess.CompletedProcess[str]:
        """Runs `script` in `folder`, with `said` as its input; after `timeout` seconds it is killed."""
        with tempfile.TemporaryDirectory() as scratch:
            return self._run(script, arguments, folder, Path(scratch), said, timeout)

    def _run(
        self,
        script: Path,
        arguments: tuple[object, ...],
        folder: Path,
        scratch: Path,
        said: str,
        timeout: float,
    ) -> subprocess.CompletedProcess[str]:
        """As `run`; files in `scratch` hold what the script is told and says."""
        assert self._server.stdin is not None
        files = [scratch / name for name in ("said.txt", "stdout.txt", "stderr.txt")]
        for file, content in zip(files, (said, "", ""), strict=True):
            file.write_text(content)
        request = {
            "script": str(script),
            "arguments": [str(a) for a in arguments],
            "folder": str(folder),
            "files": [str(file) for file in files],
        }
        print(json.dumps(request), file=self._server.stdin, flush=True)
        child = int(self._heard())
        clock = threading.Timer(timeout, os.killpg, (child, signal.SIGKILL))
        clock.start()
        code, taken = self._heard().split()
        clock.cancel()
        elsewhere[0] += float(taken)
        _, out, error = (file.read_text(errors="replace") for file in files)
        return subprocess.CompletedProcess([str(script)], int(code), out, error)


@cache
def forks() -> Forks:
    """The one of this process of tests."""
    return Forks()


if __name__ == "__main__":
    _serve()
