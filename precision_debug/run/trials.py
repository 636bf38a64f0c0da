"""Runs the target with a set of operators kept, against a baseline that was computed once."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BackendUnavailable, PrecisionDebugError, UsageError
from ..numbers.arrays import as_array
from ..protocols import Feeds, Handed, Keep, Session, demand
from ..records import ModelFiles, SessionSpec
from ..registry import find
from ..search.fix import Evaluation
from ..search.request import limit_of
from ..settings import CALIBRATED, without_saving
from ..settings.options import parse_allowed_drop
from .criterion import Criterion, Sample, choose_save_setting, largest_error
from .plan import Opening
from .side import count_executed, guard_call

__all__ = ["Trials", "run_outputs"]


_TIMED = 7
"""Timed runs of a set, whose median is shown: odd, so that it is one of them."""

_TURNS = 5
"""Runs of each that are enough where they take turns for longer than a moment."""

_ROUNDED = 1e-9
"""By what a mean of scores may miss its limit: it was rounded in the last digit."""

_TOLD, _AT_ONCE = 0.004, 100
"""Seconds that a turn of both takes at least, and runs of each in it at most."""

_AGREE = 1.5
"""Times the second smallest ratio of the turns, up to which the second largest agrees with it."""

_PATIENCE, _MOMENT = 3.0, 0.3
"""Runs that are timed, and seconds that they may take: of what is reported, and of a set that is tried."""


class Trials:
    """Runs of a target with some operators kept in higher precision.

    opening: the run mode that is tried, the target's or its simulation, which saves no files then. feeds: all sample
    sets, which calibrate.

    folder: an existing one; each trial has its own in it while it lasts."""

    def __init__(
        self, opening: Opening, keep: Keep, criterion: Criterion, feeds: Sequence[Feeds], folder: Path
    ) -> None:
        spec = dataclasses.replace(opening.spec, options=without_saving(opening.spec.options))
        self.opening = dataclasses.replace(opening, spec=spec)
        self.keep, self.criterion, self.feeds, self.folder = keep, criterion, feeds, folder
        self.opened = 0
        self.ran = False  # whether any set has run here: then what another lacks, it lacks by what it keeps

    @property
    def mode(self) -> str:
        return self.opening.spec.mode

    @property
    def calibrates(self) -> bool:
        """Whether a set that is only chosen among may give an error that is not quite that of a session of its own."""
        return self.opening.mode is not None and self.opening.mode.calibrates

    @property
    def roughly(self) -> Mapping[str, str]:
        """What opens a set so that it costs no calibration of its own, where that may be."""
        folder = Path(self.opening.spec.work_dir or self.folder, CALIBRATED)
        return {"calibrated": str(folder)} if self.calibrates else {}

    @property
    def saves(self) -> bool:
        """Whether the mode can save what it runs, whose size is then known."""
        return self._reads("save_model") or self._reads("save_engine")

    def run(
        self, keys: Sequence[str], samples: Sequence[Sample], others: Sequence[Sample] = (), *, timed: bool = True,
        beside: Session | None = None, rough: bool = False,
    ) -> Evaluation:  # fmt: skip
        """Run the target with these keys kept, and evaluate it.

        A set that does not run fails; what is missing on this machine, as long as no set has run on it, is raised.

        others: held-out samples that are run in the same session, since an engine takes long to build. timed: a few
        runs more tell the milliseconds of one. beside: the target with nothing kept, which takes turns with it, so that
        it is known how many times as long a run takes."""
        begun = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                options = dict(self.keep.options(keys))
                if rough:
                    options |= self.roughly
                engine = Path(folder, "engine.engine")
                if self._reads("save_engine"):
                    options["save_engine"] = str(engine)
                saving, file = (
                    choose_save_setting(self.opening.settings, self.mode) if self.criterion.check else ("", "")
                )
                saved = Path(options.setdefault(saving, str(Path(folder, file)))) if saving else None
                with self._open(options) as session:
                    results = self._checked(saved, self._judged(session, samples))
                    more = self._judged(session, others)
                    executed = count_executed(self.opening, session)
                    milliseconds = _time_run(session, samples[0], _MOMENT) if timed else None
                    slower = None if beside is None else _compare_times(session, beside, samples[0])
                    obeyed = tuple(getattr(session, "obeyed", tuple)())
                    size = engine.stat().st_size if engine.exists() else None
        except PrecisionDebugError as error:
            if isinstance(error, (BackendUnavailable, UsageError)) and not self.ran:
                raise
            return Evaluation(
                kept=tuple(keys), mode=self.mode, passes=False, text=str(error), seconds=time.monotonic() - begun
            )
        self.ran = True
        return dataclasses.replace(
            self._evaluation(keys, self.mode, results, begun), milliseconds=milliseconds, bytes=size,
            obeyed=obeyed, others=tuple(passes for passes, _, _ in more), executed=executed, slower=slower,
        )  # fmt: skip

    def speed_and_size(self, keys: Sequence[str], sample: Sample) -> tuple[float, int | None]:
        """Milliseconds of a run, and bytes of the model or engine with these kept, where the mode can save it."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            options = dict(self.keep.options(keys))
            path = Path(folder, "model")
            if self._reads("save_model") and not self._reads("save_engine"):
                options["save_model"] = str(path.with_suffix(".onnx"))
            with self._open(options) as session:
                milliseconds = _time_run(session, sample)
                size = sum(item.stat().st_size for item in Path(folder).iterdir())
        return milliseconds, size or None

    def made(self, handed: Handed) -> None:
        """Let the session that a hand-over names write its file. Raises PrecisionDebugError."""
        opening = self._as(handed.maker, "", handed.maker_options)
        self.opened += handed.maker == self.mode
        with _open_for_feeds(opening, self.feeds, self.folder):
            pass

    def used(self, handed: Handed, samples: Sequence[Sample]) -> tuple[Evaluation, float | None]:
        """Return a hand-over run as its user would; its milliseconds too. Raises PrecisionDebugError."""
        begun = time.monotonic()
        options, opening = dict(handed.options), self._as(handed.mode, handed.model, handed.options)
        with contextlib.ExitStack() as stack:
            saved = Path(handed.model) if handed.model else None
            saving, file = (
                choose_save_setting(opening.settings, handed.mode) if self.criterion.check and not saved else ("", "")
            )
            if saving:
                saved = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self.folder)), file)
                opening = self._as(handed.mode, handed.model, {**options, saving: str(saved)})
            session = stack.enter_context(_open_for_feeds(opening, self.feeds, self.folder))
            results = self._checked(saved, self._judged(session, samples))
            milliseconds = _time_run(session, samples[0])
        return self._evaluation((), handed.mode, results, begun), milliseconds

    def _evaluation(
        self, keys: Sequence[str], mode: str, results: Sequence[tuple[bool, float, str]], begun: float
    ) -> Evaluation:  # fmt: skip
        """Of every sample by itself; of a score, its mean over them decides."""
        found = _make_evaluation(keys, mode, results, time.monotonic() - begun)
        asked = self.criterion.asked
        limit = parse_allowed_drop(asked.drop)[0] if asked.drop else 1.0 - (limit_of(asked.limit)[0] or 0.0)
        if not (asked.score or asked.drop) or not results:
            return found
        mean = sum(error for _, error, _ in results) / len(results)
        good = mean <= limit + _ROUNDED
        mean = max(0.0, mean)  # a metric may also get better
        error = mean if math.isfinite(mean) else None
        return dataclasses.replace(found, passes=good, error=error, held=(good,) * len(results))

    def _checked(
        self, saved: Path | None, results: list[tuple[bool, float, str]]
    ) -> list[tuple[bool, float, str]]:  # fmt: skip
        """Return what was judged; where a command of the user's decides, its word, once for all samples."""
        if self.criterion.check is None or saved is None:
            return results
        passes, text = self.criterion.check.passes(saved)
        return [(passes, error, text) for _, error, _ in results]

    def _reads(self, name: str) -> bool:
        table = self.opening.settings
        return any(setting.name == name and setting.matters("target", self.mode) for setting in table)

    def _as(self, mode: str, model: str, options: Mapping[str, Any]) -> Opening:
        files = ModelFiles(model_file=model) if model else self.opening.spec.model
        backend, run_mode = find(files, mode)
        demand(backend.availability(mode), mode)
        table = {setting.name: setting for setting in backend.settings}
        shared = {name: value for name, value in self.opening.spec.options.items() if not self._reads(name)}
        own = {name: value for name, value in self.opening.spec.options.items() if name in table and not model}
        own = {name: value for name, value in own.items() if table[name].matters("target", mode)}
        spec = SessionSpec(model=files, mode=mode, options={**shared, **own, **options})
        return Opening(spec=spec, mode=run_mode, backend=backend)

    def _open(self, options: Mapping[str, Any]) -> contextlib.AbstractContextManager[Session]:
        spec = dataclasses.replace(self.opening.spec, options={**self.opening.spec.options, **options})
        self.opened += 1
        return _open_for_feeds(dataclasses.replace(self.opening, spec=spec), self.feeds, self.folder)

    def _judged(self, session: Session, samples: Sequence[Sample]) -> list[tuple[bool, float, str]]:
        return [self.criterion.judge(sample, self._values(session, sample)) for sample in samples]

    def _values(self, session: Session, sample: Sample) -> Mapping[str, Any]:
        if self.criterion.asked.on != "all":
            return run_outputs(session, sample.target_feeds, self.mode)
        seen: dict[str, Any] = {}

        def hook(_op: str, name: str, tensor: Any, /) -> None:
            seen.setdefault(name, np.array(as_array(tensor, name=name)))

        wanted = frozenset(self.criterion.pairs.values())
        outputs = guard_call(self.mode, lambda: session.run(sample.target_feeds, hook, wanted))
        return {**outputs, **seen}


def run_outputs(session: Session, feeds: Feeds, label: str) -> dict[str, Any]:
    """Return the outputs of a run, copied: an engine may use its memory again."""
    found = guard_call(label, lambda: session.run(feeds))
    return {name: np.array(as_array(value, name=name)) for name, value in found.items()}


@contextlib.contextmanager
def _open_for_feeds(opening: Opening, feeds: Sequence[Feeds], parent: Path) -> Iterator[Session]:
    folder = Path(tempfile.mkdtemp(prefix="trial-", dir=parent))
    try:
        placed = dataclasses.replace(opening, spec=dataclasses.replace(opening.spec, work_dir=str(folder)))
        session = guard_call(opening.label, lambda: placed.open(feeds))
        try:
            yield session
        finally:
            session.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_evaluation(
    keys: Sequence[str], mode: str, results: Sequence[tuple[bool, float, str]], seconds: float
) -> Evaluation:  # fmt: skip
    errors = [error for _, error, _ in results]
    worst = largest_error(errors)
    return Evaluation(
        kept=tuple(keys), mode=mode, passes=all(passes for passes, _, _ in results),
        error=worst if math.isfinite(worst) else None,
        errors=tuple(error if math.isfinite(error) else None for error in errors),
        held=tuple(passes for passes, _, _ in results),
        text=next((text for passes, _, text in results if not passes), ""), seconds=seconds,
    )  # fmt: skip


def _time_run(session: Session, sample: Sample, patience: float = _PATIENCE) -> float:
    """Median milliseconds of a run, after one that is not timed."""
    guard_call("timing", lambda: session.run(sample.target_feeds))
    times: list[float] = []
    while len(times) < _TIMED and sum(times) < patience:
        begun = time.perf_counter()
        guard_call("timing", lambda: session.run(sample.target_feeds))
        times.append(time.perf_counter() - begun)
    return 1000 * statistics.median(times)


def _compare_times(session: Session, plain: Session, sample: Sample) -> float | None:
    """Return how many times as long a run takes as another session's.

    Both by turns, so that a busy machine slows both, and so many runs at once as a clock can tell. None where that
    would take longer than a user waits for it, or where the turns disagree."""

    def took(one: Session, runs: int) -> float:
        begun = time.perf_counter()
        for _ in range(runs):
            guard_call("timing", lambda: one.run(sample.target_feeds))
        return time.perf_counter() - begun

    first = took(plain, 1) + took(session, 1)  # warms both up
    if first > _MOMENT:
        return None
    runs = max(1, math.ceil(_TOLD / max(first, _TOLD / _AT_ONCE)))
    ratios: list[float] = []
    begun = time.perf_counter()
    for turn in range(_TIMED):
        pair = (plain, session) if turn % 2 == 0 else (session, plain)
        times = {id(one): took(one, runs) for one in pair}
        ratios.append(times[id(session)] / max(times[id(plain)], 1e-9))
        if time.perf_counter() - begun > _PATIENCE and turn + 1 >= _TURNS:
            break
    ratios.sort()
    steady = ratios[-2] <= _AGREE * ratios[1]
    return statistics.median(ratios) if steady else None
