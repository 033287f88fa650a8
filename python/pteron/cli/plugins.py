"""List the backends that are registered, and those of installed packages; nothing is imported or loaded."""

from __future__ import annotations

import argparse
from dataclasses import asdict

import pteron
from pteron.cli.arguments import add_json, print_json
from pteron.cli.tables import table

EXAMPLE = "pteron plugins"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_json(parser)


def execute(options: argparse.Namespace) -> int:
    """Prints the list."""
    offered = pteron.plugins.details()
    registered = list(pteron.Runtime.shared().backends)
    if options.json:
        print_json({"installed": [asdict(each) for each in offered], "registered": registered})
        return 0
    for name in registered:
        print(f"{name}: registered")
    if offered:
        rows = [
            (each.name, f"{each.distribution} {each.version}", each.kind, f"--backend {each.name}")
            for each in offered
        ]
        print(table(("backend", "package", "kind", "to load it"), rows), end="")
    else:
        print("no installed package offers a backend")
    return 0
