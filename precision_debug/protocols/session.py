"""A loaded model: it runs, shows its tensors, says what it is, and may go on with other values than it computed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..reasons import Reason
from ..records import Doubt, Operator, TensorMeta
from .tensors import Feeds, Hook

if TYPE_CHECKING:  # the inspector reads JSON, which a start need not
    from ..inspector import EngineLayer

__all__ = ["Replace", "Replacer", "Session"]


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


class Replacer(Session, Protocol):
    """A session that can go on with other values than it computed, where the engine allows it (``Session.replacer``).

    It is what runs an operator alone: fed with the other run's inputs, or with one operator's error and no other.
    One whose tensors are not to be brought to the host for that has a ``workbench`` (see Workbench).
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
