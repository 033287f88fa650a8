"""A session of ONNX Runtime, with the constants that it reads where the program has them, and its cache."""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

import onnxruntime

from pteron_onnxruntime.blob import BACKEND, BlobError, Head
from pteron_onnxruntime.memory import Array, constant_over
from pteron_onnxruntime.settings import SettingError, Settings

_LEVELS = {
    "disable": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_MODES = {
    "sequential": onnxruntime.ExecutionMode.ORT_SEQUENTIAL,
    "parallel": onnxruntime.ExecutionMode.ORT_PARALLEL,
}
_NUMBERS = ("intra_op_num_threads", "inter_op_num_threads", "use_deterministic_compute")


class Compiled:
    """Any number of delegates run it, on threads of their own."""

    def __init__(self, model: bytes, head: Head, constants: list[Array], settings: Settings) -> None:
        self._model, self._head, self._constants, self._settings = model, head, constants, settings
        _check_providers(settings)
        self.is_from_cache = False
        self.session = self._cached() if settings.cache_dir is not None else self._made(model)
        self._check_border()

    def profiled(self, folder: str) -> Any:
        """A session of the same model that writes times of operators into `folder`."""
        options = self._options()
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        self._add_constants(options)
        return self._session(self._model, options)

    def _options(self) -> Any:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        for key, value in self._settings.options:
            try:
                _set(options, key, value)
            except (ValueError, KeyError) as error:
                raise SettingError(f"ONNX Runtime's {key} cannot be {value!r}") from error
        for key, value in self._settings.entries:
            options.add_session_config_entry(key, value)
        # A model states where constants lie. Those that it does not get from here would be read from files.
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.devnull)
        return options

    def _add_constants(self, options: Any) -> None:
        values = [
            constant_over(array, constant.dtype, constant.shape)
            for constant, array in zip(self._head.constants, self._constants, strict=True)
        ]
        self._kept = values
        options.add_external_initializers([constant.name for constant in self._head.constants], values)

    def _made(self, model: bytes, save: str | None = None) -> Any:
        options = self._options()
        self._add_constants(options)
        if save is not None:
            options.optimized_model_filepath = save
        return self._session(model, options)

    def _session(self, model: bytes | str, options: Any) -> Any:
        names = [name for name, _ in self._settings.providers]
        given = [dict(options) for _, options in self._settings.providers]
        try:
            session = onnxruntime.InferenceSession(model, options, providers=names, provider_options=given)
        except Exception as error:  # its exceptions have no base of their own
            text = " ".join(str(error).split())[:400]
            raise BlobError(
                f"ONNX Runtime {onnxruntime.__version__} cannot use the model, which onnx "
                f"{self._head.library} wrote, with {', '.join(names)}: {text}"
            ) from error
        missing = [name for name in names if name not in session.get_providers()]
        if missing:
            raise SettingError(
                f"ONNX Runtime could not start {', '.join(missing)} and would run on "
                f"{', '.join(session.get_providers())} instead; its log says why"
            )
        session.disable_fallback()
        return session

    def _cached(self) -> Any:
        """From the folder, else made and written there. Others may write the same file at the same time."""
        folder = Path(str(self._settings.cache_dir))
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / f"{self._cache_key()}.onnx"
        if kept.exists():
            options = self._options()
            options.graph_optimization_level = _LEVELS["disable"]
            try:
                session = self._session(str(kept), options)
                self.is_from_cache = True
                return session
            except BlobError:
                kept.unlink(missing_ok=True)  # cut off, or of another build: made anew below
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            written = Path(scratch) / "model.onnx"
            session = self._made(self._model, str(written))
            os.replace(written, kept)
        return session

    def _cache_key(self) -> str:
        """Of everything that the optimised model depends on, the bytes of the constants included."""
        digest = hashlib.sha256(self._model)
        for array in self._constants:
            digest.update(hashlib.sha256(array.data).digest())
        here = (onnxruntime.__version__, platform.machine(), platform.processor(), self._settings)
        digest.update(repr(here).encode())
        return digest.hexdigest()[:40]

    def _check_border(self) -> None:
        expected = len(self._head.states)
        counts = (len(self.session.get_inputs()) - expected, len(self.session.get_outputs()) - expected)
        if (
            counts != (len(self._head.inputs), len(self._head.outputs))
            or len(self._head.extents) != counts[1]
        ):
            raise BlobError(
                f"the model has {counts[0]} inputs and {counts[1]} results, the blob states "
                f"{len(self._head.inputs)} and {len(self._head.outputs)}"
            )


def _check_providers(settings: Settings) -> None:
    there = onnxruntime.get_available_providers()
    for name, _ in settings.providers:
        if name not in there:
            raise SettingError(
                f"this build of ONNX Runtime {onnxruntime.__version__} has no {name!r}, only "
                f"{', '.join(there)}; "
                "install the build that has it (onnxruntime-gpu, onnxruntime-openvino, ...), or choose with "
                f"backend_options={{{BACKEND!r}: {{'providers': ...}}}}"
            )


def _set(options: Any, key: str, value: str) -> None:
    if key == "graph_optimization_level":
        options.graph_optimization_level = _LEVELS[value]
    elif key == "execution_mode":
        options.execution_mode = _MODES[value]
    elif key in _NUMBERS:
        setattr(options, key, type(getattr(options, key))(int(value)))
