"""What the stages ask of each other. A backend from another wheel needs nothing but these and ``records``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from .reasons import Catalogue
from .records import (
    Availability,
    Comparison,
    InputMeta,
    Operator,
    RunMode,
    SessionSpec,
    TensorMeta,
    TensorStats,
    Tolerance,
)
from .settings import Setting

if TYPE_CHECKING:
    from pathlib import Path

    from .observe.store import BaselineStore
    from .pairing.align import Matches
    from .report.model import Report

__all__ = [
    "Backend",
    "Borrower",
    "Comparer",
    "Exporter",
    "Feeds",
    "Hook",
    "OnDevice",
    "OnDeviceAlone",
    "Pairer",
    "Replace",
    "Replacer",
    "Session",
    "Tensor",
    "Watcher",
    "WeightKeeper",
    "Writer",
]

Tensor = Any
"""Anything with ``__array__`` or ``__dlpack__``. A backend decodes bfloat16 that arrives as raw bits itself."""

Feeds = Mapping[str, Any]
"""Input name to numpy array."""


class Hook(Protocol):
    """Paddle's own signature. The tensor lives only during the call: copy or compare inside.

    One that does so may say it with an attribute ``borrows``, True: some backends then lend the engine's own memory
    in place of a copy.
    """

    def __call__(self, op_type: str, tensor_name: str, tensor: Tensor, /) -> None: ...


@runtime_checkable
class Borrower(Hook, Protocol):
    """A hook that can use a tensor while the run goes on; a session that cannot lend so long calls it as any hook."""

    def borrow(self, op_type: str, tensor_name: str, tensor: Tensor, /) -> Callable[[], None]:
        """In place of a call: the tensor stays as it is until what this returns was called, and has returned.

        The session calls that from the thread of the run, in the order in which it lent.
        """


@runtime_checkable
class Session(Protocol):
    """One loaded model in one run mode.

    A session of an engine whose inspector tells its layers may have them as ``layers``, a sequence of EngineLayer. One
    that finds, after ``run`` at the latest, that its mode did not run as asked says so as ``doubts``, a sequence of
    Doubt: "precision_not_run" (values: precision, detail), or a code of its own. The verdict is then inconclusive.
    One whose arithmetic is not what its mode's name promises says which it is as ``arithmetic``: "tf32", in numpy's
    words otherwise.
    """

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        """Every tensor of the graph that runs, in execution order; complete after ``run`` at the latest."""

    @property
    def notes(self) -> Sequence[str]:
        """What the reader of a report must know: what was simulated, which provider really ran, what was left out."""

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


@runtime_checkable
class Replacer(Session, Protocol):
    """A session that can go on with other values than it computed; an addition to Session, where the engine allows it.

    It is what runs an operator alone: fed with the other run's inputs, or with one operator's error and no other.
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
        """What the engine holds of an array that is put in place of a tensor: rounded, quantised and back, in the
        array's own type and layout. What is finite stays finite, at the type's limits. None: not known."""

    def operator(self, name: str) -> Operator | None:
        """The operator that makes a tensor, with the constants that it reads; None where that is not known."""


@runtime_checkable
class Backend(Protocol):
    """A plugin. Constructing it, ``name``, ``run_modes`` and ``settings`` import no framework."""

    @property
    def name(self) -> str:
        """ "onnxruntime", "paddle", …"""

    @property
    def run_modes(self) -> Sequence[RunMode]:
        """Every mode that it can offer, on any machine."""

    @property
    def settings(self) -> Sequence[Setting]:
        """Every setting that its sessions read; nothing else reaches them. A backend without it has none."""

    @property
    def reasons(self) -> Catalogue:
        """What it says of tensors and runs, as codes with arguments, in English and Chinese. One without it says
        everything as bare text, which is shown as it is."""

    def availability(self, mode: str) -> Availability:
        """Whether a mode can run on this machine. May import the framework; never raises."""

    def inputs(self, spec: SessionSpec) -> Sequence[InputMeta]:
        """The model's inputs, without building an engine. Raises ModelError."""

    def open(self, spec: SessionSpec, feeds: Sequence[Feeds]) -> Session:
        """Load the model in one run mode; ``feeds`` calibrate it where the mode needs that.

        Raises BackendUnavailable, ModelError or BackendError. Expensive builds may wait until ``run``, but
        ``tensors`` lists before it what can be known.
        """


@runtime_checkable
class Exporter(Protocol):
    """A backend whose models are exported into other formats; an addition to Backend, where it applies."""

    def examples(self, spec: SessionSpec) -> Feeds:
        """The model's own example inputs, which random ones cannot imitate; {} where it has none."""

    def modules_in(self, path: str) -> Mapping[str, str]:
        """Names of an exported file's tensors to the modules that they come from; {} where it does not say."""

    def check_weights(self, spec: SessionSpec, path: str) -> Sequence[str]:
        """What to know of an exported file's weights before an operator is blamed, one sentence each."""


@runtime_checkable
class WeightKeeper(Protocol):
    """An exporter whose weights a recording keeps, so that an exported file's can be checked elsewhere."""

    def weights(self, spec: SessionSpec) -> Mapping[str, Any]:
        """The model's own parameters and buffers, name to numpy array."""

    def check_arrays(self, weights: Mapping[str, Any], path: str) -> Sequence[str]:
        """``Exporter.check_weights`` of kept weights, where the model's framework may be absent."""


class Comparer(Protocol):
    """Numbers of tensors where they are. Results are given to ``then``, at once or later, in the order of the calls.

    Both runs' threads call it. ``then`` is called by the thread that asked, or where results come later by either of
    them, never by two at a time.
    """

    def take(self, tensor: Tensor, name: str) -> Any:
        """What a hook got, as the other methods want it: with ``shape``, and without a copy where that is possible."""

    def dtype(self, value: Any) -> str:
        """numpy's name of its type."""

    def compare(self, base: Any, target: Any, tolerance: Tolerance, then: Callable[[Comparison], None]) -> None:
        """The numbers of a pair. Both may be dropped, and overwritten by their own run, as soon as this returns."""

    def describe(self, value: Any, then: Callable[[TensorStats], None]) -> None:
        """The numbers of one tensor."""

    def settle(self) -> None:
        """Wait for everything that is under way; every ``then`` was called."""


@runtime_checkable
class OnDevice(Protocol):
    """A backend that compares tensors on their own device; an addition to Backend, where it applies."""

    def on_device(self, first: SessionSpec, second: SessionSpec) -> tuple[Comparer, BaselineStore] | None:
        """For two runs side by side: what compares, and what keeps the tensors that must wait; None: use the host's.

        The sessions are then opened with the comparer as their option "comparer", and show tensors as it takes them.
        """


@runtime_checkable
class OnDeviceAlone(Protocol):
    """A backend that compares its tensors on their own device while it runs alone; an addition to Backend."""

    def on_device_alone(self, first: SessionSpec, second: SessionSpec) -> Comparer | None:
        """For its run after a baseline of any backend, whose tensors wait in the host's memory; None: use the host's.

        The target's session is then opened with the comparer as its option "comparer", and shows tensors as it takes
        them; the comparer takes arrays too.
        """


@runtime_checkable
class Pairer(Protocol):
    """A backend that knows which tensors of two runs of one program belong together; an addition to Backend."""

    def pair(self, baseline: Sequence[TensorMeta], target: Sequence[TensorMeta]) -> Matches | None:
        """Decides for the names, in both directions; None where the lists do not tell enough, and names decide."""


@runtime_checkable
class Watcher(Protocol):
    """A backend that can run as somebody's own configuration object says; an addition to Backend, where it applies."""

    @property
    def name(self) -> str:
        """The backend's."""

    def watch(self, config: Any, folder: str) -> Session | None:
        """A session on a copy of the configuration; None: it is none of this framework.

        folder: an existing one for what is written. Raises PrecisionDebugError.
        """


class Writer(Protocol):
    """Renders a finished report into a file of one format."""

    def __call__(self, report: Report, path: Path, /) -> None: ...
