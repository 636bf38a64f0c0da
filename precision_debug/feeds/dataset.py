"""Samples of a Hugging Face dataset that lies in a folder, as ``Dataset.save_to_disk`` wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..records import InputMeta
from .sets import SampleSets

__all__ = ["is_dataset", "load_dataset"]


def is_dataset(folder: Path) -> bool:
    """Return whether a folder is a saved dataset; nothing is imported."""
    return (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()


def load_dataset(folder: Path, inputs: Sequence[InputMeta]) -> SampleSets:
    """Load a sample a row: the columns that the model's inputs are named by; a row of a lower rank gets a batch of one.

    Needs the package ``datasets``. Raises InputError.
    """
    try:
        import datasets
    except ImportError as error:
        raise InputError("this is a dataset folder", where=str(folder), hint="pip install datasets") from error
    try:
        rows: Any = datasets.load_from_disk(str(folder)).with_format("numpy")
        columns = [meta for meta in inputs if meta.name in rows.column_names]
    except Exception as error:
        raise InputError(f"the dataset cannot be read: {type(error).__name__}: {error}", where=str(folder)) from error
    absent = [meta.name for meta in inputs if not meta.optional and meta.name not in rows.column_names]
    if absent:
        raise InputError(
            f"the dataset has no column {absent[0]!r}", where=str(folder), hint=f"it has {', '.join(rows.column_names)}"
        )

    def sample(number: int) -> dict[str, Any]:
        row = rows[number]
        return {meta.name: _batched(np.asarray(row[meta.name]), meta) for meta in columns}

    return SampleSets(len(rows), sample)


def _batched(value: np.ndarray[Any, Any], meta: InputMeta) -> np.ndarray[Any, Any]:
    return value[None] if meta.shape is not None and len(meta.shape) == value.ndim + 1 else value
