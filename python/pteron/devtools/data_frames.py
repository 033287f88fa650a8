"""pandas, where it is installed."""

from __future__ import annotations

from typing import Any


def pandas_or_error(what: str) -> Any:
    """The module pandas.

    Raises:
        ImportError: it is not installed; the text says what needs it.
    """
    try:
        import pandas as pd  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        if error.name != "pandas":
            raise
        raise ImportError(f"{what} needs pandas: pip install pandas", name="pandas") from None
    return pd
