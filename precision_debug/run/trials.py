"""Runs the target with a set of operators kept, against a baseline that was computed once."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BackendUnavailable, PrecisionDebugError, UsageError
from ..numbers.arrays import as_array
from ..protocols import Feeds, Handed, Session, demand
from ..records import ModelFiles, SessionSpec
from ..registry import find
from ..search.fix import Evaluation, limit_of
from ..search.offer import finite_or_none
from ..settings import CALIBRATED, without_saving
from ..settings.options import parse_allowed_drop
from .criterion import SAVED_AS, Criterion, Sample, Verdict, choose_save_setting, largest_error
from .plan import Opening
from .side import count_executed, guard_call

__all__ = ["Trials", "run_outputs"]


_TIMED = 7
"""Timed runs of a set, whose median is shown: odd, so that it is one of them."""

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

    opening: the run mode that is tried, the target's or its simulation, which saves no files then. keeping: the
    settings that keep some keys (see protocols.Keep). feeds: all sample sets, which calibrate. ran: whether the mode
    has run here: then what a set lacks, it lacks by what it keeps.

    folder: an existing one; each trial has its own in it while it lasts."""

    def __init__(
        self, opening: Opening, keeping: Callable[[Sequence[str]], Mapping[str, Any]], criterion: Criterion,
        feeds: Sequence[Feeds], folder: Path, *, ran: bool = False,
    ) -> None:  # fmt: skip
        spec = dataclasses.replace(opening.spec, options=without_saving(opening.spec.options))
        self.opening = dataclasses.replace(opening, spec=spec)
        self.keeping, self.criterion, self.feeds, self.folder = keeping, criterion, feeds, folder
        self.opened, self.ran = 0, ran
        self.unseen: Evaluation | None = None

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
        self, keys: Sequence[str], samples: Sequence[Sample], *, timed: bool = True, beside: Session | None = None,
        rough: bool = False, weighed: bool = False, unseen: Sequence[Sample] = (),
    ) -> Evaluation:  # fmt: skip
        """Run the target with these keys kept, and evaluate it.

        A set that does not run fails; what is missing on this machine, as long as no set has run on it, is raised.

        timed: a few runs more tell the milliseconds of one. beside: the target with nothing kept, which takes turns
        with it, so that it is known how many times as long a run takes. weighed: the bytes are told too where that
        takes saving a model. unseen: further samples that are run in the same session, since an engine takes long to
        build; ``self.unseen`` is what came of them."""
        begun, self.unseen = time.monotonic(), None
        try:
            self.opened += 1
            options = {**self.keeping(keys), **(self.roughly if rough else {})}
            size = "save_model" if weighed and not self._reads("save_engine") else "save_engine"
            with self._opened(self._with(options), size, self._saving) as (session, saved):
                found = dataclasses.replace(
                    self._evaluate(session, samples, keys, self.mode, saved[self._saving]),
                    executed=count_executed(self.opening, session),
                    milliseconds=_time_run(session, samples[0], _PATIENCE if weighed else _MOMENT) if timed else None,
                    slower=None if beside is None else _compare_times(session, beside, samples[0]),
                    obeyed=tuple(getattr(session, "obeyed", tuple)()), bytes=_weigh(saved[size]),
                )  # fmt: skip
                if unseen:
                    self.unseen = self._evaluate(session, unseen, keys, self.mode, saved[self._saving])
            self.ran = True
        except PrecisionDebugError as error:
            if isinstance(error, (BackendUnavailable, UsageError)) and not self.ran:
                raise
            found = Evaluation(kept=tuple(keys), mode=self.mode, passes=False, text=str(error))
        return dataclasses.replace(found, seconds=time.monotonic() - begun)

    def made(self, handed: Handed) -> None:
        """Let the session that a hand-over names write its file. Raises PrecisionDebugError."""
        self.opened += handed.maker == self.mode
        with self._opened(self._as(handed.maker, "", handed.maker_options)):
            pass

    def used(self, handed: Handed, samples: Sequence[Sample]) -> tuple[Evaluation, float | None]:
        """Return a hand-over run as its user would; its milliseconds too. Raises PrecisionDebugError."""
        opening = self._as(handed.mode, handed.model, handed.options)
        saving = choose_save_setting(opening.settings, handed.mode) if self.criterion.check and not handed.model else ""
        with self._opened(opening, saving) as (session, saved):
            file = Path(handed.model) if handed.model else saved[saving]
            return self._evaluate(session, samples, (), handed.mode, file), _time_run(session, samples[0])

    def _evaluate(
        self, session: Session, samples: Sequence[Sample], keys: Sequence[str], mode: str, saved: Path | None
    ) -> Evaluation:  # fmt: skip
        """Judge every sample by itself; of a score, its mean over them decides, and where a command of the user's
        does, its word about the saved file, once for all of them."""
        results = self._judged(session, samples)
        if self.criterion.check is not None and saved is not None:
            passes, text = self.criterion.check.passes(saved)
            results = [Verdict(passes, one.error, text, one.outputs) for one in results]
        errors = [one.error for one in results]
        passes, worst = all(one.passes for one in results), largest_error(errors)
        held, outputs = tuple(one.passes for one in results), [one.outputs for one in results]
        asked = self.criterion.asked
        if (asked.score or asked.drop) and results:
            limit = parse_allowed_drop(asked.drop)[0] if asked.drop else 1.0 - (limit_of(asked.limit)[0] or 0.0)
            mean = sum(errors) / len(errors)
            passes, worst = mean <= limit + _ROUNDED, max(0.0, mean)  # a metric may also get better
            held = (passes,) * len(results)
        return Evaluation(
            kept=tuple(keys), mode=mode, passes=passes, held=held, error=finite_or_none(worst),
            errors=tuple(map(finite_or_none, errors)),
            outputs=() if None in outputs else tuple(finite_or_none(one) for one in outputs if one is not None),
            text=next((one.text for one in results if not one.passes), ""),
        )  # fmt: skip

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

    @property
    def _saving(self) -> str:
        """The setting that saves what a command of the user's decides about."""
        return "" if self.criterion.check is None else choose_save_setting(self.opening.settings, self.mode)

    def _with(self, options: Mapping[str, Any]) -> Opening:
        spec = dataclasses.replace(self.opening.spec, options={**self.opening.spec.options, **options})
        return dataclasses.replace(self.opening, spec=spec)

    @contextlib.contextmanager
    def _opened(self, opening: Opening, *saving: str) -> Iterator[tuple[Session, dict[str, Path | None]]]:
        """Open a session for as long as the context lasts, and its folder with it; and where each of the settings that
        the mode reads saves what it runs: None, nowhere."""
        with tempfile.TemporaryDirectory(prefix="trial-", dir=self.folder, ignore_cleanup_errors=True) as folder:
            known = {one.name for one in opening.settings if one.matters("target", opening.spec.mode)}
            saved = {one: Path(folder, "saved", SAVED_AS[one]) if one in known else None for one in saving}
            options = {one: str(path) for one, path in saved.items() if path is not None}
            Path(folder, "saved").mkdir()
            spec = dataclasses.replace(
                opening.spec, work_dir=folder, options={**opening.spec.options, **options}
            )  # fmt: skip
            placed = dataclasses.replace(opening, spec=spec)
            session = guard_call(opening.label, lambda: placed.open(self.feeds))
            try:
                yield session, saved
            finally:
                session.close()

    def _judged(self, session: Session, samples: Sequence[Sample]) -> list[Verdict]:
        inside = frozenset(self.criterion.pairs.values()) if self.criterion.asked.on == "all" else frozenset[str]()
        return [
            self.criterion.judge(sample, run_outputs(session, sample.target_feeds, self.mode, inside))
            for sample in samples
        ]  # fmt: skip


def run_outputs(
    session: Session, feeds: Feeds, label: str, inside: frozenset[str] | None = frozenset()
) -> dict[str, Any]:  # fmt: skip
    """Return the outputs of a run, and the tensors of these names (None: all), copied: an engine may use its memory
    again."""
    seen: dict[str, Any] = {}

    def hook(_op: str, name: str, tensor: Any, /) -> None:
        seen.setdefault(name, np.array(as_array(tensor, name=name)))

    more = () if inside == frozenset() else (hook, inside)
    found = guard_call(label, lambda: session.run(feeds, *more))
    return {**{name: np.array(as_array(value, name=name)) for name, value in found.items()}, **seen}


def _weigh(saved: Path | None) -> int | None:
    """Return the bytes of a model and of what lies beside it; None where nothing was saved."""
    return sum(one.stat().st_size for one in saved.parent.iterdir()) or None if saved is not None else None


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
    ratios = sorted(took(session, runs) / max(took(plain, runs), 1e-9) for _turn in range(_TIMED))
    steady = ratios[-2] <= _AGREE * ratios[1]
    return statistics.median(ratios) if steady else None
