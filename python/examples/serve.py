"""Puts a program behind the Open Inference Protocol, and asks it: what KServe and Triton clients speak.

    python serve.py export iris.pte                            # torch: a small network, trained on the spot
    python serve.py serve iris.pte --port 8000                 # no torch; uvicorn is the server
    python serve.py ask http://127.0.0.1:8000 5.1 3.5 1.4 0.2  # the standard library alone

``--port 0`` takes a free port; the server prints its address. It checks no identity: put it behind one
that does.
"""

from __future__ import annotations

import argparse
import json
import urllib.request

NAMES = ("setosa", "versicolor", "virginica")


def export(output: str) -> None:
    """A network that names the kind of an iris: centimetres, float32 [flowers, 4], to scores [flowers, 3]."""
    import torch
    from sklearn.datasets import load_iris
    from torch import nn

    import pteron

    torch.manual_seed(0)
    flowers, kinds = (torch.from_numpy(part) for part in load_iris(return_X_y=True))
    flowers = flowers.float()
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3), nn.Softmax(-1))
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.02)
    for _ in range(200):
        loss = nn.functional.nll_loss(model(flowers).log(), kinds)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    count = torch.export.Dim("count", min=1, max=256)
    pteron.export(model.eval(), (flowers[:2],), dynamic_shapes=({0: count},)).save(output)


def serve(program: str, port: int) -> None:
    """Answers until it is stopped; a call has five seconds."""
    import uvicorn

    from pteron.integrations.oip import app

    application = app({"iris": program}, deadline=5.0)
    uvicorn.run(application, host="127.0.0.1", port=port, log_level="info")


def ask(address: str, numbers: list[float]) -> None:
    """Asks which inputs the model has, sends one flower, and prints what it is."""
    with urllib.request.urlopen(f"{address}/v2/models/iris") as answer:
        (entry,) = json.load(answer)["inputs"]
    tensor = {"name": entry["name"], "datatype": "FP32", "shape": [1, 4], "data": numbers}
    request = urllib.request.Request(
        f"{address}/v2/models/iris/infer",
        data=json.dumps({"inputs": [tensor]}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        (output,) = json.load(answer)["outputs"]
    for score, name in sorted(zip(output["data"], NAMES, strict=True), reverse=True):
        print(f"{score:6.1%}  {name}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("export", help="make the program (torch)").add_argument("program")
    serving = commands.add_parser("serve", help="answer requests (no torch)")
    serving.add_argument("program")
    serving.add_argument("--port", type=int, default=8000)
    asking = commands.add_parser("ask", help="send one flower")
    asking.add_argument("address")
    asking.add_argument(
        "numbers", type=float, nargs=4, metavar="CM", help="sepal and petal, length and width"
    )
    options = parser.parse_args()
    if options.command == "export":
        export(options.program)
    elif options.command == "serve":
        serve(options.program, options.port)
    else:
        ask(options.address, options.numbers)


if __name__ == "__main__":
    main()
