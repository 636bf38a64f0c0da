"""The plugin: names the run modes, reads a model's inputs, opens sessions. Imports no framework by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from precision_debug.protocols import Capabilities, FolderConfigurations, demand
from precision_debug.reasons import Catalogue
from precision_debug.records import Availability, InputMeta, RunMode, SessionSpec
from precision_debug.settings import Setting

from .modes import RUN_MODES, availability, python_with_vllm, recipe
from .reasons import REASONS
from .settings import SETTINGS

if TYPE_CHECKING:
    from precision_debug.protocols import Feeds, Hook, Matches, Session
    from precision_debug.records import TensorMeta

    from .keep import VllmKeep

__all__ = ["VllmBackend"]


class VllmBackend:
    """See protocols.Backend."""

    name = "vllm"
    run_modes: Sequence[RunMode] = RUN_MODES
    settings: Sequence[Setting] = SETTINGS
    reasons: Catalogue = REASONS
    named_after: Sequence[str] = ("torch",)
    configurations = FolderConfigurations()
    truth = "torch_fp64"

    @property
    def roads(self) -> Sequence[str]:
        """See ``protocols.Roads``."""
        from .opening import ROADS

        return ROADS

    def travel(self, spec: SessionSpec, road: str, feeds: Feeds, hook: Hook) -> Mapping[str, Any]:
        """See ``protocols.Roads``: held against transformers in float64, which vLLM does not compute in."""
        demand(availability(spec.mode), spec.mode, where=self.name)
        from .opening import travel_road

        return travel_road(spec, recipe(spec.mode), python_with_vllm(), road, feeds, hook)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(keeper=self, pairer=self, namesake=self, configurer=self, roads=self)

    def availability(self, mode: str) -> Availability:
        return availability(mode)

    def inputs(self, spec: SessionSpec) -> Sequence[InputMeta]:
        from .model import read_inputs, read_model

        return read_inputs(read_model(spec.model.path))

    def open(self, spec: SessionSpec, feeds: Sequence[Feeds]) -> Session:
        demand(availability(spec.mode), spec.mode, where=self.name)
        from .opening import open_session

        return open_session(spec, recipe(spec.mode), python_with_vllm(), feeds)

    def pair(self, baseline: Sequence[TensorMeta], target: Sequence[TensorMeta]) -> Matches | None:
        """See ``protocols.Pairer``."""
        from .naming import pair

        return pair(baseline, target)

    def keep(self, spec: SessionSpec) -> VllmKeep | None:
        """See ``protocols.Keeper``."""
        from .keep import VllmKeep

        return VllmKeep(spec=spec) if recipe(spec.mode).dtype != "float32" else None
