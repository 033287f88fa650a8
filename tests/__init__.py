"""Tests, and what they share: `tests.support` for all folders, modules beside the tests for one.

A package with a name, so that no helper stands where an installed package of its name would be found.
"""
