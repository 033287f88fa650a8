"""Programs and limits that an application of the Open Inference Protocol refuses when it is made."""

from __future__ import annotations

from collections.abc import Callable

from pteron.integrations.oip import app
from tests.support.programs import add_method, build, counter_method

CALLS: dict[str, Callable[[], object]] = {
    "an application without room for a request": lambda: app({"add": build(add_method())}, concurrency=0),
    "an application without time for a request": lambda: app({"add": build(add_method())}, deadline=0.0),
    "an application whose model has a slash in its name": lambda: app({"texts/encoder": build(add_method())}),
    "an application whose requests wait a negative time": lambda: app(
        {"add": build(add_method())}, batch_seconds=-1.0
    ),
    "an application that joins requests of a fixed shape": lambda: app(
        {"add": build(add_method())}, batch_rows=4
    ),
    "an application of a method with a state": lambda: app({"counter": build(counter_method())}),
}
