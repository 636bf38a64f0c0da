"""What a run was fed and gave, as the JSON that Polygraphy reads: --save_inputs and --save_outputs."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from ..errors import InputError, OutputError
from ..feeds.polygraphy_json import feeds_text, iteration_text
from ..numbers.arrays import as_array
from ..report.atomic_file import replacing

__all__ = ["SavedOutputs", "save_inputs"]


def save_inputs(path: str, sets: Iterable[Mapping[str, Any]]) -> None:
    """Sample sets, one at a time: a list of {input name: array}. Raises OutputError."""
    with replacing(Path(path)) as temporary, temporary.open("w", encoding="utf-8") as file:
        between = "["
        for one in sets:
            file.write(between + _sayable(path, lambda: feeds_text([one]))[1:-1])  # noqa: B023 - called at once
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
            arrays = {name: _plain(value, name) for name, value in given_outputs.items()}
            text = _sayable(self.path, lambda: iteration_text(runner, arrays, took))  # noqa: B023 - called at once
            file.write((",\n" if self._count else "") + text)
        self._count += 1

    def finish(self) -> None:
        """Write the file. Raises OutputError."""
        with replacing(Path(self.path)) as temporary, temporary.open("w", encoding="utf-8") as file:
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


def _plain(value: Any, name: str) -> Any:
    return value if value is None or isinstance(value, (list, tuple, dict)) else as_array(value, name=name)


def _sayable(path: str, make: Any) -> str:
    try:
        return str(make())
    except InputError as error:
        raise OutputError(f"'{error.where}' {error.what}", where=path, hint="leave this option out") from error
