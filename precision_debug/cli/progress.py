"""A progress bar on a terminal; nothing elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..safety.visible import visible

__all__ = ["bar"]


@contextlib.contextmanager
def bar(*, quiet: bool = False) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yields what to call with each event of the journal."""
    if quiet or not sys.stderr.isatty():
        yield lambda _event: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=None)

        def on_event(event: Mapping[str, Any]) -> None:
            kind = event["event"]
            if kind == "stage":
                progress.update(task, description=visible(str(event["text"])))
            elif kind == "plan":
                progress.update(task, total=event["baseline"] + event["target"], completed=0)
            elif kind in ("saved", "row"):
                progress.advance(task)

        yield on_event
