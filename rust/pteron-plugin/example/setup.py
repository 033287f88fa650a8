"""The extension module; everything else is in pyproject.toml."""

import os

from setuptools import Extension, setup

INCLUDE = os.environ.get("PTERON_INCLUDE", "../include")

setup(
    package_dir={"": "src"},
    packages=["pteron_scale"],
    ext_modules=[
        Extension("pteron_scale._scale", ["src/pteron_scale/_scale.c"], include_dirs=[INCLUDE]),
    ],
)
