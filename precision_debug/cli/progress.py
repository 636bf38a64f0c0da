"""What runs now, how far it is, and how long it will still take: a bar on a terminal, a line a minute elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..events import EngineProgress, Plan, RowDone, Saved, Stage, read
from ..reasons import Text
from ..report.words import count, format_duration, reason_text
from ..safety.untrusted import make_visible
from .parser import choose_language

__all__ = ["EVERY", "VARIABLE", "Progress", "show_progress"]

VARIABLE = "PRECISION_DEBUG_PROGRESS"
"""Set to "off", nothing is said of a run that goes on where there is no terminal: for whoever reads standard error."""

EVERY = 60.0
"""Seconds between two lines where there is no terminal."""
NEWS = 10.0
"""Seconds after a line in which a new stage is not reported there: a short run says nothing."""
_AFTER_THE_ROWS = frozenset({
    "stage_explaining", "stage_second_opinion", "stage_trying_fixes", "stage_trying_set", "stage_writing",
})  # fmt: skip
"""Stages in which no row is added: how many there are says nothing of how far they are."""


class Progress:
    """How far a run is, from the events of its journal. clock: seconds, as ``time.monotonic``."""

    def __init__(self, language: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._language = language
        self._clock = clock
        self.begun = clock()
        self.stage = Text("starting", "启动").of(language)
        self.heard = ""
        self._stage_begun = self.begun
        self.done, self.total = 0, 0
        self._first: float | None = None

    def take(self, event: Mapping[str, Any]) -> None:
        """One event."""
        if event["event"] in (Saved.event, RowDone.event):  # many: what they hold is of no interest here
            self.done += 1
            self._first = self._clock() if self._first is None else self._first
            return
        match read(event):
            case Stage(text=text):
                self.stage, self.heard = make_visible(reason_text(text, self._language)), ""
                self._stage_begun = self._clock()
                if text.code in _AFTER_THE_ROWS:
                    self.done, self.total, self._first = 0, 0, None
            case EngineProgress(text=text):
                self.heard = make_visible(reason_text(text, self._language))
            case Plan(baseline=baseline, target=target):
                self.total, self.done, self._first = baseline + target, 0, None

    @property
    def left(self) -> float | None:
        """Seconds that the tensors still to come will take at the rate so far; None where that cannot be told."""
        if self._first is None or self.done < 2 or self.done >= self.total:
            return None
        return (self._clock() - self._first) / (self.done - 1) * (self.total - self.done)

    def line(self) -> str:
        """Stage and how far it is, tensors, time."""
        parts = [Text(self.stage, self.stage)]
        if self.heard:
            parts.append(Text(self.heard, self.heard))
        if self.total:
            some, all_ = count(min(self.done, self.total)), count(self.total)
            parts.append(Text(f"{some} of {all_} tensors", f"{some} / {all_} 个张量"))
        passed = format_duration(self._clock() - self.begun)
        parts.append(Text(passed, f"已用 {passed}"))
        here = format_duration(self._clock() - self._stage_begun)
        if here != passed and self._clock() - self._stage_begun >= 1:  # a step that begins has taken nothing yet
            parts.append(Text(f"{here} of it in this step", f"本步骤 {here}"))
        if (left := self.left) is not None:
            parts.append(Text(f"about {format_duration(left)} left", f"约剩 {format_duration(left)}"))
        separator = "，" if self._language == "zh" else ", "
        return separator.join(part.of(self._language) for part in parts)


@contextlib.contextmanager
def show_progress(
    *, quiet: bool = False, language: str = "", every: float = EVERY
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yield what to call with each event of the journal. every: see ``EVERY``."""
    if quiet:
        yield lambda _event: None
        return
    language = choose_language(language)
    if sys.stderr.isatty():
        with _draw_progress_bar(language) as on_event:
            yield on_event
    elif os.environ.get(VARIABLE, "") == "off":
        yield lambda _event: None
    else:
        with _print_progress_lines(language, every) as on_event:
            yield on_event


@contextlib.contextmanager
def _print_progress_lines(language: str, every: float) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A line now and then: a log shows that it goes on, and a short run says nothing."""
    progress, ended = Progress(language), threading.Event()
    said = time.monotonic()

    def line() -> None:
        nonlocal said
        said = time.monotonic()
        with contextlib.suppress(OSError, ValueError):
            print(f"precision_debug: {progress.line()}", file=sys.stderr, flush=True)

    def tell() -> None:
        while not ended.wait(every):
            line()

    def take(event: Mapping[str, Any]) -> None:
        progress.take(event)
        if event["event"] == Stage.event and time.monotonic() - said >= min(NEWS, every):
            line()

    thread = threading.Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield take
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def _draw_progress_bar(language: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    progress = Progress(language)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}", markup=False),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as drawn:
        task = drawn.add_task(progress.stage, total=None, left="")

        def on_event(event: Mapping[str, Any]) -> None:
            progress.take(event)
            left = progress.left
            en, zh = (
                ("", "") if left is None else (f"about {format_duration(left)} left", f"约剩 {format_duration(left)}")
            )
            said = Text(en, zh).of(language)
            doing = f"{progress.stage} ({progress.heard})" if progress.heard else progress.stage
            drawn.update(task, description=doing, total=progress.total or None, completed=progress.done, left=said)

        yield on_event
