"""Int8 models here, in ONNX Runtime, OpenVINO and ExecuTorch, beside float32 here: alternating processes.

    python benches/quantised_models.py [MODEL ...] [--threads 1 2] [--pairs 5] [--engines ENGINE ...]
        [--processor-time]

Every engine quantises the same float32 model itself, as its users would, on the same calibration inputs:
`pteron.quant.quantize`; ONNX Runtime's static QDQ with unsigned activations, per channel, and ("exact") with
unsigned weights, whose kernels for AVX2 are exact where those for signed ones saturate; nncf for OpenVINO;
PT2E with XNNPACK's quantizer for ExecuTorch. Each engine runs alone in a fresh process, `pairs` times in
turns. Printed per model and threads: the median time of a call and the relative error of the result beside
float32 in eager PyTorch. The fastest peer stands in the last column, as a ratio. An engine that cannot make a
model has a dash, and says why.

With `--processor-time` the time is that of the processor, for machines that do other work as well; it says
nothing of more than one thread.

The libraries of OpenVINO and ONNX Runtime are in an environment of their own (`make bench-quant` makes it);
`--peers` names its Python.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import open_file
from results import Tables, add_json_option
from timing import cpu_model, median_times

MODELS = ("resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0", "minilm", "bert_base", "vit_base")
#: Engine → the file of a model, and whether the environment of the peers makes and runs it.
ENGINES = {
    "pteron": ("int8.pte", False),
    "pteron f32": ("f32.pte", False),
    "executorch": ("xnnpack.pte", False),
    "onnxruntime": ("qdq.onnx", True),
    "onnxruntime exact": ("qdq_unsigned.onnx", True),
    "openvino": ("nncf.xml", True),
}
CALIBRATION = 4
Call = Callable[[], Any]


def inputs_of(folder: Path, number: int = 0) -> list[Any]:
    """Inputs of the calls (0), or those of a calibration."""
    import numpy as np

    with np.load(folder / f"inputs{number}.npz") as stored:
        return [stored[name] for name in sorted(stored.files)]


def calibration_of(folder: Path) -> list[tuple[Any, ...]]:
    """The inputs of the calibration, as PyTorch's tensors."""
    import torch

    return [tuple(map(torch.from_numpy, inputs_of(folder, i + 1))) for i in range(CALIBRATION)]


def write_model(folder: Path, name: str) -> None:
    """Inputs, what eager PyTorch makes of them, and the model as ONNX."""
    import numpy as np
    import torch

    model = model_of(name)
    for number in range(CALIBRATION + 1):
        arrays = [_varied(each, number).numpy() for each in model.arguments]
        np.savez(folder / f"inputs{number}.npz", **{f"{i:02}": each for i, each in enumerate(arrays)})
    with torch.inference_mode():
        np.save(folder / "expected.npy", model.module(*model.arguments).numpy())
    torch.onnx.export(
        model.module,
        model.arguments,
        folder / "f32.onnx",
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def model_of(name: str) -> Any:
    """The model with its arguments, the same ones in every process."""
    import torch
    from published_models import PUBLISHED

    torch.manual_seed(0)
    model = PUBLISHED[name]()
    # The module around one that comes from a library, too.
    model.module.eval()
    return model


def _varied(argument: Any, number: int) -> Any:
    """Another input of this kind: other numbers, tokens in another order; masks stay."""
    import torch

    if number == 0 or bool((argument == argument.flatten()[0]).all()):
        return argument
    generator = torch.Generator().manual_seed(number)
    if argument.is_floating_point():
        return torch.randn(argument.shape, generator=generator)
    order = torch.randperm(argument.numel(), generator=generator)
    return argument.flatten()[order].reshape(argument.shape)


def make(folder: Path, name: str, engine: str) -> None:
    """Writes the engine's file."""
    target = folder / ENGINES[engine][0]
    {
        "pteron": make_pteron,
        "pteron f32": make_pteron_f32,
        "executorch": make_executorch,
        "onnxruntime": make_onnxruntime,
        "onnxruntime exact": make_onnxruntime_exact,
        "openvino": make_openvino,
    }[engine](folder, name, target)


def make_pteron(folder: Path, name: str, target: Path) -> None:
    """Static int8 with our quantizer."""
    import torch

    from pteron.exir import to_edge
    from pteron.quant import quantize

    model = model_of(name)
    quantized = quantize(model.module, model.arguments, calibration_of(folder), "int8")
    print(quantized.quantization_report, file=sys.stderr)
    to_edge(torch.export.export(quantized, model.arguments)).to_executorch().save(target)


def make_pteron_f32(folder: Path, name: str, target: Path) -> None:
    """The float model."""
    import torch

    from pteron.exir import to_edge

    model = model_of(name)
    to_edge(torch.export.export(model.module, model.arguments)).to_executorch().save(target)


def make_executorch(folder: Path, name: str, target: Path) -> None:
    """Static int8 per channel, lowered to XNNPACK."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from executorch.exir import to_edge_transform_and_lower
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    model = model_of(name)
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(model.module, model.arguments).module(), quantizer)
    for inputs in calibration_of(folder):
        prepared(*inputs)
    module = convert_pt2e(prepared)
    exported = torch.export.export(module, model.arguments)
    edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    target.write_bytes(edge.to_executorch().buffer)


def make_onnxruntime(folder: Path, name: str, target: Path) -> None:
    """QDQ with unsigned activations, which are the fast ones, and signed weights per channel."""
    from onnxruntime.quantization import QuantType

    quantise_onnx(folder, target, QuantType.QInt8)


def make_onnxruntime_exact(folder: Path, name: str, target: Path) -> None:
    """The same with unsigned weights."""
    from onnxruntime.quantization import QuantType

    quantise_onnx(folder, target, QuantType.QUInt8)


def quantise_onnx(folder: Path, target: Path, weights: Any) -> None:
    """Static QDQ by ONNX Runtime's tools."""
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            session = onnxruntime.InferenceSession(str(folder / "f32.onnx"))
            names = [each.name for each in session.get_inputs()]
            batches = [inputs_of(folder, i + 1) for i in range(CALIBRATION)]
            self.feeds = iter([dict(zip(names, arrays, strict=True)) for arrays in batches])

        def get_next(self) -> Any:
            return next(self.feeds, None)

    prepared = folder / "prepared.onnx"
    quant_pre_process(str(folder / "f32.onnx"), str(prepared), skip_symbolic_shape=True)
    quantize_static(
        str(prepared),
        str(target),
        Reader(),
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=weights,
    )


def make_openvino(folder: Path, name: str, target: Path) -> None:
    """nncf's post-training quantisation, with its settings for transformers where the model is one."""
    import nncf
    import openvino

    model = openvino.Core().read_model(folder / "f32.onnx")
    names = [port.get_any_name() for port in model.inputs]
    batches = [dict(zip(names, inputs_of(folder, i + 1), strict=True)) for i in range(CALIBRATION)]
    is_transformer = any(word in name for word in ("bert", "minilm", "vit"))
    quantized = nncf.quantize(
        model,
        nncf.Dataset(batches),
        model_type=nncf.ModelType.TRANSFORMER if is_transformer else None,
        subset_size=CALIBRATION,
    )
    openvino.save_model(quantized, target, compress_to_fp16=False)


def session(engine: str, file: Path, arrays: list[Any], threads: int) -> Call:
    """Opens a file in this process."""
    if engine.startswith("pteron"):
        return open_file.pteron(file, arrays, threads)
    if engine == "executorch":
        return open_file.executorch(file, arrays)
    return getattr(open_file, engine.split()[0])(file, arrays, threads)  # type: ignore[no-any-return]


def worker(engine: str, folder: Path, threads: int, seconds: float) -> dict[str, float]:
    """Times one engine in this process."""
    import numpy as np

    # Pools of the peers have a thread for each processor that the process may use.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    call = session(engine, folder / ENGINES[engine][0], inputs_of(folder), threads)
    expected = np.load(folder / "expected.npy")
    difference = np.asarray(call(), dtype=np.float64) - expected
    error = float(np.sqrt(np.square(difference).mean() / np.square(expected, dtype=np.float64).mean()))
    wall, processor = median_times(call, seconds)
    return {"wall": wall, "processor": processor, "error": error}


def spawn(python: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs this script in a fresh process."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.run(
        [python, __file__, *arguments], capture_output=True, text=True, env=environment, check=False
    )


def prepare(options: argparse.Namespace, folder: Path, name: str) -> list[str]:
    """Writes what is missing, each engine in a process of its own; the engines that have a file."""
    given = [name, "--files", str(folder)]
    if not (folder / "f32.onnx").exists():
        done = spawn(sys.executable, [*given, "--make", "model"])
        if done.returncode:
            raise SystemExit(done.stderr)
    usable = []
    for engine in options.engines:
        file, is_peer = ENGINES[engine]
        if not (folder / file).exists():
            done = spawn(options.peers if is_peer else sys.executable, [*given, "--make", engine])
            if done.returncode:
                reason = next(iter(reversed(done.stderr.strip().splitlines())), "")
                print(f"{name}: {engine} makes no model: {reason[:200]}", flush=True)
                continue
        usable.append(engine)
    return usable


def compare(options: argparse.Namespace, folder: Path, name: str, threads: int, tables: Tables) -> None:
    """Prints and notes one row."""
    rows: dict[str, list[dict[str, float]]] = {engine: [] for engine in prepare(options, folder, name)}
    for _ in range(options.pairs):
        for engine, runs in rows.items():
            arguments = [name, "--files", str(folder), "--worker", engine, "--threads", str(threads)]
            python = options.peers if ENGINES[engine][1] else sys.executable
            done = spawn(python, [*arguments, "--seconds", str(options.seconds)])
            if done.returncode:
                raise SystemExit(f"{engine} fails on {name}: {done.stderr}")
            runs.append(json.loads(done.stdout.splitlines()[-1]))
    clock = "processor" if options.processor_time else "wall"
    times = {engine: statistics.median(run[clock] for run in runs) for engine, runs in rows.items()}
    cells: list[object] = [name, threads]
    for engine in options.engines:
        has_run = engine in rows
        cells += [f"{times[engine]:.2f}" if has_run else "-"]
        cells += [f"{rows[engine][0]['error']:.1%}" if has_run else "-"]
    peers = {engine: time for engine, time in times.items() if not engine.startswith("pteron")}
    best = min(peers, key=peers.__getitem__, default="")
    ratio = f"{times['pteron'] / peers[best]:.2f}x {best}" if best and "pteron" in times else "-"
    print(" | ".join(map(str, [*cells, ratio])), flush=True)
    tables.row(*cells, ratio)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument("--peers", default=sys.executable)
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--files", type=Path)
    parser.add_argument("--worker")
    parser.add_argument("--make")
    add_json_option(parser)
    options = parser.parse_args()
    if options.processor_time and not options.worker and options.threads != [1]:
        parser.error("--processor-time is for --threads 1")
    if options.worker:
        print(json.dumps(worker(options.worker, options.files, options.threads[0], options.seconds)))
        return
    if options.make:
        name = options.models[0]
        if options.make == "model":
            write_model(options.files, name)
        else:
            make(options.files, name, options.make)
        return
    folder = options.files or Path(tempfile.mkdtemp())
    kind = "processor time, " if options.processor_time else ""
    print(f"{cpu_model()}, load {os.getloadavg()[0]:.1f}; {kind}median of {options.pairs} processes each")
    columns = ["model", "threads"]
    for engine in options.engines:
        columns += [f"{engine}, ms", "error"]
    print(" | ".join([*columns, "ratio"]))
    tables = Tables()
    tables.begin([*columns, "ratio"])
    for name in options.models or MODELS:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for threads in options.threads:
            compare(options, folder / name, name, threads, tables)
    tables.save(options)


if __name__ == "__main__":
    main()
