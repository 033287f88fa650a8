"""The extension module; everything else is in pyproject.toml."""

import pteron
from setuptools import Extension, setup

setup(
    package_dir={"": "src"},
    packages=["pteron_scale"],
    ext_modules=[
        Extension("pteron_scale._scale", ["src/pteron_scale/_scale.c"], include_dirs=[pteron.get_include()]),
    ],
)
