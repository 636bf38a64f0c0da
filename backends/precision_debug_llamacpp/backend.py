"""The plugin: names the run modes, reads a model's inputs, opens sessions. Imports no framework by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from precision_debug.protocols import Capabilities, Place, demand
from precision_debug.reasons import Catalogue
from precision_debug.records import Availability, InputMeta, ModelFiles, RunMode, SessionSpec
from precision_debug.settings import Setting

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

    @property
    def words(self) -> str:
        """See ``protocols.Configurer``."""
        return "gguf"

    def configuration(self, spec: SessionSpec) -> Mapping[str, Any]:
        """See ``protocols.Configurer``: the numbers and words of a file's head, without its lists."""
        from .model import read_configuration

        return read_configuration(spec.model.model_file)

    def configured(self, spec: SessionSpec, values: Mapping[Place, Any], folder: Path) -> ModelFiles:
        """See ``protocols.Configurer``."""
        self._available(spec.mode)
        from .opening import write_configured

        return ModelFiles(model_file=str(write_configured(spec.model.model_file, values, folder)))

    def _available(self, mode: str) -> Recipe:
        demand(availability(mode), mode, where=self.name)
        return recipe(mode)
