"""Detectors of torchvision with all of their post-processing: selection by score, suppression, clipping; in
Faster R-CNN also the proposals and what is pooled for them. Programs run in a process without torch.

`torch.export` takes the detectors but for one function, `torchvision.ops.batched_nms`: it asks data how many
boxes there are, and whether there are any. `without_questions` computes the same without asking. Detectors
that pool from several levels (`fasterrcnn_resnet50_fpn`) stop at `len(rois)` in `MultiScaleRoIAlign` besides.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import UserError
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from pteron.exir import to_edge
from tests.models.model_zoo import calibrate_batch_norm
from tests.models.run_without_torch import run_without_torch
from tests.models.zoo_model import Model

pytest.importorskip("torchvision", reason="there may be no torchvision yet for the newest torch")

from torchvision.models import detection
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.ops import MultiScaleRoIAlign, boxes, nms

# torchvision's shape rule of nms calls a function of torch that has a new name.
pytestmark = pytest.mark.filterwarnings("ignore:`create_unbacked_symint`:FutureWarning")

TOLERANCE = 1e-5
SIZE = 96


class OneImage(nn.Module):
    """What a detector finds on one image, as a tuple."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (found,) = self.model([image])
        return found["boxes"], found["scores"], found["labels"]


def without_questions(found: Tensor, scores: Tensor, labels: Tensor, limit: float) -> Tensor:
    """`torchvision.ops.batched_nms`: boxes of each label moved apart from those of all others."""
    span = torch.cat([found.flatten(), found.new_zeros(1)]).max() + 1
    return nms(found + (labels.to(found) * span)[:, None], scores, limit)


def _backbone() -> nn.Module:
    layers = nn.Sequential(
        nn.Conv2d(3, 16, 3, 4, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 24, 3, 4, 1), nn.ReLU()
    )
    calibrate_batch_norm(layers, torch.rand(2, 3, SIZE, SIZE))
    layers.out_channels = 24
    return layers


def _anchors() -> AnchorGenerator:
    return AnchorGenerator(sizes=((16, 32, 64),), aspect_ratios=((0.5, 1.0, 2.0),))


def _spread(layer: nn.Module, factor: float) -> None:
    """Scores of random weights are nearly equal; these differ, so that some boxes pass and some do not."""
    for parameter in layer.parameters():
        parameter.data.mul_(factor)


def faster_rcnn() -> nn.Module:
    model = detection.FasterRCNN(
        _backbone(),
        num_classes=4,
        min_size=SIZE,
        max_size=SIZE,
        rpn_anchor_generator=_anchors(),
        box_roi_pool=MultiScaleRoIAlign(["0"], 5, 2),
        rpn_post_nms_top_n_test=40,
        box_detections_per_img=30,
    )
    _spread(model.roi_heads.box_predictor.cls_score, 20.0)
    return model


def retinanet() -> nn.Module:
    model = detection.RetinaNet(
        _backbone(), 4, min_size=SIZE, max_size=SIZE, anchor_generator=_anchors(), detections_per_img=40
    )
    head = model.head.classification_head.cls_logits
    _spread(head, 300.0)
    nn.init.zeros_(head.bias)
    return model


def ssdlite() -> nn.Module:
    model = detection.ssdlite320_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=5, detections_per_img=20
    )
    calibrate_batch_norm(model.backbone, torch.rand(2, 3, 320, 320))
    return model


def _compare(build: Callable[[], nn.Module], image: Tensor, folder: Path) -> None:
    torch.manual_seed(0)
    module = OneImage(build()).eval()
    eager = module(image)
    count = eager[0].shape[0]
    assert count >= 5, f"{count} boxes compare little"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(boxes, "batched_nms", without_questions)
        captured = torch.export.export(module, (image,))
    buffer = to_edge(captured).to_executorch().buffer
    other = torch.rand(image.shape, generator=torch.Generator().manual_seed(7))
    model = Model.of(module, {"image": image}, {"image": other})
    for results, given in zip(run_without_torch(buffer, model, folder), (image, other), strict=True):
        for ours, theirs in zip(results, module(given), strict=True):
            assert ours.shape == theirs.shape
            assert ours.dtype == theirs.dtype
            torch.testing.assert_close(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE * SIZE)


@pytest.mark.parametrize("build", [faster_rcnn, retinanet])
@torch.no_grad()
def test_a_detector_finds_what_eager_finds(build: Callable[[], nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(1)
    _compare(build, torch.rand(3, SIZE, SIZE), tmp_path)


@pytest.mark.slow
@torch.no_grad()
def test_ssdlite_finds_what_eager_finds(tmp_path: Path) -> None:
    torch.manual_seed(1)
    _compare(ssdlite, torch.rand(3, 320, 320), tmp_path)


@torch.no_grad()
def test_where_torch_export_stops() -> None:
    """At the questions of `batched_nms`: when this fails, torch takes detectors as they are."""
    torch.manual_seed(0)
    module = OneImage(retinanet()).eval()
    for strict, error in ((False, GuardOnDataDependentSymNode), (True, UserError)):
        with pytest.raises(error, match="Could not guard on data-dependent expression") as stopped:
            torch.export.export(module, (torch.rand(3, SIZE, SIZE),), strict=strict)
        assert "torchvision/ops/boxes.py" in str(stopped.value)
