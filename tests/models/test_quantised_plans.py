"""What the run half makes of a quantised network at load: integers from the first layer to the last."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

import pteron
from pteron.exir import to_edge
from pteron.quant import quantize
from tests.support.goldens import compare

_GOLDEN = Path(__file__).parent / "golden_plans"


class Network(nn.Module):
    """What image networks are made of: pooling, a residual sum, a join, a change of order, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.inner = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.outer = nn.Conv2d(8, 8, 1)
        self.side = nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(16 * 4 * 4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.stem(x)), 2)
        x = torch.relu(x + self.outer(nn.functional.relu6(self.inner(x))))
        x = torch.cat([x, self.side(x)], 1)
        return self.head(x.permute(0, 2, 3, 1).flatten(1))


def test_the_plan_is_the_reviewed_one() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 3, 8, 8)
    model = quantize(Network().eval(), (x,), calibration=[(x,)], scheme="int8")
    buffer = to_edge(torch.export.export(model, (x,))).to_executorch().buffer
    program = pteron.load(buffer, runtime=pteron.Runtime(isa="portable", num_threads=1))
    plan = program.plan_listing("forward")
    compare(plan, _GOLDEN / "quantised_network_pteron.txt")
    assert plan.count("dequantize_per_tensor") == 0, plan


class Padded(nn.Module):
    """Pads before every convolution, as models with TensorFlow's rules for borders have them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2)
        self.inner = nn.Conv2d(8, 8, 3, groups=8)
        self.outer = nn.Conv2d(8, 8, 1)
        self.last = nn.Conv2d(8, 8, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        pad = nn.functional.pad
        x = nn.functional.relu6(self.stem(pad(x, (0, 1, 0, 1))))
        y = nn.functional.relu6(self.inner(pad(x, (1, 1, 1, 1))))
        x = x + self.outer(pad(y, (0, 0, 0, 0)))
        return self.last(pad(pad(x, (0, 0, 0, 0)), (0, 1, 0, 1)))


def test_padding_is_part_of_the_convolutions() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 3, 16, 16)
    model = quantize(Padded().eval(), (x,), calibration=[(x,)], scheme="int8")
    edge = to_edge(torch.export.export(model, (x,)))
    program = pteron.load(edge.to_executorch().buffer, runtime=pteron.Runtime(isa="portable", num_threads=1))
    plan = program.plan_listing("forward")
    compare(plan, _GOLDEN / "quantised_padded_pteron.txt")
    assert plan.count("integer convolution") == 4, plan
    assert "constant_pad_nd" not in plan, plan
    result = program.load_method("forward").execute([x.numpy()])[0]
    expected = model(x).detach()
    # One step of an integer, where a number lies between two.
    torch.testing.assert_close(
        torch.from_numpy(result), expected, rtol=0, atol=0.02 * float(expected.abs().max())
    )


def test_images_are_quantised_before_they_are_padded() -> None:
    """Quantised by XNNPACK's quantizer, which leaves pads in float."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

    torch.manual_seed(0)
    x = torch.randn(1, 3, 16, 16)
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(Padded().eval(), (x,)).module(), quantizer)
    prepared(x)
    model = convert_pt2e(prepared)
    buffer = to_edge(torch.export.export(model, (x,))).to_executorch().buffer
    listing, results = [], []
    for disabled in ([], ["fuse_integer"], ["fuse_integer", "move_quantise"]):
        runtime = pteron.Runtime(isa="portable", num_threads=1, disabled_rules=disabled)
        program = pteron.load(buffer, runtime=runtime)
        listing.append(program.plan_listing("forward"))
        results.append(program.load_method("forward").execute([x.numpy()])[0])
    assert ["constant_pad_nd" in each for each in listing] == [False, True, True], listing
    assert (results[1] == results[2]).all()
    expected = model(x).detach()
    largest = float(expected.abs().max())
    torch.testing.assert_close(torch.from_numpy(results[0]), expected, rtol=0, atol=0.03 * largest)
