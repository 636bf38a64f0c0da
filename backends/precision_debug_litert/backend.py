"""The plugin: names the run modes, reads a model's inputs, opens sessions. Imports no framework by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from precision_debug.protocols import Capabilities, demand
from precision_debug.reasons import Catalogue
from precision_debug.records import Availability, InputMeta, RunMode, SessionSpec
from precision_debug.settings import Setting

from .modes import RUN_MODES, availability, recipe
from .reasons import REASONS
from .settings import SETTINGS, setting

if TYPE_CHECKING:
    from precision_debug.protocols import Description, Feeds, Session

    from .keep import LiteRtKeep
    from .modes import Recipe

__all__ = ["LiteRtBackend"]


class LiteRtBackend:
    """See protocols.Backend."""

    name = "litert"
    run_modes: Sequence[RunMode] = RUN_MODES
    settings: Sequence[Setting] = SETTINGS
    reasons: Catalogue = REASONS
    described: Sequence[str] = (".tflite",)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(keeper=self, describer=self, bare_runner=self, baseline_chooser=self)

    def describe(self, path: str) -> Description:
        """See ``protocols.Describer``."""
        self._available("tflite_ref", path)
        from .engine.description import describe

        return describe(path)

    def availability(self, mode: str) -> Availability:
        return availability(mode)

    def inputs(self, spec: SessionSpec) -> Sequence[InputMeta]:
        self._available(spec.mode)
        from .engine.graph import read_graph
        from .model import read_inputs, read_model

        raw = setting(spec.options, "quantised_inputs") == "raw"
        return read_inputs(read_graph(read_model(spec.model.model_file)), raw=raw)

    def open(self, spec: SessionSpec, feeds: Sequence[Feeds]) -> Session:  # noqa: ARG002
        chosen = self._available(spec.mode)
        from .opening import open_session

        return open_session(spec, chosen)

    def run_bare(self, spec: SessionSpec, feeds: Feeds) -> bool:
        """See ``protocols.BareRunner``."""
        self._available(spec.mode)
        from .engine.bare import run_bare

        return run_bare(spec.model.model_file, recipe(spec.mode), feeds)

    def baseline_of(self, spec: SessionSpec) -> str:
        """See ``protocols.BaselineChooser``: variables keep the file's own types, and the kernels are what differs."""
        if spec.mode != "tflite_opt" or not availability(spec.mode).ok:
            return ""
        from .engine.graph import holds_state
        from .model import read_model

        return "tflite_ref" if holds_state(read_model(spec.model.model_file)) else ""

    def keep(self, spec: SessionSpec) -> LiteRtKeep | None:
        """See ``protocols.Keeper``."""
        self._available(spec.mode)
        from .keep import LiteRtKeep

        return LiteRtKeep.of(spec, recipe(spec.mode))

    def _available(self, mode: str, where: str = "") -> Recipe:
        demand(availability(mode), mode, where=where or self.name)
        return recipe(mode)
