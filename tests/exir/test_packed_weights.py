"""Files that bring their packed weights along: load packs nothing, and nothing else changes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

import pteron
from pteron.errors import ExportError, ProgramError
from pteron.exir import ExecutorchBackendConfig, to_edge
from tests.exir.small_models import CASES, edge_program_of
from tests.models.test_golden_plans import tokens

# Constants (count, bytes) that a rule computes at load, packs in the file or not: a bias with what is added.
_COMPUTED = {"everything": (1, 24)}
# A fully connected, a convolutional and a recurrent model: between them every packed format.
_MODELS = ("mlp_dynamic", "convolutional", "depthwise", "fewer_products", "lstm", "everything")


@pytest.fixture(scope="module")
def packed() -> dict[str, bytes]:
    config = ExecutorchBackendConfig(packed_weights=True)
    return {name: edge_program_of(name).to_executorch(config).buffer for name in _MODELS}


@pytest.fixture(scope="module")
def raw() -> dict[str, bytes]:
    return {name: edge_program_of(name).to_executorch().buffer for name in _MODELS}


def _results(program: Any, name: str) -> list[Any]:
    case = CASES[name]
    with warnings.catch_warnings():
        # torch's own tree code warns about itself.
        warnings.simplefilter("ignore", FutureWarning)
        return [np.asarray(leaf) for leaf in tree_leaves(program.load_method()(*case.args, **case.kwargs))]


@pytest.mark.parametrize("name", _MODELS)
@pytest.mark.parametrize("isa", ["portable", "avx2", None])
def test_load_packs_nothing_and_results_are_the_same_bytes(name, isa, packed, raw) -> None:
    runtime = pteron.Runtime(isa=isa, num_threads=1)
    with_packs = pteron.load(packed[name], runtime=runtime)
    without = pteron.load(raw[name], runtime=runtime)
    results = _results(with_packs, name)
    for result, expected in zip(results, _results(without, name), strict=True):
        np.testing.assert_array_equal(result, expected)
    computed = _COMPUTED.get(name, (0, 0))
    assert with_packs.pack_stats == computed
    stored = with_packs.stored_pack_stats
    assert (stored[0] + computed[0], stored[1] + computed[1]) == without.pack_stats
    assert without.pack_stats[0] >= 2
    assert without.stored_pack_stats == (0, 0)


@pytest.mark.parametrize("name", _MODELS)
def test_a_program_with_packs_runs_with_rewrites_off(name, packed, raw) -> None:
    runtime = pteron.Runtime(num_threads=1, disabled_rules=["all"])
    results = _results(pteron.load(packed[name], runtime=runtime), name)
    for result, expected in zip(results, _results(pteron.load(raw[name]), name), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_a_saved_program_uses_its_packs_too(tmp_path: Path) -> None:
    manager = edge_program_of("mlp").to_executorch(ExecutorchBackendConfig(packed_weights=True))
    manager.save(tmp_path / "mlp.pte")
    for mmap in (True, False):
        program = pteron.load(tmp_path / "mlp.pte", mmap=mmap)
        program.load_method()
        assert program.pack_stats == (0, 0)
        assert program.stored_pack_stats[0] == 2
    assert {"pteron.packed", "pteron.packed.0", "pteron.packed.1"} <= program.named_data.keys()


def test_weights_of_fewer_products_are_stored_transformed(packed) -> None:
    program = pteron.load(packed["fewer_products"])
    assert program.plan_listing().count("by winograd") == 2
    index = bytes(program.named_data["pteron.packed"]).decode()
    assert index.count('"f32_winograd_2x2_3x3_nr32_v1"') == 2
    program.load_method()
    assert program.pack_stats == (0, 0)
    # One for each convolution: those that a rewrite only thought of are not made.
    assert program.stored_pack_stats[0] == 3


def test_weights_that_rules_make_of_several_are_made_at_load() -> None:
    """Filters split for maps of two sizes, products folded into one. The rest is in the file."""
    model, x = tokens()
    edge = to_edge(torch.export.export(model, (x,)))
    manager = edge.to_executorch(ExecutorchBackendConfig(packed_weights=True))
    raw = pteron.load(to_edge(torch.export.export(model, (x,))).to_executorch().buffer)
    program = pteron.load(manager.buffer)
    assert program.plan_listing() == raw.plan_listing()
    result = np.asarray(program.load_method()(x))
    np.testing.assert_array_equal(result, np.asarray(raw.load_method()(x)))
    with torch.no_grad():
        expected = model(x).numpy()
    assert np.abs(result - expected).max() < 1e-5 * np.abs(expected).max()
    stored, made = program.stored_pack_stats, program.pack_stats
    assert (stored[0] + made[0], stored[1] + made[1]) == raw.pack_stats
    assert 0 < made[1] < stored[1]


def test_a_model_without_weights_gets_no_index() -> None:
    config = ExecutorchBackendConfig(packed_weights=True)
    program = pteron.load(edge_program_of("accumulator").to_executorch(config).buffer)
    assert not [key for key in program.named_data if key.startswith("pteron.packed")]


def test_writing_packs_is_deterministic(packed) -> None:
    config = ExecutorchBackendConfig(packed_weights=True)
    assert edge_program_of("depthwise").to_executorch(config).buffer == packed["depthwise"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"f32_nr32_v1"', b'"f32_nr32_v2"', r"packed format that this version does not know.*f32_nr32_v2"),
        (b'"version":1', b'"version":2', "a version that this runtime does not know"),
        (b'"shape":[8,16]', b'"shape":[8,96]', "a packed weight has the wrong size"),
        (b'"shape":[8,16]', b'"shape":[8116]', "packed format does not hold|differ in rank"),
        (b'"dtype":"float32"', b'"dtype":"float64"', "does not hold this element type"),
        (b'"dtype":"float32"', b'"dtype":"float99"', "unknown element type"),
        (b'"pteron.packed.1"', b'"pteron.packed.9"', "names data that the file does not have"),
        (b'"nbytes":512', b'"nbytes":9e9', "without a proper 'nbytes'"),
        (b'"nbytes":512', b'"nbytes":999', "a byte range lies outside its container"),
        (b'"constant"', b'"konstant"', "without 'constant'"),
        (b'{"packs"', b'["packs"', "is not JSON"),
    ],
)
def test_a_damaged_index_is_refused(old: bytes, new: bytes, message: str) -> None:
    data = edge_program_of("mlp").to_executorch(ExecutorchBackendConfig(packed_weights=True)).buffer
    start = data.index(b'{"packs"')
    damaged = data[:start] + data[start:].replace(old, new, 1)
    assert damaged != data
    with pytest.raises(ProgramError, match=message):
        pteron.load(damaged)


def test_any_numbers_in_a_pack_are_safe(packed) -> None:
    """A pack is numbers only: whatever they are, a program loads and runs, and computes with them."""
    for name, data in packed.items():
        program = pteron.load(data)
        packs = [bytes(pack) for key, pack in program.named_data.items() if key.startswith("pteron.packed.")]
        for fill in (b"\xff", b"\x7f"):
            changed = data
            for pack in packs:
                changed = changed.replace(pack, fill * len(pack))
            assert changed != data
            assert len(_results(pteron.load(changed), name)) == len(_results(program, name))


@pytest.mark.parametrize("kernels", ["executorch-portable", ["aten::add.out"]])
def test_packs_for_kernels_that_cannot_read_them_are_refused(kernels) -> None:
    with pytest.raises(ExportError, match="only this package's own kernels read packed weights"):
        ExecutorchBackendConfig(packed_weights=True, kernels=kernels)
