"""Joint graphs: loss and gradients are outputs of the method."""

from __future__ import annotations

import numpy as np
import torch
from torch.export import ExportedProgram, export
from torch.export.experimental import _export_forward_backward

import pteron
from pteron.exir import ExecutorchBackendConfig, to_edge

X = torch.tensor([[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]])
LABELS = torch.tensor([1, 0])


class Classifier(torch.nn.Module):
    """The loss of two layers, of which one learns, and the classes that they predict."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fixed = torch.nn.Linear(3, 4).requires_grad_(False)
        self.learns = torch.nn.Linear(4, 2)
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.learns(torch.tanh(self.fixed(x)))
        return self.loss(found, labels), found.detach().argmax(dim=1)


def _joint(model: torch.nn.Module) -> ExportedProgram:
    return _export_forward_backward(export(model, (X, LABELS), strict=True))


def test_loss_results_and_gradients_are_eager_s() -> None:
    model = Classifier()
    program = to_edge(_joint(model)).to_executorch()
    method = pteron.load(program.buffer).load_method()
    assert [spec.name for spec in method.outputs] == [
        "output_0",
        "output_1",
        "grad.learns.weight",
        "grad.learns.bias",
    ]
    found = method(X.numpy(), LABELS.numpy())
    assert isinstance(found, tuple)
    loss, classes = model(X, LABELS)
    loss.backward()
    wanted = [loss.detach(), classes, model.learns.weight.grad, model.learns.bias.grad]
    assert len(found) == len(wanted)
    for each, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(each, expected, rtol=1e-5, atol=1e-6)


def test_weights_with_a_gradient_may_lie_in_a_data_file() -> None:
    model = Classifier()
    config = ExecutorchBackendConfig(external_mutable_weights=True)
    program = to_edge(_joint(model)).to_executorch(config)
    (data,) = program._tensor_data.values()
    for parameter in model.learns.parameters():
        content = parameter.detach().numpy().tobytes()
        assert content in bytes(data)
        assert content not in program.buffer
    assert model.fixed.bias.numpy().tobytes() not in bytes(data)
    assert not to_edge(_joint(model)).to_executorch().data_files


def test_a_step_of_an_optimiser_is_a_new_data_file() -> None:
    model = Classifier()
    config = ExecutorchBackendConfig(external_mutable_weights=True)
    first = to_edge(_joint(model)).to_executorch(config).buffer
    losses = []
    for _ in range(3):
        (data,) = to_edge(_joint(model)).to_executorch(config)._tensor_data.values()
        method = pteron.load(first, data=bytes(data)).load_method()
        loss, _, *gradients = method(X.numpy(), LABELS.numpy())
        losses.append(float(loss))
        with torch.no_grad():
            for parameter, gradient in zip(model.learns.parameters(), gradients, strict=True):
                parameter -= 0.5 * torch.from_numpy(np.array(gradient))
    assert losses[0] > losses[1] > losses[2]
