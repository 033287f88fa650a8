"""Programs that carry test cases: inputs and the outputs that they should give."""

from pteron.devtools.bundled_program.bundled_program import BundledProgram
from pteron.devtools.bundled_program.method_test_suite import MethodTestCase, MethodTestSuite
from pteron.devtools.bundled_program.serialize_bundled_program import (
    serialize_from_bundled_program_to_flatbuffer,
)

__all__ = [
    "BundledProgram",
    "MethodTestCase",
    "MethodTestSuite",
    "serialize_from_bundled_program_to_flatbuffer",
]
