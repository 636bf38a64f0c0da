"""``watch``: somebody's own predictor, shown to the hooks as the command line shows a run mode.

A framework's raw hook shows what the engine holds: blocked layouts, a convolution under its old name after a batch norm
was folded into it. A watched predictor runs as its configuration says, and shows its tensors under the model's names in
the model's layout.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Any

from .. import registry
from ..errors import UsageError
from ..protocols import Feeds, Hook, Session
from ..reasons import Reason, as_reason
from ..records import Side, TensorMeta

__all__ = ["Watched", "watch"]


class Watched:
    """A session that runs as somebody's configuration says. Close it, or use it in a ``with`` statement."""

    def __init__(self, session: Session, backend: str, folder: tempfile.TemporaryDirectory[str]) -> None:
        self._session, self._backend, self._folder = session, backend, folder

    @property
    def session(self) -> Session:
        """What runs it."""
        return self._session

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        """Every tensor that the program has; complete after the first run."""
        return self._session.tensors

    @property
    def notes(self) -> Sequence[Reason]:
        """What a reader of the results must know."""
        return self._session.notes

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """Run once, show the tensors (``names``: only these) to the hook, and return the outputs by name.

        The first run finds out what can be shown without changing the program, so it takes longer. SaveBaseline and
        AssertClose also learn which tensors there are, so that their report has the reasons of those not shown.
        Raises PrecisionDebugError.
        """
        outputs = self._session.run(feeds, hook, names)
        announce = getattr(hook, "announce", None)
        if announce is not None:
            side = Side(
                mode="watched", backend=self._backend, model="", versions=dict(self._session.versions),
                notes=tuple(map(as_reason, self._session.notes)), tensors=len(self._session.tensors),
            )  # fmt: skip
            announce(self._session.tensors, side)
        return outputs

    def close(self) -> None:
        """Free the predictor. Calling it twice is harmless."""
        self._session.close()
        self._folder.cleanup()

    def __enter__(self) -> Watched:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def watch(config: Any) -> Watched:
    """In place of ``create_predictor(config)``: the same predictor, with tensors that hooks can compare.

    config: a ``paddle.inference.Config``, of which a copy is used: every setting is the caller's own. Raises UsageError
    where no backend knows it, or where it cannot be watched.
    """
    folder = tempfile.TemporaryDirectory(prefix="precision_debug-")
    try:
        for backend in registry.backends():
            watcher = backend.capabilities.watcher
            session = watcher.watch(config, folder.name) if watcher is not None else None
            if session is not None:
                return Watched(session, backend.name, folder)
    except BaseException:
        folder.cleanup()
        raise
    folder.cleanup()
    raise UsageError(
        f"a {type(config).__name__} cannot be watched", where="watch", hint="give the paddle.inference.Config"
    )
