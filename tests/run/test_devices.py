"""Programs with memory of devices that no backend serves: what loads, what is refused and how."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pteron
from pteron import _native
from pteron._native import serialize_program
from tests.support.programs import add_method, assemble, build, delegate_method, on_device, schema

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Sum:
    """Adds what it is given."""

    num_outputs = 1

    def init(self, *_: object) -> Sum:
        return self

    def execute(self, _: object, inputs: Any, outputs: Any) -> None:
        np.copyto(np.asarray(outputs[0]), np.asarray(inputs[0]) + np.asarray(inputs[1]))


@pytest.fixture
def runtime() -> pteron.Runtime:
    runtime = pteron.Runtime()
    pteron.register_backend("Mine", Sum(), runtime=runtime)
    return runtime


def _program(*methods: Any, label_only: bool = False) -> bytes:
    return serialize_program(on_device(assemble(*methods), label_only=label_only))


def test_only_the_method_that_needs_the_device_is_refused(runtime: pteron.Runtime) -> None:
    program = pteron.load(_program(delegate_method("Mine"), add_method(name="plain")), runtime=runtime)
    assert program.methods == ("forward", "plain")
    plain = program.load_method("plain")
    for _ in range(2):
        with pytest.raises(pteron.MissingBackendError) as caught:
            program.load_method("forward")
        np.testing.assert_array_equal(plain(X, X), X + X)
    error = caught.value
    assert (error.method, error.instruction) == ("forward", 2)
    for part in (
        "backend Mine: the method needs",
        "memory on device cuda:2, and no backend here serves that device",
        "64 bytes on device cuda:2 (arena 1), for value",
        "float32[2, 3]",
        "enable_non_cpu_memory_planning=False",
    ):
        assert part in str(error)


@pytest.mark.parametrize("use", ["run", "load_methods"])
def test_every_way_to_a_method_refuses(runtime: pteron.Runtime, use: str) -> None:
    program = pteron.load(_program(delegate_method("Mine")), runtime=runtime)
    with pytest.raises(pteron.MissingBackendError, match="on device cuda:2"):
        program.run("forward", X, X) if use == "run" else program.load_methods(["forward"])


def test_the_device_is_asked_for_before_the_backend() -> None:
    # Who lacks both learns of the device first: registering the backend would not be enough.
    program = pteron.load(_program(delegate_method("Nobody")), runtime=pteron.Runtime())
    with pytest.raises(pteron.MissingBackendError, match="on device cuda:2"):
        program.load_method()


def test_a_tensor_that_is_only_said_to_be_on_a_device_is_the_host_s(runtime: pteron.Runtime) -> None:
    program = pteron.load(_program(delegate_method("Mine"), label_only=True), runtime=runtime)
    np.testing.assert_array_equal(program.load_method()(X, X), X + X)


def test_an_input_that_the_caller_would_give_on_a_device_is_refused() -> None:
    written = assemble(add_method(planned=False))
    tensor = written.execution_plan[0].values[0].val
    tensor.extra_tensor_info = schema.ExtraTensorInfo(device_type=schema.DeviceType.CUDA)
    program = pteron.load(serialize_program(written))
    with pytest.raises(
        pteron.MissingBackendError, match=r"got input 0, value 0, float32\[2, 3\] on device cuda:0"
    ):
        program.load_method()


def test_copies_within_the_host_s_memory_are_copies() -> None:
    method = add_method()
    x, copied, back = method.inputs[0], method.tensor([2, 3]), method.tensor([2, 3])
    method.call("et_copy::_h2d_copy.out", [x, copied, copied])
    method.call("et_copy::_d2h_copy.out", [copied, back, back])
    method.add(back, back, method.outputs[0])
    np.testing.assert_array_equal(pteron.load(build(method)).load_method()(X, X), 2 * X)


def test_the_listing_shows_devices() -> None:
    listing = pteron.load(_program(delegate_method("Mine"))).listing()
    assert "  arena 1: 64 bytes on cuda:2\n" in listing
    assert "float32[2, 3], arena 1 at 0 on cuda:2\n" in listing
    assert " on c" not in pteron.load(build(delegate_method("Mine"))).listing()


def test_a_program_without_devices_is_written_as_before() -> None:
    plain = assemble(delegate_method("Mine"))
    expected = serialize_program(plain)
    plain.execution_plan[0].non_const_buffer_device = []
    assert serialize_program(plain) == expected
    assert _native.strip(_program(delegate_method("Mine"))) == _program(delegate_method("Mine"))
