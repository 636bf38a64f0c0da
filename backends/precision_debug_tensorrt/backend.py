"""The plugin: names the run modes, reads a model's inputs, opens sessions. Imports no framework by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from precision_debug.protocols import Capabilities, demand
from precision_debug.reasons import Catalogue, Reason
from precision_debug.records import Availability, InputMeta, RunMode, SessionSpec
from precision_debug.settings import Setting

from .modes import RUN_MODES, availability, recipe
from .reasons import REASONS
from .settings import SETTINGS

if TYPE_CHECKING:
    from precision_debug.protocols import Comparer, Description, Feeds, Rung, Session, Survey, Switch

    from .keep import TensorRTKeep
    from .modes import Recipe

__all__ = ["TensorRTBackend"]


class TensorRTBackend:
    """See protocols.Backend."""

    name = "tensorrt"
    run_modes: Sequence[RunMode] = RUN_MODES
    settings: Sequence[Setting] = SETTINGS
    reasons: Catalogue = REASONS
    described: Sequence[str] = (".engine", ".plan")

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(on_device_alone=self, keeper=self, ladder=self, teller=self, describer=self, surveyor=self)

    def describe(self, path: str) -> Description:
        """See ``protocols.Describer``."""
        from .engine.description import describe

        return describe(path)

    def survey(self, spec: SessionSpec, feeds: Feeds) -> Survey:
        """See ``protocols.Surveyor``."""
        chosen = recipe(spec.mode)
        from .engine.survey import survey

        return survey(spec, chosen, feeds)

    def availability(self, mode: str) -> Availability:
        return availability(mode)

    def inputs(self, spec: SessionSpec) -> Sequence[InputMeta]:
        from .opening import read_inputs

        return read_inputs(spec, recipe(spec.mode))

    def open(self, spec: SessionSpec, feeds: Sequence[Feeds]) -> Session:
        return self._opened(spec, feeds, on_device=False)

    def open_for(self, comparer: Comparer, spec: SessionSpec, feeds: Sequence[Feeds]) -> Session:  # noqa: ARG002
        """See protocols.OnDeviceAlone."""
        return self._opened(spec, feeds, on_device=True)

    def _opened(self, spec: SessionSpec, feeds: Sequence[Feeds], *, on_device: bool) -> Session:
        chosen = self._available(spec.mode)
        from .opening import open_session

        return open_session(spec, chosen, feeds, on_device=on_device)

    def on_device_alone(self, first: SessionSpec, second: SessionSpec) -> Comparer | Reason | None:  # noqa: ARG002
        """See protocols.OnDeviceAlone; None without a GPU that the kernels run on."""
        from .on_device import make_engine_comparer

        return make_engine_comparer()

    def heard(self, line: str) -> Reason | None:
        """See ``protocols.ProgressReader``."""
        from .engine.messages import read_progress

        return read_progress(line)

    def rungs(self, spec: SessionSpec) -> Sequence[Rung]:
        """See ``protocols.Ladder``."""
        from .engine import ladder

        return ladder.rungs(spec)

    def switches(self, spec: SessionSpec, rung: Rung, op_types: Collection[str]) -> Sequence[Switch]:  # noqa: ARG002
        """See ``protocols.Ladder``: operators are left to ``precision_debug search``."""
        from .engine.tactic_sources import tactics

        return tactics(dataclasses.replace(spec, mode=rung.mode))

    def keep(self, spec: SessionSpec) -> TensorRTKeep | None:
        """See ``protocols.Keeper``: of ONNX models in modes that have a lower precision than FP32."""
        from .keep import TensorRTKeep, WeakKeep

        chosen = recipe(spec.mode)
        low = chosen.precisions and spec.model.model_file.lower().endswith(".onnx")
        if not low:
            return None
        found = TensorRTKeep(spec=spec, recipe=chosen)
        halves = chosen.precisions[0] in ("FP16", "BF16")  # of INT8, what matters is who is quantised
        return WeakKeep(spec=spec, recipe=chosen) if halves and not found.strong else found

    def _available(self, mode: str) -> Recipe:
        demand(availability(mode), mode, where=self.name)
        return recipe(mode)
