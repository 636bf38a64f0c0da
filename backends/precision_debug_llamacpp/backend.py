"""The plugin: names the run modes, reads a model's inputs, opens sessions. Imports no framework by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from precision_debug.protocols import Capabilities, demand
from precision_debug.reasons import Catalogue
from precision_debug.records import Availability, InputMeta, RunMode, SessionSpec
from precision_debug.settings import Setting

from .engine.head import HeadConfigurations
from .modes import RUN_MODES, availability, recipe
from .reasons import REASONS
from .settings import SETTINGS

if TYPE_CHECKING:
    from precision_debug.protocols import Feeds, Session

    from .keep import LlamaCppKeep
    from .modes import Recipe

__all__ = ["LlamaCppBackend"]


class LlamaCppBackend:
    """See protocols.Backend."""

    name = "llamacpp"
    run_modes: Sequence[RunMode] = RUN_MODES
    settings: Sequence[Setting] = SETTINGS
    reasons: Catalogue = REASONS
    configurations = HeadConfigurations()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(keeper=self, configurer=self)

    def availability(self, mode: str) -> Availability:
        return availability(mode)

    def inputs(self, spec: SessionSpec) -> Sequence[InputMeta]:
        self._available(spec.mode)
        from .model import read_inputs, read_model

        return read_inputs(read_model(spec.model.model_file))

    def open(self, spec: SessionSpec, feeds: Sequence[Feeds]) -> Session:  # noqa: ARG002
        chosen = self._available(spec.mode)
        from .opening import open_session

        return open_session(spec, chosen)

    def keep(self, spec: SessionSpec) -> LlamaCppKeep | None:
        """See ``protocols.Keeper``."""
        self._available(spec.mode)
        from .keep import LlamaCppKeep

        return LlamaCppKeep.of(spec, recipe(spec.mode))

    def _available(self, mode: str) -> Recipe:
        demand(availability(mode), mode, where=self.name)
        return recipe(mode)
