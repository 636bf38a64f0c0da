"""The plugin: names the run modes, reads a model's inputs, opens sessions. Imports no framework by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from precision_debug.protocols import Capabilities, demand
from precision_debug.reasons import Catalogue
from precision_debug.records import Availability, Culprit, InputMeta, RunMode, SessionSpec
from precision_debug.settings import Setting

from .modes import RUN_MODES, availability, recipe
from .reasons import REASONS
from .settings import SETTINGS, setting

if TYPE_CHECKING:
    from precision_debug.protocols import (
        AloneFiles,
        Configurations,
        Description,
        Feeds,
        Operators,
        Remedy,
        Rung,
        Session,
        Survey,
        Switch,
    )

    from .keep import OpenVinoKeep
    from .modes import Recipe

__all__ = ["OpenVinoBackend"]


class OpenVinoBackend:
    """See protocols.Backend."""

    name = "openvino"
    run_modes: Sequence[RunMode] = RUN_MODES
    settings: Sequence[Setting] = SETTINGS
    reasons: Catalogue = REASONS
    described: Sequence[str] = (".xml",)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            keeper=self, describer=self, alone_scripter=self, surveyor=self, ladder=self, bare_runner=self,
            remedies=self, configurer=self, holds_narrower=self, operator_runner=self,
        )  # fmt: skip

    def operators(self, spec: SessionSpec) -> Operators:
        """See ``protocols.OperatorRunner``."""
        from .isolate import OpenVinoOperators
        from .model import read_model

        return OpenVinoOperators(read_model(spec))

    def computed_narrower(self, spec: SessionSpec) -> str:
        """See ``protocols.HoldsNarrower``."""
        from .model import find_narrower_operator

        return find_narrower_operator(spec.model.model_file)

    def describe(self, path: str) -> Description:
        """See ``protocols.Describer``."""
        self._available("ov_fp32", path)
        from .engine.description import describe

        return describe(path)

    def survey(self, spec: SessionSpec, feeds: Feeds) -> Survey:  # noqa: ARG002
        """See ``protocols.Surveyor``."""
        self._available(spec.mode)
        from .engine.description import survey

        return survey(spec)

    def rungs(self, spec: SessionSpec) -> Sequence[Rung]:
        """See ``protocols.Ladder``."""
        from .engine import ladder

        return ladder.rungs(spec)

    def switches(self, spec: SessionSpec, rung: Rung, op_types: Collection[str]) -> Sequence[Switch]:  # noqa: ARG002
        """See ``protocols.Ladder``: what properties switch off."""
        from .engine import ladder

        return ladder.switches(dataclasses.replace(spec, mode=rung.mode))

    def run_bare(self, spec: SessionSpec, feeds: Feeds) -> bool:
        """See ``protocols.BareRunner``."""
        import openvino

        from .model import read_model

        chosen = recipe(spec.mode)
        if chosen.quantise:
            return False
        config = {"INFERENCE_PRECISION_HINT": chosen.precision} if chosen.precision else {}
        device = str(setting(spec.options, "device"))
        openvino.Core().compile_model(read_model(spec), device, config)(dict(feeds))
        return True

    def alone_script(self, mode: str, files: AloneFiles) -> str:
        """See ``protocols.AloneScripter``."""
        from .engine.alone_script import script

        return script(mode, files)

    def availability(self, mode: str) -> Availability:
        return availability(mode)

    def inputs(self, spec: SessionSpec) -> Sequence[InputMeta]:
        self._available("ov_fp32")  # reading needs no more than OpenVINO, whatever the mode does
        from .model import read_inputs, read_model, with_uses

        return with_uses(read_inputs(read_model(spec)), spec.model.model_file)

    def open(self, spec: SessionSpec, feeds: Sequence[Feeds]) -> Session:
        chosen = self._available(spec.mode)
        from .opening import open_session

        return open_session(spec, chosen, feeds)

    def keep(self, spec: SessionSpec) -> OpenVinoKeep | None:
        """See ``protocols.Keeper``."""
        from .keep import OpenVinoKeep

        return OpenVinoKeep.of(spec, recipe(spec.mode))

    def remedies(self, spec: SessionSpec, culprits: Sequence[Culprit], base: SessionSpec) -> Sequence[Remedy]:
        """See ``protocols.Remedies``."""
        from .engine.remedies import iterate_remedies

        return tuple(iterate_remedies(spec, culprits, base))

    @property
    def configurations(self) -> Configurations:
        """See ``protocols.Configurer``."""
        from .engine.remedies import IrConfigurations

        return IrConfigurations()

    def _available(self, mode: str, where: str = "") -> Recipe:
        demand(availability(mode), mode, where=where or self.name)
        return recipe(mode)
