"""Execution providers and options of ONNX Runtime: from compile specs and from the options of a session.

`providers` names execution providers in order of preference. `Provider.option` is an option of one of them,
names with other dots are entries of ONNX Runtime's session configuration. A program comes from anywhere, so
that it can say how fast to compute and on what, and nothing about folders or files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pteron_onnxruntime.blob import BACKEND

#: What a program may set.
FROM_PROGRAMS = (
    *("providers", "intra_op_num_threads", "inter_op_num_threads", "graph_optimization_level"),
    *("execution_mode", "use_deterministic_compute"),
)
_OURS = (*FROM_PROGRAMS, "cache_dir", "profile")
_SUFFIX = "ExecutionProvider"


class SettingError(ValueError):
    """A setting that is not known, or may not be set where it was."""


@dataclass(frozen=True)
class Settings:
    """Where and how to run a model.

    Attributes:
        providers: execution providers with their options, the preferred one first.
        options: attributes of ONNX Runtime's `SessionOptions`.
        entries: of its session configuration.
        cache_dir: a folder for optimised models; None: they are optimised at each load.
        profile: time each operator of ONNX Runtime, and report it to the tracer of a call.
    """

    providers: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    options: tuple[tuple[str, str], ...]
    entries: tuple[tuple[str, str], ...]
    cache_dir: str | None
    profile: bool


def settings_of(specs: Mapping[str, bytes], options: Mapping[str, bool | int | str]) -> Settings:
    """Options go before compile specs, and both before what holds otherwise: the processor.

    Raises:
        SettingError: a name is unknown, or a program sets what programs may not.
    """
    for key in specs:
        if key not in FROM_PROGRAMS:
            raise SettingError(
                f"the program sets {key!r}; a program may set {', '.join(FROM_PROGRAMS)}. "
                f"Give it as backend_options={{{BACKEND!r}: {{{key!r}: ...}}}} of load_method"
            )
    for key in options:
        if key not in _OURS and "." not in key:
            raise SettingError(
                f"backend option {key!r} is not known: there are {', '.join(_OURS)}, options of a provider "
                f"as 'CUDA{_SUFFIX}.device_id', and entries of the session's configuration as 'session.…'"
            )
    chosen: dict[str, bool | int | str] = {
        key: value.decode(errors="replace") for key, value in specs.items()
    }
    chosen |= options
    names = [name.strip() for name in str(chosen.pop("providers", f"CPU{_SUFFIX}")).split(",")]
    of_providers = {key: chosen.pop(key) for key in list(chosen) if key.split(".")[0].endswith(_SUFFIX)}
    for key in of_providers:
        if key.split(".")[0] not in names:
            raise SettingError(f"backend option {key!r}: the provider is not among {', '.join(names)}")
    cache, profile = chosen.pop("cache_dir", None), bool(chosen.pop("profile", False))
    return Settings(
        tuple((name, _options_of(name, of_providers)) for name in names),
        tuple(sorted((key, _text(value)) for key, value in chosen.items() if "." not in key)),
        tuple(sorted((key, _text(value)) for key, value in chosen.items() if "." in key)),
        None if cache is None else str(cache),
        profile,
    )


def _options_of(name: str, options: Mapping[str, bool | int | str]) -> tuple[tuple[str, str], ...]:
    prefix = f"{name}."
    found = {key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)}
    return tuple(sorted((key, str(value)) for key, value in found.items()))


def _text(value: bool | int | str) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
