"""What Polygraphy saved of its runners' outputs (--save-outputs) as a session: a baseline whose engine is not here."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, RecordingError
from ..feeds.polygraphy_json import read_results
from ..inspector import EngineLayer
from ..protocols import Feeds, Hook
from ..reasons import Reason, say
from ..records import Doubt, TensorMeta
from ..safety.untrusted import refuse_special

__all__ = ["OutputsSession", "open_outputs"]


def open_outputs(path: str, feeds: Sequence[Feeds], iteration: int | None = None) -> OutputsSession:
    """Open outputs that Polygraphy saved as a session.

    feeds: the sample sets that the file's iterations were made from, in their order.

    iteration: the only one that is wanted, whatever is fed; None: the one whose sample set is fed. Raises
    RecordingError.
    """
    refuse_special(path, RecordingError)
    if not Path(path).exists():
        raise RecordingError("there is no such file", where=path, hint="write it with polygraphy run --save-outputs")
    return OutputsSession(path, feeds, iteration)


class OutputsSession:
    """The first runner's outputs of a file; a protocols.Session. It replays, and runs nothing."""

    layers: Sequence[EngineLayer] = ()
    alone = arithmetic = ""
    replacer = None

    def __init__(self, path: str, feeds: Sequence[Feeds], iteration: int | None) -> None:
        try:
            results = read_results(Path(path))
        except InputError as error:
            raise RecordingError(error.what, where=error.where, hint=error.hint) from error
        self._path, self._feeds, self._only = path, feeds, iteration
        self.doubts: Sequence[Doubt] = ()
        self.runner, self._iterations = next((name, kept) for name, kept in results.items() if kept)
        wanted = len(feeds) if iteration is None else iteration + 1
        if wanted > len(self._iterations):
            raise RecordingError(
                f"holds {len(self._iterations)} iterations, and there are {wanted} sample sets", where=path,
                hint="give the inputs that it was made from (polygraphy run --save-inputs), or --sample N",
            )  # fmt: skip
        self.versions: Mapping[str, str] = {"polygraphy runner": self.runner}
        others = tuple(name for name in results if name != self.runner)
        self.notes: tuple[Reason, ...] = (
            say("polygraphy_others", file=path, runner=self.runner, others=others)
            if others
            else say("polygraphy_outputs", file=path, runner=self.runner),
        )
        if iteration is None and wanted < len(self._iterations):
            count = len(self._iterations)
            self.doubts = (Doubt(code="iterations_unread", values={"file": path, "count": count, "read": wanted}),)
        self.tensors: Sequence[TensorMeta] = tuple(
            TensorMeta(
                name=name, op_type="Output", dtype=np.asarray(array).dtype.name, shape=tuple(np.shape(array)),
                is_output=True,
            )
            for name, array in self._iterations[iteration or 0].outputs.items()
        )  # fmt: skip
        self._places: dict[str, int] = {}

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """Call the hook with each saved output, in order, and return them. Raises InputError on other feeds."""
        outputs = self._iterations[self._place_of(feeds)].outputs
        for name, array in outputs.items():
            if hook is not None and (names is None or name in names):
                hook("Output", name, np.asarray(array))
        return outputs

    def close(self) -> None:
        """Do nothing: nothing is held open."""

    def _place_of(self, feeds: Feeds) -> int:
        if self._only is not None:
            return self._only
        if not self._places:
            for place, one in enumerate(self._feeds):
                self._places.setdefault(_digest_of(one), place)
        found = self._places.get(_digest_of(feeds))
        if found is None:
            raise InputError("these are not the inputs that the outputs were made from", where=self._path)
        return found


def _digest_of(feeds: Feeds) -> str:
    found = hashlib.sha256()
    for name in sorted(feeds):
        array = np.ascontiguousarray(feeds[name])
        found.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()
