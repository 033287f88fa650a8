"""The C library as users have it: installed, found by pkg-config, linked, misused under AddressSanitizer."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pteron._native import serialize_program
from tests.support.programs import MethodBuilder, assemble, build, counter_method, endless_method, schema

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
EXAMPLES = ROOT / "rust" / "pteron-c" / "examples"
PREFIX = ROOT / "target" / "c-test"
LINEAR = ROOT / "schema" / "samples" / "linear_relu.pte"
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-pedantic", "-g"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]

for tool in ("cargo", "cc", "c++", "pkg-config", "nm"):
    if shutil.which(tool) is None:
        pytest.skip(f"the C library is built and used with {tool}", allow_module_level=True)


@pytest.fixture(scope="module", autouse=True)
def library() -> Path:
    """The folder with the libraries, built from what the sources are now."""
    PREFIX.mkdir(parents=True, exist_ok=True)
    with (PREFIX / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        script = ROOT / "rust" / "pteron-c" / "install.sh"
        done = subprocess.run([script, "dev", PREFIX], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return PREFIX / "lib"


def _pkg_config(*arguments: str) -> list[str]:
    environment = {**os.environ, "PKG_CONFIG_PATH": str(PREFIX / "lib" / "pkgconfig")}
    done = subprocess.run(
        ["pkg-config", *arguments, "pteron"], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def _compile(source: Path, folder: Path, *flags: str) -> Path:
    """The program that a compiler makes of the file with the shared library."""
    compiler = ["c++", "-std=c++14"] if source.suffix == ".cpp" else ["cc", "-std=c11"]
    program = folder / source.stem
    found = [*_pkg_config("--cflags", "--libs"), f"-Wl,-rpath,{PREFIX / 'lib'}"]
    command = [*compiler, *WARNINGS, "-pthread", *flags, str(source), "-o", str(program), *found]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def _run(program: Path, *arguments: object) -> tuple[int, str]:
    """Exit status and output."""
    done = subprocess.run(
        [program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def sanitizers(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The flags that turn on AddressSanitizer, which is there and works."""
    folder = tmp_path_factory.mktemp("sanitizers")
    source, program = folder / "overrun.c", folder / "overrun"
    source.write_text(
        "int main(int argc, char **argv) { int x[2] = {0, 0}; (void)argv; return x[argc + 1]; }"
    )
    command = ["cc", "-g", "-O0", "-fsanitize=address", str(source), "-o", str(program)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("the C compiler has no AddressSanitizer")
    status, text = _run(program)
    assert status != 0
    assert "stack-buffer-overflow" in text
    return SANITIZERS


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("programs") / "counter.pte"
    path.write_bytes(build(counter_method()))
    return path


def _scale(blob: bytes) -> bytes:
    m = MethodBuilder()
    x = m.input(m.tensor([2, 3]), "x")
    out = m.output(m.tensor([2, 3]))
    m.delegate("Scale", [x, out], blob)
    return build(m)


def _custom() -> bytes:
    m = MethodBuilder()
    x = m.input(m.tensor([2], planned=False), "x")
    out = m.output(m.tensor([2]))
    m.call("mine::double.out", [x, out, out])
    return build(m)


def _kept() -> bytes:
    m = MethodBuilder()
    x = m.input(m.tensor([2]), "x")
    out = m.output(m.tensor([2]))
    m.delegate("Keeps", [x, out], b"")
    return build(m)


def _sharing() -> bytes:
    """Two counters over one buffer, in a memory of its own."""
    second = counter_method()
    second.name = "second"
    program = assemble(counter_method(), second)
    for plan in program.execution_plan:
        for value in plan.values:
            info = getattr(value.val, "extra_tensor_info", None)
            if info is not None and info.fully_qualified_name == "total":
                value.val.allocation_info = schema.AllocationDetails(2, 0, 0)
        plan.non_const_buffer_sizes.append(8)
    return serialize_program(program)


def _ones(rows: int) -> np.ndarray:
    import pteron

    return pteron.load(LINEAR).load_method()(np.ones((rows, 4), np.float32))


def test_only_its_functions_are_exported(library: Path) -> None:
    done = subprocess.run(
        ["nm", "-D", "--defined-only", library / "libpteron.so"], capture_output=True, text=True, check=True
    )
    exported = {line.split()[-1] for line in done.stdout.splitlines()}
    header = (PREFIX / "include" / "pteron.h").read_text()
    declared = set(re.findall(r"^(?!static)[^\s/#*].*?\b(pteron_\w+)\(", header, flags=re.MULTILINE))
    assert len(exported) > 30
    assert exported == declared


def test_programs_ask_for_the_major_version(library: Path, tmp_path: Path) -> None:
    program = _compile(EXAMPLES / "run.c", tmp_path)
    done = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True)
    assert "[libpteron.so.1]" in done.stdout
    assert (library / "libpteron.so.1").resolve() == (library / "libpteron.so").resolve()


def test_the_c_example_prints_inputs_outputs_and_state(
    tmp_path: Path, counter: Path, sanitizers: list[str]
) -> None:
    program = _compile(EXAMPLES / "run.c", tmp_path, *sanitizers)
    assert _run(program, counter) == (
        0,
        "input x: float32[2]\noutput output0: float32[2] 10 21\nstate total: float32[2] 10 21\n",
    )
    status, text = _run(program, LINEAR, "backward")
    assert status == 1
    assert text.startswith("MethodNotFoundError: method 'backward': the program has no such method")


def test_a_program_can_be_linked_statically(tmp_path: Path, counter: Path, library: Path) -> None:
    # Without the shared library in the folder the linker takes the static one.
    folder = tmp_path / "static"
    folder.mkdir()
    (folder / "libpteron.a").symlink_to(library / "libpteron.a")
    libraries = [flag for flag in _pkg_config("--libs", "--static") if not flag.startswith("-L")]
    program = tmp_path / "run"
    command = [
        "cc",
        str(EXAMPLES / "run.c"),
        "-o",
        str(program),
        *_pkg_config("--cflags"),
        f"-L{folder}",
        *libraries,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    status, text = _run(program, counter)
    assert status == 0
    assert "state total: float32[2] 10 21" in text


def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "c.md").read_text()
    (block,) = re.findall(r"^```c\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    source = tmp_path / "page.c"
    source.write_text(block)
    status, text = _run(_compile(source, tmp_path), LINEAR)
    import pteron

    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert status == 0, text
    np.testing.assert_allclose(float(text), pteron.load(LINEAR).load_method()(x)[0, 1], rtol=1e-4)


def test_the_cpp_example_runs(tmp_path: Path, sanitizers: list[str]) -> None:
    status, text = _run(_compile(EXAMPLES / "run.cpp", tmp_path, *sanitizers), LINEAR)
    assert status == 0, text
    numbers, error, again = text.splitlines()
    np.testing.assert_allclose([float(n) for n in numbers.split()], _ones(16).ravel(), rtol=1e-4)
    assert error.startswith("InputError: ")
    assert again == "48 values again"


def test_threads_have_a_method_each(tmp_path: Path, sanitizers: list[str]) -> None:
    status, text = _run(_compile(EXAMPLES / "threads.c", tmp_path, *sanitizers), LINEAR, 4, 50)
    assert status == 0, text
    import pteron

    method = pteron.load(LINEAR).load_method()
    for i, line in enumerate(text.splitlines()):
        expected = float(np.sum(method(np.full((16, 4), i + 1, np.float32))))
        assert line.startswith(f"thread {i}: ")
        np.testing.assert_allclose(float(line.split()[-1]), expected, rtol=1e-4)
    assert len(text.splitlines()) == 4


def test_a_backend_in_c_runs_and_its_refusal_is_an_error(tmp_path: Path, sanitizers: list[str]) -> None:
    program = _compile(EXAMPLES / "backend.c", tmp_path, *sanitizers)
    model = tmp_path / "scale.pte"
    model.write_bytes(_scale(b"2.5"))
    assert _run(program, model) == (0, "0 2.5 5 7.5 10 12.5 \n")
    model.write_bytes(_scale(b"not a number"))
    status, text = _run(program, model)
    assert status == 1
    assert "backend Scale" in text
    assert "the blob is not a number" in text


def test_misuse_is_an_error(tmp_path: Path, counter: Path, sanitizers: list[str]) -> None:
    program = _compile(HERE / "misuse.c", tmp_path, *sanitizers)
    assert _run(program, LINEAR, counter, tmp_path) == (0, "all of it was noticed\n")


def test_what_the_examples_do_not_show_works(tmp_path: Path, sanitizers: list[str]) -> None:
    seeds = ROOT / "tests" / "corpus" / "seeds"
    programs = []
    for name, content in (("custom", _custom()), ("sharing", _sharing()), ("kept", _kept())):
        programs.append(tmp_path / f"{name}.pte")
        programs[-1].write_bytes(content)
    external = [seeds / "external_smallest.pte", seeds / "external_smallest.ptd"]
    program = _compile(HERE / "features.c", tmp_path, *sanitizers)
    assert _run(program, *external, *programs) == (0, "all of it works\n")


def test_threads_at_once_are_refused_stopped_and_outlived(tmp_path: Path, sanitizers: list[str]) -> None:
    endless = tmp_path / "endless.pte"
    endless.write_bytes(build(endless_method()))
    program = _compile(HERE / "concurrent.c", tmp_path, *sanitizers)
    assert _run(program, LINEAR, endless) == (0, "nothing hung\n")
    program = _compile(HERE / "concurrent.c", tmp_path)
    assert _run(program, LINEAR, endless, "forks") == (0, "nothing hung\n")


def test_what_c_frees_is_found_when_it_is_read(tmp_path: Path, sanitizers: list[str]) -> None:
    """The sanitizer sees the library's memory, so that the other tests would have failed."""
    source = tmp_path / "freed.c"
    source.write_text(
        '#include "expect.h"\n'
        "int main(int argc, char **argv) {\n"
        "  pteron_program *program = opened(argv[argc - 1]);\n"
        '  pteron_method *method = loaded(program, "forward");\n'
        "  struct pteron_arg x = x_argument(), y;\n"
        "  WORKS(pteron_method_execute(method, &x, 1, NULL));\n"
        "  WORKS(pteron_method_output(method, 0, &y));\n"
        "  WORKS(pteron_method_free(method));\n"
        "  WORKS(pteron_program_free(program));\n"
        "  return ((volatile const float *)y.tensor.data)[0] > 0;\n"
        "}\n"
    )
    status, text = _run(_compile(source, tmp_path, f"-I{HERE}", *sanitizers), LINEAR)
    assert status != 0
    assert "heap-use-after-free" in text
