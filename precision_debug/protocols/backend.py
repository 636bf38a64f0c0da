"""A plugin: its run modes, its settings, its sessions, and what else it can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ..errors import BackendUnavailable
from ..reasons import Catalogue, say
from ..records import Availability, InputMeta, RunMode, SessionSpec
from ..settings import Setting
from .capabilities import Capabilities
from .session import Session
from .tensors import Feeds

__all__ = ["Backend", "demand"]


@runtime_checkable
class Backend(Protocol):
    """A plugin. Constructing it, ``name``, ``run_modes`` and ``settings`` import no framework."""

    @property
    def name(self) -> str:
        """Name of the backend: "onnxruntime", "paddle", …."""

    @property
    def run_modes(self) -> Sequence[RunMode]:
        """Every mode that it can offer, on any machine."""

    @property
    def settings(self) -> Sequence[Setting]:
        """Every setting that its sessions read; nothing else reaches them. ``()``: none."""

    @property
    def reasons(self) -> Catalogue:
        """Catalogue of what the backend says of tensors and runs, as codes with arguments, in English and Chinese.

        With an empty one, ``Catalogue(name, {})``, it says everything as bare text, which is shown as it is."""

    @property
    def capabilities(self) -> Capabilities:
        """What else it can do; a backend that only opens sessions says ``Capabilities()``."""

    def availability(self, mode: str) -> Availability:
        """Return whether a mode can run on this machine. May import the framework; never raises."""

    def inputs(self, spec: SessionSpec) -> Sequence[InputMeta]:
        """Return the model's inputs, without building an engine. Raises ModelError."""

    def open(self, spec: SessionSpec, feeds: Sequence[Feeds]) -> Session:
        """Load the model in one run mode; ``feeds`` calibrate it where the mode needs that.

        Raises BackendUnavailable, ModelError or BackendError. Expensive builds may wait until ``run``, but
        ``tensors`` lists before it what can be known.
        """


def demand(available: Availability, mode: str, *, where: str = "") -> None:
    """Raise BackendUnavailable where a mode cannot run here. where: the model's file, or the backend."""
    if not available.ok:
        what = say("cannot_run_here", mode=mode, needs=available.needs)
        raise BackendUnavailable(what, where=where, hint=say("doctor_lists"))
