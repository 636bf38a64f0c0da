"""Runs the copy of a legacy program that records its bodies, and hands out what it recorded in the order of the run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.errors import BackendError, PrecisionDebugError
from precision_debug.protocols import Feeds
from precision_debug.reasons import NOTHING
from precision_debug.records import TensorMeta
from precision_debug.safety import own_process

from ..reasons import say
from .bodies import Recorder, with_bodies
from .legacy_program import LegacyProgram
from .predictor import Runner
from .program import NESTED, Program, Value, order_bodies

__all__ = ["Bodies", "Delivery", "make_survival_trial"]

Array = np.ndarray[Any, Any]
Item = tuple[str, str, Array]


class Bodies:
    """start: makes a runner of a program file, for the session's own mode. trial: whether the mode's passes outlive the
    copy, asked before ``start``; None: no passes run.
    """

    def __init__(
        self, program: LegacyProgram, recorder: Recorder, path: Path, start: Callable[[Path], Runner],
        trial: Callable[[Path, Feeds], bool] | None,
    ) -> None:  # fmt: skip
        self._values = {value.name: value for value in program.values}
        self._written = {value.variable or value.name: value.name for value in program.values}
        self._recorder, self._path, self._start, self._trial = recorder, path, start, trial
        self._carried = program.carried()
        self._runner: Runner | None = None
        self.unseen = NOTHING
        self._place: dict[str, int] = {}
        self.metas: dict[str, list[TensorMeta]] = {}

    @classmethod
    def of(
        cls, program: Program, folder: Path, start: Callable[[Path], Runner],
        trial: Callable[[Path, Feeds], bool] | None = None,
    ) -> Bodies | None:  # fmt: skip
        """None where a program has no bodies, or is none that is edited so."""
        if not isinstance(program, LegacyProgram) or not any(
            value.hidden.code == NESTED.code for value in program.values
        ):
            return None
        path = folder / "recorded.pdmodel"
        recorder = with_bodies(program, path)
        return cls(program, recorder, path, start, trial) if recorder is not None else None

    def probe(self, feeds: Feeds, outputs: Mapping[str, Array]) -> None:
        """Learn what there is, and that the copy computes the same. outputs: of the program itself."""
        try:
            if self._trial is not None and not self._trial(self._path, feeds):
                raise BackendError("the copy ends Paddle's process", where=str(self._path))
            items = list(self.run(feeds))
            assert self._runner is not None
            if any(self._runner.output(name).tobytes() != value.tobytes() for name, value in outputs.items()):
                raise BackendError("the copy computes other outputs", where=str(self._path))
        except PrecisionDebugError:
            self.unseen, self.metas = say("recording_changes"), {}
            self.close()
            return
        for name, full, array in items:
            self.metas.setdefault(name, []).append(self._meta(name, full, array))
            self._place[full] = len(self._place)

    def run(self, feeds: Feeds) -> Iterator[Item]:
        """(value, its name in the iteration, array), in the order of the run."""
        if self.unseen:
            return
        if self._runner is None:
            self._runner = self._start(self._path)
        found: list[Item] = []
        self._recorder.start()

        def look(_: str, variable: str, array: Array) -> None:
            if self._recorder.owns(variable):
                found.extend(self._recorder.take(variable, array))

        self._runner.execute(feeds, look)
        yield from found

    def listed(self, value: Value, otherwise: TensorMeta) -> list[TensorMeta]:
        """Return the rows of a value of a body. otherwise: where this run did not enter the body."""
        return self.metas.get(value.name) or [replace(otherwise, unseen=self.unseen) if self.unseen else otherwise]

    def in_order(self, metas: Sequence[TensorMeta]) -> list[TensorMeta]:
        """Return a listing whose recorded values stand in the order of the run: one iteration after the other."""
        return order_bodies(metas, self._place)

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def _meta(self, name: str, full: str, array: Array) -> TensorMeta:
        value = self._values[name]
        turn = full[len(name) + 1 :]
        return TensorMeta(
            name=full, op_type=value.op_type, dtype=array.dtype.name, shape=array.shape,
            inputs=tuple(self._input(one, turn) for one in value.inputs),
        )  # fmt: skip

    def _input(self, name: str, turn: str) -> str:
        """Return what a value of a body reads in an iteration: of the same one, or what the one before it carried
        on."""
        loops = self._recorder.loops
        if name in loops:
            return f"{name}@{turn}" if loops[name] and turn else name
        known = self._values.get(name)
        source = self._carried.get(known.variable or name if known is not None else name, "")
        return f"{source}@{int(turn) - 1}" if turn not in ("", "0") and source in loops else name


class Delivery:
    """Gives a run's recorded values to a hook between its other tensors, where the listing has them."""

    def __init__(self, items: Sequence[Item], order: Sequence[TensorMeta], names: Collection[str] | None) -> None:
        place = {meta.name: number for number, meta in enumerate(order)}
        types = {meta.name: meta.op_type for meta in order}
        kinds = {meta.name.rpartition("@")[0]: meta.op_type for meta in order}
        self._place = place
        last: dict[str, int] = {}
        self._left: list[tuple[int, str, str, Array]] = []
        for value, full, array in items:
            if names is None or full in names or value in names:
                at = last[value] = place.get(full, last.get(value, len(order)))
                self._left.append((at, types.get(full) or kinds.get(value, ""), full, array))
        self._left.sort(key=lambda one: one[0])

    def before(self, name: str, hook: Callable[[str, str, Any], Any]) -> None:
        """All that the listing has before a tensor."""
        self._until(self._place.get(name, -1), hook)

    def rest(self, hook: Callable[[str, str, Any], Any]) -> None:
        self._until(len(self._place) + 1, hook)

    def _until(self, end: int, hook: Callable[[str, str, Any], Any]) -> None:
        while self._left and self._left[0][0] < end:
            _, kind, full, array = self._left.pop(0)
            hook(kind, full, array)


def make_survival_trial(mode: str, params: Path, options: Mapping[str, Any]) -> Callable[[Path, Feeds], bool]:
    """Return a trial in a process of its own: a pass that meets what it does not expect ends the process."""

    def trial(path: Path, feeds: Feeds) -> bool:
        feeds_file = path.with_suffix(".npz")
        arrays: dict[str, Any] = {name: np.asarray(value) for name, value in feeds.items()}
        np.savez(feeds_file, **arrays)
        args = (mode, str(path), str(params), json.dumps(dict(options)), str(feeds_file))
        code = f"from precision_debug_paddle.engine.recorded import _try; _try(*{args!a})"
        try:
            done = own_process.run_code(code)
        except (OSError, subprocess.TimeoutExpired):
            return False
        finally:
            feeds_file.unlink(missing_ok=True)
        return done.returncode == 0

    return trial


def _try(mode: str, path: str, params: str, options: str, feeds: str) -> None:
    from .. import modes
    from ..make import make_config

    recipe = modes.recipe(mode)
    device = "gpu" if recipe.device == "gpu" else "cpu"
    config = make_config(recipe, Path(path), Path(params), json.loads(options), device=device)
    with np.load(feeds) as arrays:
        Runner(config, where=path, mode=mode).execute(dict(arrays))
