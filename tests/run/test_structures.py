"""Arguments and results in the structure that was exported."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import pteron
from pteron.exir import to_edge
from tests.support.programs import MethodBuilder, build, call_tree, leaf, node, tree_text


def _sums(count: int, input_tree: str, output_tree: str) -> pteron.Method:
    """`count` inputs; output i is input i plus itself."""
    m = MethodBuilder()
    xs = [m.input(m.tensor([2]), f"x{i}") for i in range(count)]
    for x in xs:
        out = m.output(m.tensor([2]))
        m.add(x, x, out)
    m.input_tree, m.output_tree = input_tree, output_tree
    return pteron.load(build(m)).load_method()


A, B, C = (np.full(2, i, dtype=np.float32) for i in (1, 2, 3))


def test_nested_containers_in_and_out() -> None:
    inner = node("builtins.dict", [leaf(), node("builtins.list", [leaf()])], ["b", "a"])
    method = _sums(3, call_tree([leaf(), inner]), tree_text(node("builtins.tuple", [leaf(), inner])))
    first, rest = method(A, {"a": [C], "b": B})
    assert isinstance(rest, dict)
    assert list(rest) == ["b", "a"]
    np.testing.assert_array_equal(first, 2 * A)
    np.testing.assert_array_equal(rest["b"], 2 * B)
    assert isinstance(rest["a"], list)
    np.testing.assert_array_equal(rest["a"][0], 2 * C)


def test_keyword_arguments_by_name() -> None:
    method = _sums(3, call_tree([leaf()], {"mask": leaf(), "scale": leaf()}), "")
    for kwargs in ({"mask": B, "scale": C}, {"scale": C, "mask": B}):
        results = method(A, **kwargs)
        assert isinstance(results, tuple)
        for result, x in zip(results, (A, B, C), strict=True):
            np.testing.assert_array_equal(result, 2 * x)


class Attend(torch.nn.Module):
    """Parameters by position, with a name that graphs cannot have, in a nest, and by name alone."""

    def forward(self, input: Tensor, pair: tuple[Tensor, Tensor], *, scale: Tensor) -> Tensor:  # noqa: A002
        return input * scale + pair[0] - pair[1]


def test_parameters_that_were_positional_may_be_named() -> None:
    x, y, z, scale = (torch.full((2,), float(i)) for i in (1, 2, 4, 8))
    exported = torch.export.export(Attend(), (x, (y, z)), {"scale": scale})
    program = pteron.load(to_edge(exported).to_executorch().buffer)
    expected = x * scale + y - z
    method = program.load_method()
    for call in (method, lambda *args, **kwargs: program.run("forward", *args, **kwargs)):
        for args, kwargs in (
            ((x, (y, z)), {}),
            ((x,), {"pair": (y, z)}),
            ((), {"pair": (y, z), "input": x}),
        ):
            assert torch.equal(call(*args, scale=scale, **kwargs), expected)
        with pytest.raises(
            pteron.InputError, match=r"\(input, pair \(2 values\)\) and keyword arguments scale"
        ):
            call(x, couple=(y, z), scale=scale)
    names = [spec.name for spec in program.inputs()]
    flat = dict(zip(names, (x, y, z, scale), strict=True))
    for execute in (method.execute, lambda inputs: program.execute("forward", inputs)):
        assert torch.equal(execute(dict(reversed(flat.items())))[0], expected)
        with pytest.raises(pteron.InputError, match=f"expected {', '.join(names)}; got {names[0]}"):
            execute({names[0]: x})


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((A, B), {"mask": B, "scale": C}), ((A,), {"mask": B}), ((A,), {"mask": B, "size": C}), ((A, B, C), {})],
)
def test_wrong_arguments_name_what_was_exported(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    method = _sums(3, call_tree([leaf()], {"mask": leaf(), "scale": leaf()}), "")
    with pytest.raises(pteron.InputError) as caught:
        method(*args, **kwargs)
    assert caught.value.expected == "1 positional arguments (x0) and keyword arguments mask, scale"
    assert caught.value.got is not None
    assert caught.value.got.startswith(f"{len(args)} positional")
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ({"a": A}, ["args[0]", "keys b, a", "keys a"]),
        ({"a": [C], "z": B}, ["args[0]", "keys b, a", "keys a, z"]),
        ([A, [C]], ["args[0]", "dict", "got list"]),
        ({"a": C, "b": B}, ["args[0][a]", "list of 1 elements", "numpy.ndarray"]),
        ({"a": [C, C], "b": B}, ["args[0][a]", "1 elements", "2 elements"]),
    ],
)
def test_wrong_structure_says_where(value: Any, parts: list[str]) -> None:
    inner = node("builtins.dict", [leaf(), node("builtins.list", [leaf()])], ["b", "a"])
    method = _sums(2, call_tree([inner]), "")
    with pytest.raises(pteron.InputError) as caught:
        method(value)
    for part in parts:
        assert part in str(caught.value), str(caught.value)


def test_named_tuples_ordered_and_default_dicts() -> None:
    Pair = namedtuple("Pair", "first second")
    ordered = node("collections.OrderedDict", [leaf()], ["k"])
    default = {
        "type": "collections.defaultdict",
        "context": {
            "default_factory_module": "builtins",
            "default_factory_name": "list",
            "dict_context": [7],
        },
        "children_spec": [leaf()],
    }
    opaque = node("models.Pair", [leaf(), leaf()])
    method = _sums(4, call_tree([opaque, ordered, default]), "")
    results = method(Pair(A, B), OrderedDict(k=C), {7: A})
    for result, x in zip(results, (A, B, C, A), strict=True):
        np.testing.assert_array_equal(result, 2 * x)


def test_classes_of_the_exporter_become_dicts() -> None:
    output = node("transformers.modeling_outputs.ModelOutput", [leaf(), leaf()], ["hidden", "pooled"])
    dataclass = node("models.State", [leaf(), leaf()], [["a", "b"], ["never"]])
    method = _sums(2, call_tree([output]), tree_text(dataclass))
    for given in (SimpleNamespace(hidden=A, pooled=B), {"hidden": A, "pooled": B}):
        result = method(given)
        assert list(result) == ["a", "b", "never"]
        np.testing.assert_array_equal(result["b"], 2 * B)
        assert result["never"] is None
    with pytest.raises(pteron.InputTypeError, match=r"hidden, pooled.*ModelOutput"):
        method(SimpleNamespace(hidden=A))


def test_program_run_takes_the_same_structure() -> None:
    m = MethodBuilder()
    x = m.input(m.tensor([2]), "x")
    out = m.output(m.tensor([2]))
    m.add(x, x, out)
    m.input_tree = call_tree([], {"x": leaf()})
    m.output_tree = tree_text(node("builtins.dict", [leaf()], ["y"]))
    program = pteron.load(build(m))
    np.testing.assert_array_equal(program.run("forward", x=A)["y"], 2 * A)
