"""The worst pairs of a run's folder, together in one .npz archive for the reader: --save_tensors."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..errors import OutputError
from ..events import PairKept
from ..observe.worst_pairs import PAIR
from ..records import Row
from .journal import read_events

__all__ = ["gather"]

_JOURNAL = "journal.jsonl"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""See ``feeds.npz``: the same tensors are the same bytes."""


def gather(folder: Path, rows: Sequence[Row], made: Path) -> tuple[str, ...]:
    """Write the pairs that are still there into one archive; returns their tensors' names, in execution order.

    "1.baseline" and "1.target" are the first one's arrays, and "names" the tensors' names: a tensor may be called
    anything, and an entry of an archive must not. Nothing is held in memory. Without a pair no archive is made.
    Raises OutputError.
    """
    if not any(folder.glob(PAIR.format("*"))):
        return ()
    pairs = read_events(folder / _JOURNAL, PairKept)
    numbers = {event.name: event.number for event in pairs if isinstance(event, PairKept)}
    kept = {name: folder / PAIR.format(number) for name, number in numbers.items()}
    names = tuple(row.name for row in rows if row.name in kept and kept[row.name].exists())
    if not names:
        return ()
    try:
        with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
            for place, name in enumerate(names, 1):
                with zipfile.ZipFile(kept[name]) as pair:
                    for side in ("baseline", "target"):
                        entry = _entry(f"{place}.{side}")
                        with pair.open(f"{side}.npy") as source, archive.open(entry, "w", force_zip64=True) as file:
                            shutil.copyfileobj(source, file, 1 << 20)
                kept[name].unlink()
            with archive.open(_entry("names"), "w") as file:
                np.lib.format.write_array(file, np.array(names), allow_pickle=False)
    except (OSError, zipfile.BadZipFile) as error:
        raise OutputError(
            f"the tensors cannot be saved ({error})", where="--save_tensors",
            hint="free space beside the report, or ask for fewer",
        ) from error  # fmt: skip
    return names


def _entry(key: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(f"{key}.npy", date_time=_EPOCH)
    info.external_attr = 0o644 << 16
    return info
