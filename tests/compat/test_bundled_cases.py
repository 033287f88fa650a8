"""Bundled programs: test cases in a file, and what verifying them says, beside the executorch package."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

import pteron
from pteron.compat import portable_lib as ours
from tests.compat.peer import bundled, same

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")]

X = torch.arange(6.0).reshape(3, 2)


@pytest.mark.parametrize(
    ("dtype", "off_by", "tolerances"),
    [
        (torch.int64, 1, {"rtol": 0.5}),
        (torch.int32, 1, {"rtol": 0.5}),
        (torch.uint8, 1, {"atol": 1.5}),
        (torch.bool, 1, {"atol": 2.0}),
        (torch.float32, 1, {"atol": 1.5}),
        (torch.float32, 1, {}),
        (torch.float64, 1, {"rtol": 0.5}),
    ],
)
def test_tolerances_are_for_what_theirs_are_for(
    theirs: ModuleType, dtype: torch.dtype, off_by: int, tolerances: dict[str, float]
) -> None:
    class Copied(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.clone()

    x = torch.tensor([2, 200]).to(dtype)
    wrong = x.logical_not() if dtype == torch.bool else x + off_by
    bundle = bundled(Copied(), (x, wrong))

    def passes(lib: ModuleType) -> bool:
        loaded = lib._load_bundled_program_from_buffer(bundle)
        try:
            same(loaded.verify_result_with_bundled_expected_output("forward", 0, **tolerances), [x])
        except RuntimeError:
            return False
        return True

    assert passes(ours) == passes(theirs) == (dtype.is_floating_point and tolerances != {})


def test_bundled_programs_of_theirs(theirs: ModuleType) -> None:
    class Tripled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 3

    bundle = bundled(Tripled(), (X, X * 3), (X + 1, X), (X,))

    for lib in (ours, theirs):
        loaded = lib._load_bundled_program_from_buffer(bundle)
        same(loaded.verify_result_with_bundled_expected_output("forward", 0), [X * 3])
        for case in (1, 2, 3, 10**6):
            with pytest.raises(RuntimeError):
                loaded.verify_result_with_bundled_expected_output("forward", case)
        module = lib._load_for_executorch_from_bundled_program(loaded)
        torch.testing.assert_close(module.forward([X])[0], X * 3)

    loaded = ours._load_bundled_program_from_buffer(bundle)
    module = ours._load_for_executorch_from_bundled_program(loaded)
    module.load_bundled_input(loaded, "forward", 1)
    same(module.plan_execute("forward"), [(X + 1) * 3])
    same(module.verify_result_with_bundled_expected_output(loaded, "forward", 0), [X * 3])
    with pytest.raises(pteron.PteronError, match=r"Result verification failed: .*out of tolerance"):
        module.verify_result_with_bundled_expected_output(loaded, "forward", 1)
    # Not there: a RuntimeError, as all is that they refuse, and a ValueError.
    for case in (3, -1, 10**30, -(10**30)):
        for call in (
            lambda case=case: loaded.verify_result_with_bundled_expected_output("forward", case),
            lambda case=case: module.verify_result_with_bundled_expected_output(loaded, "forward", case),
            lambda case=case: module.load_bundled_input(loaded, "forward", case),
        ):
            with pytest.raises(pteron.InputError, match=f"3 test cases; there is no case {case}"):
                call()
    for call in (
        lambda: loaded.verify_result_with_bundled_expected_output("forward", 2),
        lambda: module.verify_result_with_bundled_expected_output(loaded, "forward", 2),
    ):
        with pytest.raises(pteron.InputError, match="case 2 of method 'forward' has no expected outputs"):
            call()
    with pytest.raises(pteron.PteronError, match="No etdump"):
        module.write_etdump_result_to_file("dump")
