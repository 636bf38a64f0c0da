"""A loaded model: it runs, shows its tensors, says what it is, and may go on with other values than it computed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..errors import BackendError
from ..reasons import Reason
from ..records import Doubt, Operator, Stored, TensorMeta
from .tensors import Feeds, Hook

if TYPE_CHECKING:
    from ..inspector import EngineLayer

__all__ = [
    "Executed", "OneRun", "PrecisionReader", "ProgressReader", "PutsKnown", "Replace", "Replacer", "Session",
    "TellsOtherwise", "keeps_own", "progress_to", "takes_attributes", "tell",
]  # fmt: skip


@runtime_checkable
class Session(Protocol):
    """One loaded model in one run mode.

    A simple one has class attributes for what it has nothing to say of: ``notes = doubts = layers = ()``,
    ``alone = arithmetic = ""``, ``replacer = None``.
    """

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        """Every tensor of the graph that runs, in execution order; complete after ``run`` at the latest."""

    @property
    def notes(self) -> Sequence[Reason]:
        """What the reader of a report must know: what was simulated, which provider really ran, what was left out."""

    @property
    def doubts(self) -> Sequence[Doubt]:
        """What did not run as the mode asks, known after ``run`` at the latest.

        "precision_not_run" (values: precision, detail), or a code of its own. The verdict is then inconclusive."""

    @property
    def layers(self) -> Sequence[EngineLayer]:
        """The layers of an engine whose inspector tells them, after ``run`` at the latest: a sheet of the report."""

    @property
    def arithmetic(self) -> str:
        """What it computes in where that is not what its mode promises: "tf32", in numpy's words otherwise."""

    @property
    def alone(self) -> str:
        """Why it cannot run beside another session after all, though its mode is ``concurrent``; "" where it can."""

    @property
    def replacer(self) -> Replacer | None:
        """Itself, where it can go on with other values than it computed: what operators are run alone with."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Framework and device, name to version."""

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """Run once and return the model's outputs by name.

        The hook is called once for each tensor in ``names`` (None: all that can be seen), in execution order, with
        the session's own name and with values in the model's own layout: never blocked, never raw quantised bits
        where ``TensorMeta.view`` says "dequantised". The outputs are bit-identical to a run without a hook, or
        ``notes`` says why not. Raises BackendError.
        """

    def close(self) -> None:
        """Free what the session holds. Calling it twice is harmless."""


Replace = Callable[[str, str, Any], Any]
"""(op_type, tensor_name, tensor) to what the run goes on with in place of the tensor; None: with its own."""


class PutsKnown:
    """A ``replace`` that puts values which it has before the run, whatever the run computes. known: by name, None where
    there is none."""

    def __init__(self, replace: Replace, known: Callable[[str], Any]) -> None:
        self._replace, self.known = replace, known

    def __call__(self, op_type: str, name: str, tensor: Any, /) -> Any:
        return self._replace(op_type, name, tensor)


class TellsOtherwise:
    """A ``replace`` of a run in which operators compute by other attributes than their own. told: those attributes, by
    the tensor that is made and by key. See ``takes_attributes``."""

    def __init__(self, replace: Replace, told: Mapping[str, Mapping[str, Any]]) -> None:
        self._replace, self.told, self.on_device = replace, told, bool(getattr(replace, "on_device", False))

    def __call__(self, op_type: str, name: str, tensor: Any, /) -> Any:
        return self._replace(op_type, name, tensor)


class Replacer(Session, Protocol):
    """A session that can go on with other values than it computed, where the engine allows it (``Session.replacer``).

    It is what runs an operator alone: fed with the other run's inputs, or with one operator's error and no other.
    One whose tensors are not to be brought to the host for that has a ``workbench`` (see Workbench). One that keeps its
    own value of some tensors whatever is put (views of parameters) has their names in ``fixed``, each when it is shown
    at the latest: see ``keeps_own``.
    """

    @property
    def replaces(self) -> bool:
        """Whether it can do so here."""

    def run_replacing(self, feeds: Feeds, replace: Replace, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """As ``run``, with the same names in the same order; but a tensor's readers see what ``replace`` returned.

        What it returns has the shape of what it was shown, and is held as the engine holds that tensor (``held``).
        Where the engine cannot take it, the run goes on with its own value. Feeds are not changed. Raises BackendError.
        """

    def held(self, name: str, value: Any) -> Any:
        """Return what the engine holds of an array that is put in place of a tensor.

        That is the array rounded, or quantised and back, in its own type and layout. What is finite stays finite, at
        the type's limits. None: not known."""

    def operator(self, name: str) -> Operator | None:
        """Return the operator that makes a tensor, with the constants that it reads; None where that is not known."""


def keeps_own(session: Session, name: str) -> bool:
    """Return whether a session is known to go on with its own value of a tensor, so that nothing need be made for it: a
    view of a table of embeddings is as large as the table."""
    return name in getattr(session.replacer, "fixed", ())


def find_stored(session: Session, name: str) -> Stored | None:
    """Return a constant of the source model as the integers that the session's own file holds in its place; None where
    that is not known."""
    tell = getattr(session.replacer, "stored", None)
    found: Stored | None = None if tell is None else tell(name)
    return found


def find_file_scales(session: Session) -> Mapping[str, tuple[Any, Any]]:
    """Return scale and zero point of all that the session's own file holds in few bits, whoever made that file, by the
    names of the codes and of the floats; {} where that is not known."""
    found: Mapping[str, tuple[Any, Any]] = getattr(session.replacer, "scales", {})
    return found


def holds_integers(session: Session) -> bool:
    """Return whether a session's own file holds weights as integers where no operator of it tells that."""
    return bool(getattr(session.replacer, "holds_integers", False))


def takes_attributes(session: Session) -> bool:
    """Return whether a session's operators compute by other attributes where ``TellsOtherwise`` has them."""
    return bool(getattr(session.replacer, "takes_attributes", False))


# In which precision a session's operators really ran, as the engine shows it and not as it was asked for.

@dataclass(frozen=True, kw_only=True)
class Executed:
    """Of ``of`` operators (or fused layers) that compute on floats, ``low`` ran in the mode's low precision.

    precision: the low one, as people write it ("BF16", "INT8"). names: of each of the ``low`` operators, the source
    model's tensors that it computes, what is fused into it included; None: not known.
    """

    low: int
    of: int
    precision: str
    names: tuple[tuple[str, ...], ...] | None = None

    @property
    def counts(self) -> Executed:
        """What a report keeps of it."""
        return replace(self, names=None)


class PrecisionReader(Protocol):
    """A backend that knows more of its sessions than their layers and their tensors' types tell; by its capability."""

    def executed(self, session: Session) -> tuple[int, int] | None:
        """Return operators in low precision, and all that compute on floats, of a session that has run; None: not
        known."""


# What a session's runs share: one at a time, on feeds that are what its engine takes.

class OneRun:
    """Around each run of a session: one at a time, and none once it is closed.

    Engines' requests and interpreters hold their inputs, so a second thread's run would change the first one's.

        with self._one_run:             # raises BackendError where another run goes on, or the session is closed
            ...
        with self._one_run.closing():   # waits for a run that goes on
            ...
    """

    def __init__(self, path: str) -> None:
        """path: of the model, for the error."""
        self._path = path
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise BackendError("this session is running already", where=self._path, hint="open another session")
        if self._closed:
            self._lock.release()
            raise BackendError("this session is closed", where=self._path)

    def __exit__(self, *exc: object) -> None:
        self._lock.release()

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Around letting go of what a run needs."""
        with self._lock:
            self._closed = True
            yield


# What a session says of itself during a call that takes long: what it is doing now, for whoever waits.

_LISTENER: ContextVar[Callable[[Reason], None] | None] = ContextVar("listener", default=None)


def tell(text: Reason) -> None:
    """Say what is done from now on ("building engine 2, with 50 marks"). Where nobody listens, nothing happens."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(text)


@contextmanager
def progress_to(listener: Callable[[Reason], None]) -> Iterator[None]:
    """Send what this thread's sessions tell to the listener."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


class ProgressReader(Protocol):
    """A backend whose engine prints how far it is while a call holds the interpreter, so that ``tell`` cannot."""

    def heard(self, line: str) -> Reason | None:
        """Return what one line that the session's process printed says of that; None: nothing. Reads the line alone."""
