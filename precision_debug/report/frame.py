"""The table as a pandas DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..claims import Judged
from ..errors import OutputError
from .layout import columns

if TYPE_CHECKING:
    import pandas

__all__ = ["to_pandas"]

_DTYPES = {
    "int": "Int64",
    "float": "float64",
    "share": "float64",
    "flag": "boolean",
    "text": "object",
    "index": "object",
}


def to_pandas(report: Judged) -> pandas.DataFrame:
    """One line a row, one column a column of the table, named by ``Column.key``.

    Integers are Int64 and flags boolean (both nullable), numbers float64 (None becomes NaN), index columns hold tuples.
    ``attrs`` has the titles under "titles", the verdict under "verdict" and the reason of an early end under "failure".
    Raises OutputError where pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise OutputError("pandas is not installed", hint="pip install 'precision_debug[pandas]'") from error
    layout = columns(report)
    series: dict[str, Any] = {
        column.key: pd.Series([column.get(row) for row in report.rows], dtype=_DTYPES[column.kind]) for column in layout
    }
    frame: pandas.DataFrame = pd.DataFrame(series, columns=[column.key for column in layout])
    frame.attrs = {
        "titles": {column.key: column.title for column in layout},
        "verdict": str(report.verdict),
        "failure": report.failure,
    }
    return frame
