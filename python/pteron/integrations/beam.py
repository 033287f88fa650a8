"""Programs in Apache Beam pipelines: `PteronModelHandler`, for `RunInference`. Needs `apache-beam`, no torch.

handler = PteronModelHandler("gs://models/encoder.pte", buckets={"s1": (32, 128)},
                             pad_values={"input_ids": 0, "attention_mask": 0})
elements | RunInference(handler)                       # dicts of arrays, without a batch dimension
pairs | RunInference(KeyedModelHandler(handler))       # (key, dict)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

try:
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.ml.inference.base import ModelHandler, PredictionResult
except ImportError as error:
    raise ImportError("pteron.integrations.beam needs Apache Beam: pip install apache-beam") from error

from pteron.errors import InputError, InputTypeError
from pteron.predictor import Predictor
from pteron.shown_names import shown_names

if TYPE_CHECKING:
    import numpy.typing as npt

    from pteron._native import Limits

__all__ = ["PteronModelHandler"]


class PteronModelHandler(ModelHandler[Any, PredictionResult, Predictor]):  # type: ignore[misc]
    """Runs elements of a pipeline in batches that the program takes.

    An element is one row: a dict from input names to arrays **without** the batch dimension, or a single
    array for a method with one such input. The result is a PredictionResult, whose `inference` is a dict from
    output names to arrays without the batch dimension.

    The URI is read where a worker loads the model. A file of the worker's machine is mapped: the processes
    there share its pages, and with `packed_weights=True` at export its weights, too, so that `large_model`
    is not needed. From another file system the bytes are read into each process.

    Batches: Beam puts together at most as many elements as one run of the method takes, which is looked up
    where the pipeline is built, so that the URI has to be there as well. Elements of different lengths run
    together up to the next length of `buckets`. Where `buckets` names one dimension beside the batch and
    `max_batch_duration_secs` is set, Beam collects elements of each bucket apart.

    Args:
        model_uri: of the `.pte` file, any that Beam's FileSystems open.
        method: its name.
        data_uris: of the program's data files (`.ptd`).
        outputs, batched, batch_size, buckets, pad_values, num_threads, max_calls, limits: those of
            `pteron.Predictor`.
        shared: arrays for inputs without a batch dimension, the same for all elements.
        min_batch_size, max_batch_size, max_batch_duration_secs, max_batch_weight, element_size_fn,
            batch_length_fn, batch_bucket_boundaries, large_model, model_copies, env_vars: those of Beam's
            ModelHandler. Those that are not given come from the program.

    Raises:
        InputError, InputTypeError: an argument that no program could take.
    """

    def __init__(
        self,
        model_uri: str,
        method: str = "forward",
        *,
        data_uris: Sequence[str] = (),
        outputs: Collection[str] | None = None,
        batched: Collection[str] | None = None,
        batch_size: int | None = None,
        buckets: Mapping[str, Sequence[int]] | Sequence[int] = (),
        pad_values: Mapping[str, Any] | None = None,
        num_threads: int | None = None,
        max_calls: int | None = None,
        limits: Limits | None = None,
        shared: Mapping[str, npt.ArrayLike] | None = None,
        **batching: Any,
    ) -> None:
        super().__init__(**batching)
        if isinstance(data_uris, str):
            raise InputTypeError(
                "data files are given as a list",
                argument="data_uris",
                expected="a list of URIs",
                got="a text",
                hint="data_uris=[uri] for a single one",
            )
        self._uri, self._data_uris = model_uri, tuple(data_uris)
        self._shared = dict(shared or {})
        self._buckets = buckets
        self._settings: dict[str, Any] = {
            "method": method,
            "outputs": outputs,
            "batched": batched,
            "batch_size": batch_size,
            "buckets": buckets,
            "pad_values": pad_values,
            "num_threads": num_threads,
            "max_calls": max_calls,
            "limits": limits,
        }
        self._from_program: dict[str, Any] | None = None

    def load_model(self) -> Predictor:
        """The method, ready in this process."""
        data = [_source(uri) for uri in self._data_uris]
        return Predictor(_source(self._uri), data=data or None, **self._settings).load()

    def run_inference(
        self,
        batch: Sequence[Any],
        model: Predictor,
        inference_args: dict[str, Any] | None = None,
    ) -> Iterable[PredictionResult]:
        """Runs a batch of elements.

        Args:
            batch: the elements.
            model: what `load_model` gave.
            inference_args: arrays for inputs without a batch dimension, beside those of `shared`.

        Raises:
            InputError: elements that do not fit; what a call of the predictor raises.
        """
        rows = [_row(element, model) for element in batch]
        shared = {**self._shared, **(inference_args or {})}
        found = model.run_rows(rows, shared=shared)
        return [
            PredictionResult(element, result, self._uri) for element, result in zip(batch, found, strict=True)
        ]

    def get_num_bytes(self, batch: Sequence[Any]) -> int:
        """Bytes of the arrays of a batch."""
        arrays = (element.values() if isinstance(element, Mapping) else (element,) for element in batch)
        return sum(np.asarray(array).nbytes for element in arrays for array in element)

    def get_metrics_namespace(self) -> str:
        """Under which Beam counts."""
        return "BeamML_pteron"

    def batch_elements_kwargs(self) -> Mapping[str, Any]:
        """What Beam batches by: what was given, and from the program what was not. Loads the program once."""
        if self._from_program is None:
            self._from_program = self._found()
        return {**self._from_program, **super().batch_elements_kwargs()}

    def update_model_path(self, model_path: str | None = None) -> None:
        """Another file, as Beam's automatic refresh of models gives it; None: the one as before."""
        self._uri = model_path or self._uri

    def _found(self) -> dict[str, Any]:
        predictor = self.load_model()
        batching = predictor.batching
        if batching is None:
            raise InputError(
                "a method without a batch dimension cannot run elements of a pipeline",
                method=self._settings["method"],
                hint="export it with a batch dimension, or name the inputs that have one with batched=",
            )
        found: dict[str, Any] = {"max_batch_size": batching.most}
        others = self._buckets if isinstance(self._buckets, Mapping) else {}
        others = {name: sizes for name, sizes in others.items() if name != batching.symbol}
        if len(others) == 1 and "length_fn" not in super().batch_elements_kwargs():
            ((symbol, sizes),) = others.items()
            found["length_fn"] = _Length(*_axis(predictor, symbol))
            # Beam's boundaries are the first of the next bucket, ours the last of this one.
            found["bucket_boundaries"] = [size + 1 for size in sorted(set(sizes))]
        return found


class _Length:
    """The extent of an element along the dimension that has buckets."""

    def __init__(self, name: str, axis: int) -> None:
        self._name, self._axis = name, axis

    def __call__(self, element: Any) -> int:
        array = element[self._name] if isinstance(element, Mapping) else element
        return int(np.asarray(array).shape[self._axis])


def _axis(predictor: Predictor, symbol: str) -> tuple[str, int]:
    """An input that has the dimension, and where, the batch not counted."""
    batching = predictor.batching
    for spec in predictor.inputs:
        if batching is not None and spec.name in batching.inputs:
            for axis, dim in enumerate(spec.shape or ()):
                if axis and not isinstance(dim, int) and dim.symbol == symbol:
                    return spec.name, axis - 1
    raise InputError(
        "no input with a batch dimension has a dimension of this name",
        argument="buckets",
        got=symbol,
        hint="predictor.inputs has the names of dimensions",
    )


def _row(element: Any, model: Predictor) -> Mapping[str, Any]:
    """An element as a dict by input name."""
    if isinstance(element, Mapping):
        return element
    batching = model.batching
    names = () if batching is None else batching.inputs
    if len(names) != 1:
        raise InputTypeError(
            "an element without names fits a method with one input that has a batch dimension alone",
            argument="batch",
            expected=f"a dict with {shown_names(names)}",
            got=type(element).__name__,
            hint="map elements to dicts of arrays before RunInference",
        )
    return {names[0]: element}


def _source(uri: str) -> str | bytes:
    """A path of this machine, else the bytes of the file."""
    if FileSystems.get_scheme(uri) in (None, "file"):
        return uri.removeprefix("file://")
    with FileSystems.open(uri) as file:
        content: bytes = file.read()
    return content
