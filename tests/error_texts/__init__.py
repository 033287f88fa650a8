"""The texts of errors, kept: calls that end in an error, and what the error says.

`calls.json` and `kernels.json` hold the texts; `tests/run/test_error_snapshots.py` makes every call again and
compares. `make bless` writes them anew after a text was changed on purpose: the difference of the files
is what a reader of the change looks at.
"""
