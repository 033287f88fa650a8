"""Print the cargo features of pteron-runtime that programs need, for a binary without the other operators."""

from __future__ import annotations

import argparse
from pathlib import Path

import pteron
from pteron import _native
from pteron.cli.arguments import add_backends, add_json, load, print_json
from pteron.cli.tables import table
from pteron.devtools.description import describe_plan
from pteron.devtools.operator_features import feature_of

EXAMPLE = "pteron build-profile model.pte other.pte"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("programs", type=Path, nargs="+", help="the .pte files that the binary is to run")
    parser.add_argument(
        "--data", type=Path, action="append", default=[], help="a data file (.ptd) of theirs; may be repeated"
    )
    add_backends(parser)
    add_json(parser)


def execute(options: argparse.Namespace) -> int:
    """1 where an operator has no kernel, so that no feature helps."""
    operators: set[str] = set()
    backends: set[str] = set()
    for path in options.programs:
        program = load(options, path)
        for method in program.methods:
            found = needs(program, method)
            operators |= found[0]
            backends |= found[1]
    known = set(_native.operator_names())
    unknown = sorted(operators - known)
    features: dict[str, list[str]] = {}
    for name in sorted(operators & known):
        feature = feature_of(name)
        if feature is not None:
            features.setdefault(feature, []).append(name)
    chosen = sorted(features)
    if options.json:
        print_json(
            {
                "features": {feature: features[feature] for feature in chosen},
                "always": sum(feature_of(name) is None for name in operators & known),
                "no_kernel": unknown,
                "backends": sorted(backends),
            }
        )
        return 1 if unknown else 0
    if chosen:
        print(table(("feature", "operators"), [(name, " ".join(features[name])) for name in chosen]))
    for name in unknown:
        print(f"no feature has {name}: register a kernel for it in the binary")
    for name in sorted(backends):
        print(f"no feature has the backend {name}: register it in the binary")
    listed = ", ".join(f'"{name}"' for name in chosen)
    print("in Cargo.toml:")
    print(
        f'pteron-runtime = {{ version = "={pteron.__version__}", default-features = false,'
        f" features = [{listed}] }}"
    )
    print("as arguments of cargo:")
    print(" ".join(["--no-default-features", *(["--features", ",".join(chosen)] if chosen else [])]))
    return 1 if unknown else 0


def needs(program: pteron.Program, method: str) -> tuple[set[str], set[str]]:
    """The operators that a method calls, those of delegates that load opens included, and the backends of the
    delegates that stay.

    Raises:
        PteronError: a delegate's method cannot be built here, so that nobody knows what load makes of it.
    """
    operators = set(program.operators(method))
    if not program.backends(method):
        return operators, set()
    plan = describe_plan(program, method)
    operators |= {call.operator for call in plan.calls if call.operator is not None}
    stay = {plan.delegates[call.delegate]["backend"] for call in plan.calls if call.delegate is not None}
    return operators, stay
