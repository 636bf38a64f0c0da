"""The operators of a baseline that only replays: those of its model, run here and led along what was recorded.

A recording has no operators, so nothing could be said of who introduced an error that it shows. Its model is here,
though, in the target's own backend. Each operator of that gets the recorded inputs; by what its result differs from the
recorded one, that result is moved, in every later run too. So an undisturbed run shows the recording, and an error that
is put in goes on through the model's operators.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import PrecisionDebugError
from ..feeds import FeedSet
from ..observe.store import Store
from ..protocols import Feeds, Hook, Replace, Replacer, Session
from ..records import Operator
from .side import OpenSide
from .to_keep import plain_opening

__all__ = ["StandIn", "standing_in"]

_IN_MEMORY = 1 << 28
"""Bytes of what results are moved by that are held in memory; more goes to the disk."""


@contextlib.contextmanager
def standing_in(base: OpenSide, target: OpenSide, feed_set: FeedSet, folder: Path) -> Iterator[Session]:
    """The baseline's session, with operators where it is a recording of the target's model and that can be run here.

    The model is open once more as long as the context lasts."""
    session = base.session
    replays = bool(base.opening.recording) and session.replacer is None
    if not replays or target.opening.backend is None or any(meta.phase for meta in session.tensors):
        yield session
        return
    with contextlib.ExitStack() as stack:
        found: Session = session
        with contextlib.suppress(PrecisionDebugError):
            plain = plain_opening(target.opening).open(feed_set.calibrating)
            stack.callback(plain.close)
            names = {meta.name for meta in plain.tensors}
            known = all(meta.name in names for meta in session.tensors if not meta.unseen)
            if known and plain.replacer is not None and plain.replacer.replaces:
                moved = stack.enter_context(contextlib.closing(Store(memory_budget=_IN_MEMORY, folder=folder)))
                found = StandIn(session, plain.replacer, moved)
        yield found


class StandIn:
    """See protocols.Replacer: the recorded session, with the operators of its model.

    operators: a session of that model. moved: room for what recorded results differ by."""

    replaces = True
    workbench = None

    def __init__(self, recorded: Session, operators: Replacer, moved: Store) -> None:
        self._recorded, self._operators, self._moved = recorded, operators, moved
        self._outputs = frozenset(meta.name for meta in recorded.tensors if meta.is_output)
        self._is_led = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recorded, name)

    @property
    def tensors(self) -> Any:
        """The recorded ones."""
        return self._recorded.tensors

    @property
    def replacer(self) -> StandIn:
        """Itself."""
        return self

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """What was recorded."""
        return self._recorded.run(feeds, hook, names)

    def run_replacing(self, feeds: Feeds, replace: Replace, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """See protocols.Replacer. Raises BackendError."""
        self._lead(feeds)
        wanted = None if names is None else frozenset(names)
        outputs: dict[str, Any] = {}

        def put(op_type: str, name: str, value: Any) -> Any:
            found = self._as_recorded(name, value)
            shown = value if found is None else found
            new = replace(op_type, name, shown) if wanted is None or name in wanted else None
            put_back = found if new is None else new
            if name in self._outputs:
                outputs[name] = np.array(shown if put_back is None else put_back)
            return put_back

        shown_names = None if wanted is None else wanted | set(self._moved) | self._outputs
        return {**self._operators.run_replacing(feeds, put, shown_names), **outputs}

    def held(self, name: str, value: Any) -> Any:
        """See protocols.Replacer."""
        return self._operators.held(name, value)

    def operator(self, name: str) -> Operator | None:
        """See protocols.Replacer."""
        return self._operators.operator(name)

    def close(self) -> None:
        """Nothing: both sessions are others'."""

    def _lead(self, feeds: Feeds) -> None:
        """Run the model on what was recorded, once, and keep what each result differs by."""
        if self._is_led:
            return
        for name in self._moved:  # of a run that ended early
            self._moved.drop(name)
        with contextlib.closing(Store(memory_budget=_IN_MEMORY)) as seen:
            several = set[str]()  # of a loop's body, each iteration

            def see(_op_type: str, name: str, value: Any, /) -> None:
                if name in seen:
                    several.add(name)
                else:
                    seen.put(name, np.asarray(value))

            self._recorded.run(feeds, see)

            def lead(_op_type: str, name: str, value: Any) -> Any:
                recorded, own = seen.get(name), np.asarray(value)
                if recorded is None or recorded.shape != own.shape:
                    return None
                if own.dtype.kind == "f" and recorded.dtype.kind in "fV":
                    with np.errstate(all="ignore"):
                        moved = recorded.astype(np.float64) - own.astype(np.float64)
                    if np.isfinite(moved).all():
                        self._moved.put(name, moved.astype(own.dtype))
                        return recorded.astype(own.dtype)
                return None

            self._operators.run_replacing(feeds, lead, frozenset(seen) - several)
        self._is_led = True

    def _as_recorded(self, name: str, value: Any) -> Any:
        moved = self._moved.get(name)
        own = np.asarray(value)
        return None if moved is None or moved.shape != own.shape else (own + moved).astype(own.dtype)
