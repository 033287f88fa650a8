"""An operator of one's own, from `torch.library` to a kernel that runs without torch.

    python custom_operator.py export fence.pte         # torch: defines the operator, exports a model with it
    python custom_operator.py run fence.pte            # no torch: registers the kernel, runs the program

The operator says which points lie in a polygon: a loop over edges that PyTorch has no operator for.
"""

from __future__ import annotations

import argparse

import numpy as np
import numpy.typing as npt

import pteron

#: A plan of the fence and of the points that are asked for, as (x, y).
FENCE = ((1.0, 0.5), (9.0, 1.0), (7.0, 3.0), (9.5, 5.5), (4.0, 4.0), (1.5, 5.5))


def inside(points: npt.NDArray[np.float32], fence: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """The kernel: which of points [n, 2] lie inside of a polygon [corners, 2], by crossings of its edges."""
    x, y = points[:, 0], points[:, 1]
    found = np.zeros(len(points), bool)
    for (x0, y0), (x1, y1) in zip(fence, np.roll(fence, -1, axis=0), strict=True):
        if y0 != y1:
            found ^= ((y0 > y) != (y1 > y)) & (x < (x1 - x0) * (y - y0) / (y1 - y0) + x0)
    return found


def export(output: str) -> None:
    """A model that moves points by an offset and asks which of them are inside of the fence."""
    import torch

    @torch.library.custom_op(
        "fences::inside", mutates_args=(), schema="(Tensor points, Tensor fence) -> Tensor"
    )
    def operator(points: torch.Tensor, fence: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(inside(points.numpy(), fence.numpy()))

    @operator.register_fake
    def shape(points: torch.Tensor, fence: torch.Tensor) -> torch.Tensor:
        return points.new_empty(points.shape[0], dtype=torch.bool)

    class Fence(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("fence", torch.tensor(FENCE))

        def forward(self, points: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
            return operator(points + offset, self.fence)

    pteron.register_kernel("fences::inside", inside)  # so that the export can check the program
    count = torch.export.Dim("count", min=1, max=4096)
    shapes = {"points": {0: count}, "offset": None}
    pteron.export(Fence().eval(), (torch.rand(8, 2) * 10, torch.zeros(2)), dynamic_shapes=shapes).save(output)


def run(path: str) -> None:
    """Draws what the program says of a grid of points."""
    pteron.register_kernel("fences::inside", inside)
    program = pteron.load(path)
    print(f"operators: {', '.join(program.operators('forward'))}")
    y, x = np.mgrid[0:6:0.5, 0:10:0.25].astype(np.float32)
    points = np.stack([x.ravel(), y.ravel()], axis=1)
    found = program.run("forward", points, np.full(2, 0.01, np.float32)).reshape(x.shape)
    for row in found[::-1]:
        print("".join("#" if point else "." for point in row))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("export", "run"))
    parser.add_argument("program")
    options = parser.parse_args()
    (export if options.command == "export" else run)(options.program)


if __name__ == "__main__":
    main()
