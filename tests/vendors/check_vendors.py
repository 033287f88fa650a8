"""Delegates, node counts and blobs of vendors' compilers equal those that ExecuTorch makes, and the files
compute what the exported module does where ExecuTorch's runtime has the backend: `make test-vendors`.

pytest takes this file only where it is named. It runs in an environment of its own, since these compilers
need packages, and older ones, that the development environment does not have (the `vendors` group of
pyproject.toml).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.vendors.flows import FLOWS, GROUPS
from tests.vendors.lower import folder_of
from tests.vendors.own_process import run_module, run_together


def _each(*, only_run: bool = False) -> list[Any]:
    """A case for each model of each flow."""
    return [
        pytest.param(flow, model, id=f"{flow}: {model}")
        for group in GROUPS
        for flow in group
        for model in FLOWS[flow].models
        if FLOWS[flow].runs or not only_run
    ]


@pytest.fixture(scope="session")
def lowered(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Flow → the folder in which both sides have lowered all models of its group."""
    folders: dict[tuple[str, ...], Path] = {}

    def of(flow: str) -> Path:
        (group,) = (each for each in GROUPS if flow in each)
        if group not in folders:
            folders[group] = tmp_path_factory.mktemp("lowered")
            run_together([("lower", side, folders[group], *group) for side in ("theirs", "ours")])
            runs = [each for each in group if FLOWS[each].runs]
            if runs:
                run_module("run_programs", folders[group], *runs)
        return folders[group]

    return of


@pytest.mark.peer
@pytest.mark.parametrize(("flow", "model"), _each())
def test_delegates_are_the_peer_s(flow: str, model: str, lowered: Any) -> None:
    name = f"{model.replace(' ', '_')}.json"
    ours, theirs = (
        json.loads((folder_of(lowered(flow), flow, side) / name).read_text()) for side in ("ours", "theirs")
    )
    stop = FLOWS[flow].may_stop_at
    if stop is not None and "error" in theirs:
        assert stop in theirs["error"]
        assert stop in ours["error"]
        return
    assert "error" not in theirs, theirs["error"]
    assert "error" not in ours, ours["error"]
    kept = FLOWS[flow].compared
    assert [{key: each[key] for key in kept} for each in ours["delegates"]] == [
        {key: each[key] for key in kept} for each in theirs["delegates"]
    ]
    assert ours["delegates"]


@pytest.mark.peer
@pytest.mark.parametrize(("flow", "model"), _each(only_run=True))
def test_results_in_the_peer_s_runtime(flow: str, model: str, lowered: Any) -> None:
    outcome = json.loads(folder_of(lowered(flow), flow, "ran.json").read_text())[model]
    assert "error" not in outcome, outcome["error"]
    if model in FLOWS[flow].stops_there:
        assert outcome["stops"]["ours"] == outcome["stops"]["theirs"]
        return
    assert "stops" not in outcome, outcome["stops"]
    assert outcome["same numbers"]
    assert outcome["ours"] <= FLOWS[flow].tolerance, outcome
