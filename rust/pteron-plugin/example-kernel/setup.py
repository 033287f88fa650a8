"""The extension module; everything else is in pyproject.toml."""

import pteron
from setuptools import Extension, setup

setup(
    package_dir={"": "src"},
    packages=["pteron_clip"],
    ext_modules=[
        Extension("pteron_clip._clip", ["src/pteron_clip/_clip.c"], include_dirs=[pteron.get_include()]),
    ],
)
