"""Save what a run was fed and gave, and its worst pairs: as Polygraphy's JSON, as .npz."""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..errors import InputError, OutputError
from ..events import PairKept
from ..feeds.polygraphy_json import write_feeds_text, write_iteration_text
from ..numbers.arrays import as_array
from ..observe.worst_pairs import PAIR
from ..records import Row
from ..report.atomic_file import replace_atomically
from .journal import read_events

__all__ = ["SavedOutputs", "gather", "save_inputs"]


# What a run was fed and gave, as the JSON that Polygraphy reads: --save_inputs and --save_outputs.

def save_inputs(path: str, sets: Iterable[Mapping[str, Any]]) -> None:
    """Sample sets, one at a time: a list of {input name: array}. Raises OutputError."""
    with replace_atomically(Path(path)) as temporary, temporary.open("w", encoding="utf-8") as file:
        between = "["
        for one in sets:
            file.write(between + _to_storable_text(path, lambda: write_feeds_text([one]))[1:-1])  # noqa: B023 - called at once
            between = ",\n"
        file.write("]\n" if between != "[" else "[]\n")


class SavedOutputs:
    """Final outputs of both runs, a sample at a time; ``finish`` writes the file. No more than one sample is held.

    modes: names of the two runs, which become Polygraphy's runners; two of the same name are numbered.
    """

    def __init__(self, path: str, modes: Sequence[str], folder: Path) -> None:
        same = len(set(modes)) < len(modes)
        self.path = path
        self._runners = [f"{mode} {place + 1}" if same else mode for place, mode in enumerate(modes)]
        self._files: list[IO[str]] = [
            tempfile.TemporaryFile("w+", encoding="utf-8", dir=folder) for _ in self._runners  # noqa: SIM115
        ]  # fmt: skip
        self._count = 0

    def add(self, outputs: Sequence[Mapping[str, Any]], seconds: Sequence[float | None]) -> None:
        """One sample's outputs, a mapping a run, and how long each took. Raises OutputError."""
        for runner, file, given_outputs, took in zip(self._runners, self._files, outputs, seconds, strict=True):
            arrays = {name: _to_plain_value(value, name) for name, value in given_outputs.items()}
            text = _to_storable_text(self.path, lambda: write_iteration_text(runner, arrays, took))  # noqa: B023 - called at once
            file.write((",\n" if self._count else "") + text)
        self._count += 1

    def finish(self) -> None:
        """Write the file. Raises OutputError."""
        with replace_atomically(Path(self.path)) as temporary, temporary.open("w", encoding="utf-8") as file:
            file.write('{"lst": [')
            for place, (runner, part) in enumerate(zip(self._runners, self._files, strict=True)):
                file.write(f"{', ' if place else ''}[{json.dumps(runner)}, [")
                part.seek(0)
                shutil.copyfileobj(part, file)
                file.write("]]")
            file.write('], "polygraphy_class": "RunResults"}\n')
        self.close()

    def close(self) -> None:
        """Free what waited."""
        for file in self._files:
            file.close()


def _to_plain_value(value: Any, name: str) -> Any:
    return value if value is None or isinstance(value, (list, tuple, dict)) else as_array(value, name=name)


def _to_storable_text(path: str, make: Any) -> str:
    try:
        return str(make())
    except InputError as error:
        raise OutputError(f"'{error.where}' {error.what}", where=path, hint="leave this option out") from error


# The worst pairs of a run's folder, together in one .npz archive for the reader: --save_tensors.

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
                        entry = _make_entry(f"{place}.{side}")
                        with pair.open(f"{side}.npy") as source, archive.open(entry, "w", force_zip64=True) as file:
                            shutil.copyfileobj(source, file, 1 << 20)
                kept[name].unlink()
            with archive.open(_make_entry("names"), "w") as file:
                np.lib.format.write_array(file, np.array(names), allow_pickle=False)
    except (OSError, zipfile.BadZipFile) as error:
        raise OutputError(
            f"the tensors cannot be saved ({error})", where="--save_tensors",
            hint="free space beside the report, or ask for fewer",
        ) from error  # fmt: skip
    return names


def _make_entry(key: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(f"{key}.npy", date_time=_EPOCH)
    info.external_attr = 0o644 << 16
    return info
