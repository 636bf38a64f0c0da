"""The plugin: names the run modes, reads a model's inputs, opens sessions. Imports no framework by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from precision_debug.onnx.types import add_schemas
from precision_debug.protocols import Capabilities, demand
from precision_debug.reasons import Catalogue, Reason, as_reason
from precision_debug.records import Availability, Culprit, InputMeta, RunMode, SessionSpec
from precision_debug.settings import Setting

from .engine.schemas import read_schemas
from .modes import RUN_MODES, availability, recipe
from .reasons import REASONS
from .settings import SETTINGS, setting

if TYPE_CHECKING:
    from precision_debug.protocols import (
        AloneFiles,
        BaselineStore,
        Comparer,
        Description,
        Feeds,
        Operators,
        Remedy,
        Rung,
        Session,
        Switch,
    )

    from .keep import OrtKeep
    from .modes import Recipe

__all__ = ["OnnxRuntimeBackend"]

_LEVEL = "graph_optimization_level"
_LOWER = ("EXTENDED", "BASIC", "ORT_DISABLE_ALL")

add_schemas(read_schemas)


class OnnxRuntimeBackend:
    """See protocols.Backend."""

    name = "onnxruntime"
    run_modes: Sequence[RunMode] = RUN_MODES
    settings: Sequence[Setting] = SETTINGS
    reasons: Catalogue = REASONS
    described: Sequence[str] = (".ort",)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            operator_runner=self, keeper=self, ladder=self, describer=self, alone_scripter=self, on_device=self,
            on_device_alone=self, bare_runner=self, cautious=self, precision_reader=self,
            remedies=self,
        )  # fmt: skip

    def executed(self, session: Session) -> tuple[int, int] | None:
        """See ``protocols.PrecisionReader``: of float16 on the CPU, which computes most nodes in float32."""
        for note in session.notes:
            nodes = as_reason(note).args.get("nodes") if as_reason(note).code == f"{self.name}.float16_on_cpu" else None
            if isinstance(nodes, Reason):
                return int(str(nodes.args["half"])), int(str(nodes.args["all"]))
        return None

    def describe(self, path: str) -> Description:
        """See ``protocols.Describer``."""
        from .engine.description import describe

        return describe(path)

    def alone_script(self, mode: str, files: AloneFiles) -> str:
        """See ``protocols.AloneScripter``."""
        from .engine.alone_script import script

        return script(mode, files)

    def run_bare(self, spec: SessionSpec, feeds: Feeds) -> bool:
        """See ``protocols.BareRunner``."""
        from .engine.bare import run_bare

        return run_bare(spec, feeds)

    def availability(self, mode: str) -> Availability:
        return availability(mode)

    def inputs(self, spec: SessionSpec) -> Sequence[InputMeta]:
        self._available(spec.mode)
        from precision_debug.onnx.input_roles import with_uses
        from precision_debug.onnx.model import read_inputs

        from .model import find_run_folder, read_source

        source = read_source(spec.model.model_file, find_run_folder(spec))
        return with_uses(read_inputs(source), source.proto.graph)

    def open(self, spec: SessionSpec, feeds: Sequence[Feeds]) -> Session:
        return self._opened(spec, feeds, on_device=False)

    def open_for(self, comparer: Comparer, spec: SessionSpec, feeds: Sequence[Feeds]) -> Session:  # noqa: ARG002
        """See protocols.OnDevice: of what CUDA's provider runs, the tensors are shown in the device's memory."""
        return self._opened(spec, feeds, on_device=recipe(spec.mode).engine == "cuda")

    def on_device(
        self, first: SessionSpec, second: SessionSpec
    ) -> tuple[Comparer, BaselineStore | None] | Reason | None:
        """See protocols.OnDevice: a baseline on the device too waits there."""
        from . import on_device

        comparer = on_device.make_device_comparer(second)
        if comparer is None or isinstance(comparer, Reason):
            return comparer
        return comparer, on_device.make_device_store(first)

    def on_device_alone(self, first: SessionSpec, second: SessionSpec) -> Comparer | Reason | None:  # noqa: ARG002
        """See protocols.OnDeviceAlone."""
        from . import on_device

        return on_device.make_device_comparer(second)

    def _opened(self, spec: SessionSpec, feeds: Sequence[Feeds], *, on_device: bool) -> Session:
        chosen = self._available(spec.mode)
        if not chosen.providers:
            from .engine.reference import open_reference
            from .make.exact_sums import make_sums_exact

            return open_reference(spec, lambda model: make_sums_exact(model)[0])
        if chosen.plugin:
            from .engine.plugin_session import open_plugin

            return open_plugin(spec, chosen.plugin, feeds)
        from .opening import open_session

        return open_session(spec, chosen, feeds, on_device=on_device)

    def operators(self, spec: SessionSpec) -> Operators:
        """See ``protocols.OperatorRunner``."""
        from .isolate import read_operators

        return read_operators(spec.model.model_file)

    def rungs(self, spec: SessionSpec) -> Sequence[Rung]:
        """See ``protocols.Ladder``."""
        from .engine import ladder

        return ladder.rungs(spec)

    def switches(self, spec: SessionSpec, rung: Rung, op_types: Collection[str]) -> Sequence[Switch]:  # noqa: ARG002
        """See ``protocols.Ladder``: optimisers; operators are left to ``precision_debug search``."""
        from .engine import passes

        return passes.switches(dataclasses.replace(spec, mode=rung.mode))

    def cautiously(self, spec: SessionSpec) -> Mapping[str, Mapping[str, Any]]:
        """See ``protocols.Cautious``: lower levels of optimisation."""
        if not recipe(spec.mode).optimise:
            return {}
        given = setting(spec.options, "config")
        levels = {f"--option {_LEVEL}={level}": {"config": {**given, _LEVEL: level}} for level in _LOWER}
        return {} if _LEVEL in given else levels

    def keep(self, spec: SessionSpec) -> OrtKeep | None:
        """See ``protocols.Keeper``."""
        from .keep import OrtKeep

        chosen = recipe(spec.mode)
        return OrtKeep(spec=spec, recipe=chosen) if chosen.change else None

    def remedies(
        self, spec: SessionSpec, culprits: Sequence[Culprit], base: SessionSpec  # noqa: ARG002
    ) -> Sequence[Remedy]:  # fmt: skip
        """See ``protocols.Remedies``."""
        from .engine.remedies import remedies_of

        return tuple(remedies_of(recipe(spec.mode).change, spec.options, spec.model.model_file, culprits))

    def _available(self, mode: str) -> Recipe:
        demand(availability(mode), mode, where=self.name)
        return recipe(mode)
