"""Bad input to any command ends in one line, with exit code 1 or 2, and leaves nothing half done."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from pteron.cli import COMMANDS, arguments
from pteron.exir import ExecutorchBackendConfig, to_edge
from tests.cli.conftest import Command, Network

#: Needs a backend that no package brings.
DELEGATES = Path(__file__).resolve().parents[1] / "corpus" / "seeds" / "delegates.pte"
#: How each command is called on a program; `{out}` is the file that it writes.
CALLS = {
    "info": "{p}",
    "check": "{p}",
    "ops": "{p}",
    "build-profile": "{p}",
    "kernels": "{p}",
    "run": "{p} --save {out}",
    "bench": "{p} --duration 0.02",
    "profile": "{p} --runs 1 -o {out}",
    "report": "{p} -o {out}",
    "compare": "{p} --save-values {out}",
    "reduce": "{p} --against rules=all --rtol 1e-30 -o {out}",
    "bisect-rewrites": "{p} --runs 1",
    "size": "{p}",
    "diff": "{p} {p}",
    "graph": "{p} -o {out}",
    "strip": "{p} -o {out}",
    "pack": "{p} -o {out}",
    "convert": "{p} --weights float16 -o {out}",
}
#: Commands that take no program, or a folder (tests/llm/test_generator_command.py).
OTHERS = {"chat", "completion", "export-embeddings", "generate", "knobs", "plugins", "transcribe"}
#: Those that load methods, with inputs that may be wrong.
CALLING = [
    name for name in ("run", "bench", "profile", "compare", "reduce", "bisect-rewrites") if name in CALLS
]
WRITING = [name for name, call in CALLS.items() if "{out}" in call]
#: Other files that commands write, or several of them.
MORE_WRITING = {
    "profile --node-data": "{p} --runs 1 --node-data {out}",
    "compare --save-failing": "{p} --against rules=all --rtol 0 --save-failing {out}",
    "convert --external": "{p} --external {out}.ptd -o {out}",
}
#: Who owns nothing.
NOBODY = 65534
BAD = ("missing", "no folder", "below a file", "a folder", "empty", "text", "cut", "damaged", "no weights")


@pytest.fixture(scope="module")
def bad_files(model_file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file for each word of `BAD`."""
    folder = tmp_path_factory.mktemp("bad")
    content = model_file.read_bytes()
    contents = {
        "empty": b"",
        "text": b"this is no program\n" * 10,
        "cut": content[: len(content) // 2],
        "damaged": content[:64] + b"\xff" * 64 + content[128:],
    }
    paths = {name: folder / f"{name}.pte" for name in BAD}
    for name, data in contents.items():
        paths[name].write_bytes(data)
    paths["a folder"].mkdir()
    paths["no folder"] = folder / "none" / "model.pte"
    paths["below a file"] = paths["text"] / "model.pte"
    exported = torch.export.export(Network().eval(), (torch.randn(1, 3, 8, 8),))
    config = ExecutorchBackendConfig(external_constants=True)
    to_edge(exported).to_executorch(config).save(paths["no weights"])
    return paths


def call(name: str, program: Path, out: Path) -> list[str]:
    """The command line of a command."""
    return [name, *(part.format(p=program, out=out) for part in CALLS[name].split())]


def written_by(name: str, program: Path, out: Path) -> list[str]:
    """As `call`, of `MORE_WRITING` too."""
    if name in CALLS:
        return call(name, program, out)
    words = MORE_WRITING[name].format(p=program, out=out).split()
    return [name.partition(" ")[0], *words]


def assert_one_line(code: int, out: str, err: str) -> None:
    """One line says what is wrong; `check` prints it as what it found."""
    text = err or out
    assert code in (1, 2)
    assert text.count("\n") == 1, text
    assert not err or err.startswith("pteron: ")
    assert "Traceback" not in text
    assert len(text) > len("pteron: ") + 10


def test_every_command_is_here() -> None:
    names = {module.__name__.rpartition(".")[2].replace("_", "-") for module in COMMANDS}
    assert names == set(CALLS) | OTHERS


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("name", CALLS)
def test_programs_that_are_none(
    name: str, kind: str, bad_files: dict[str, Path], command: Command, tmp_path: Path
) -> None:
    done = command(*call(name, bad_files[kind], tmp_path / "out"))
    needs_no_weights = kind == "no weights" and name not in {"check", "kernels", "pack", "convert", *CALLING}
    if needs_no_weights and done.code == 0:
        return  # The table alone says what the command shows.
    assert_one_line(done.code, done.out, done.err)
    assert str(bad_files[kind]) in done.out + done.err or kind == "no weights"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", CALLING)
@pytest.mark.parametrize(
    "text", ["x=1x3x9x9", "x=1x3x8x8:int64", "x=99999x99999x99999x8", "none.npz", "cut.npz", "other.npz"]
)
def test_inputs_that_do_not_fit(
    name: str, text: str, model_file: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("other.npz", y=np.ones(3, np.float32))
    Path("cut.npz").write_bytes(Path("other.npz").read_bytes()[:150])
    before = sorted(tmp_path.iterdir())
    done = command(*call(name, model_file, tmp_path / "out"), "-i", text)
    assert_one_line(done.code, "", done.err)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", CALLS)
def test_a_backend_that_is_not_here(name: str, command: Command, tmp_path: Path) -> None:
    done = command(*call(name, DELEGATES, tmp_path / "out"))
    if name not in {"check", *CALLING}:
        assert done.code == 0  # Load alone says what the command shows.
        return
    assert "BackendWithCompilerDemo" in done.out + done.err
    assert_one_line(done.code, done.out, done.err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        "bench --duration nan",
        "bench --duration inf",
        "bench --threads 1 0",
        "bench --warmup -1",
        "profile --runs 0",
        "profile --most -1",
        "profile --threads x",
        "report --runs -1",
        "compare --against rules=all --rtol nan",
        "compare --against rules=all --threads 0",
        "run --atol -1",
        "run --seed -1",
        "reduce --timeout 0",
        "bisect-rewrites --runs 0",
        "size --depth 0",
        "info --no-such-option",
    ],
)
def test_numbers_out_of_range(words: str, model_file: Path, command: Command, tmp_path: Path) -> None:
    name, *rest = words.split()
    done = command(*call(name, model_file, tmp_path / "out"), *rest)
    assert done.code == 2
    assert_one_line(done.code, "", done.err)
    assert rest[-1] in done.err
    assert list(tmp_path.iterdir()) == []


@contextmanager
def files_of_at_most(nbytes: int) -> Iterator[None]:
    """Larger files cannot be written inside."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("call_of", [*WRITING, *MORE_WRITING])
def test_a_file_that_grows_too_large(
    call_of: str, model_file: Path, command: Command, tmp_path: Path
) -> None:
    with files_of_at_most(64):
        done = command(*written_by(call_of, model_file, tmp_path / "out"))
    assert done.code == 2
    assert "File too large" in done.err
    assert_one_line(done.code, "", done.err)
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_passes_leaves_no_log(model_file: Path, command: Command, tmp_path: Path) -> None:
    done = command("reduce", model_file, "--command", "true", "-o", tmp_path / "part.pte")
    assert done.code == 2
    assert "does not fail" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(params=["a folder", "no folder", "below a file", "full"])
def bad_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Where nothing can be written."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("as it was")
    yield {
        "a folder": tmp_path / "folder",
        "no folder": tmp_path / "none" / "out",
        "below a file": tmp_path / "file" / "out",
        "full": Path("/dev/full"),
    }[request.param]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "as it was"
    assert list((tmp_path / "folder").iterdir()) == []
    assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize("name", WRITING)
def test_places_that_cannot_be_written(
    name: str, bad_place: Path, model_file: Path, command: Command
) -> None:
    done = command(*call(name, model_file, bad_place))
    assert done.code == 2
    assert_one_line(done.code, "", done.err)
    assert str(bad_place) in done.err


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder that every user reaches: those of pytest are of one user alone."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


@contextmanager
def without_privilege() -> Iterator[None]:
    """The superuser may write everywhere: another user does what is inside."""
    is_superuser = os.geteuid() == 0
    if is_superuser:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_superuser:
            os.seteuid(0)


def import_modules(words: list[str], command: Command) -> None:
    """The other user may not be able to read them later. (A reduction looks at files before it begins.)"""
    if words[0] != "reduce":
        command(*words)


@pytest.mark.parametrize("call_of", [*WRITING, *MORE_WRITING])
def test_a_folder_without_permission(
    call_of: str, model_file: Path, command: Command, open_place: Path
) -> None:
    program = shutil.copy(model_file, open_place / "model.pte")
    (open_place / "ours").mkdir()
    words = written_by(call_of, program, open_place / "ours" / "out")
    import_modules(words, command)
    shutil.rmtree(open_place / "ours")
    (open_place / "ours").mkdir(mode=0o555)
    with without_privilege():
        done = command(*words)
    assert done.code == 2
    assert "Permission denied: change its permissions" in done.err
    assert_one_line(done.code, "", done.err)
    assert list((open_place / "ours").iterdir()) == []


@pytest.mark.parametrize("name", [name for name in CALLS if name != "bench" or os.geteuid() != 0])
def test_a_program_that_may_not_be_read(
    name: str, model_file: Path, command: Command, open_place: Path
) -> None:
    program = shutil.copy(model_file, open_place / "model.pte")
    words = call(name, program, open_place / "out")
    import_modules(words, command)
    for path in open_place.iterdir():
        if path.name.startswith("out"):
            path.unlink()
    program.chmod(0)
    with without_privilege():
        done = command(*words)
    assert_one_line(done.code, done.out, done.err)
    assert "Permission denied" in done.out + done.err
    assert str(program) in done.out + done.err
    assert [path.name for path in open_place.iterdir()] == ["model.pte"]


def test_standard_output_on_a_full_disk(model_file: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pteron", "info", str(model_file)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert_one_line(done.returncode, "", done.stderr)
    assert "No space left" in done.stderr


@pytest.mark.parametrize("sizes", [(10, 1000), (1000, 10)])
def test_of_several_files_all_are_written_or_none(sizes: tuple[int, int], tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    paths[0].write_text("as it was")
    contents = {path: b"x" * size for path, size in zip(paths, sizes, strict=True)}
    with files_of_at_most(100), pytest.raises(OSError, match="File too large") as raised:
        arguments.write_files(contents)
    assert raised.value.filename == str(paths[sizes.index(1000)])
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert paths[0].read_text() == "as it was"
    arguments.write_files(contents)
    assert [path.stat().st_size for path in paths] == list(sizes)


def test_both_files_of_a_conversion_or_none(model_file: Path, command: Command, tmp_path: Path) -> None:
    words = written_by("convert --external", model_file, tmp_path / "out")
    assert command(*words).code == 0
    sizes = sorted(path.stat().st_size for path in tmp_path.iterdir())
    assert len(sizes) == 2
    for path in tmp_path.iterdir():
        path.unlink()
    with files_of_at_most(sizes[0]):
        done = command(*words)
    assert done.code == 2
    assert "File too large" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    ["reduce --against rules=all -o part.npz", "compare --against rules=all --save-failing part.npz"],
)
def test_inputs_need_a_name_of_their_own(
    words: str, model_file: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *rest = words.split()
    done = command(name, model_file, *rest)
    assert done.code == 2
    assert "part.npz: the inputs are written to this name" in done.err
    assert_one_line(done.code, "", done.err)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.json"
    out.write_text("as it was")

    def interrupted(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        arguments.write_file(out, "new")
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
    assert out.read_text() == "as it was"


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    arguments.write_file(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"
