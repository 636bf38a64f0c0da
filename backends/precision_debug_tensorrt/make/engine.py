"""Builds engines of one model: the real one, and the same with more outputs or with debug tensors."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from precision_debug.errors import BackendError, OutputError
from precision_debug.ownership import guard_output
from precision_debug.protocols import tell
from precision_debug.reasons import Reason

from ..engine import tactics
from ..engine.calibration import CalibrationTable, make_calibrator, require_same_shapes
from ..engine.constraints import Asked, apply, list_asked
from ..engine.device_memory import Device
from ..engine.kept import prefer_precisions
from ..engine.messages import Messages
from ..engine.network import LayerFacts, Made, make_network, read_layers
from ..engine.options import Options
from ..engine.timing_cache import BUILDING, TimingCache
from ..engine.types import numpy_dtype
from ..engine.versions import Api
from ..failures import build_error, engine_error
from ..model import EngineFile, OnnxModel, Script
from ..modes import Recipe
from ..reasons import say
from .config import add_profile, needs_calibration, set_chips, set_flags, set_resources
from .road import Road

__all__ = ["Built", "Maker", "as_wanted", "load_engine"]

Feeds = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, kw_only=True)
class Built:
    """An engine that is loaded. seconds: the build took. asked: layers with a precision of their own. imitated: layers
    for which the real engine's precision was preferred.

    layers, outputs, inputs: of the network, before fusion; empty for an engine that was read from a file.
    """

    engine: Any
    runtime: Any
    data: bytes
    seconds: float = 0.0
    layers: tuple[LayerFacts, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    asked: tuple[Asked, ...] = ()
    calibrated: bool = False
    untaken: tuple[str, ...] = ()
    imitated: int = 0


def load_engine(api: Api, logger: Any, messages: Messages, source: EngineFile) -> Built:
    """Load a built engine. Raises ModelError, or BackendUnavailable where it is another version's or GPU's."""
    return _load(api, logger, messages, source.data, source.path)


@dataclass(kw_only=True)
class Maker:
    """Builds engines of ``source``, all in the same way and with the same timing cache and calibration.

    feeds: the first one decides the shapes where the user gives no range; all of them calibrate. like: precisions of
    the real engine's layers, which rebuilt ones prefer (see ``prefer_precisions``). chosen: the real engine's
    tactics, where rebuilt ones shall take them. builder: kept from one build to the next until ``release``.
    seconds: that the real engine's build took. chips: compute capabilities to build for, in place of this machine's
    card. device: None where engines are only built. notes: on the types that were written into ``source``. kept: the
    model's node of each layer that the last network keeps in FP32.
    """

    api: Api
    logger: Any
    messages: Messages
    source: OnnxModel | Script
    recipe: Recipe
    options: Options
    road: Road
    device: Device | None
    feeds: Sequence[Feeds]
    timing: TimingCache
    table: CalibrationTable = field(default_factory=CalibrationTable)
    like: Mapping[str, str] = field(default_factory=dict)
    chosen: dict[str, dict[str, Any]] = field(default_factory=dict)
    builder: Any = None
    seconds: float = 0.0
    chips: tuple[str, ...] = ()
    notes: tuple[Reason, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)

    def network(self) -> Made:
        """Return the network with what scripts and options do to it. Raises ModelError or MarkError."""
        made = make_network(
            self.api, self.logger, self.messages, self.source, strong=self.road.strong,
            postprocess=self.options.network_script, builder=self.builder,
        )  # fmt: skip
        self.builder = made.builder
        if not self.road.strong:
            graph = self.source.model.proto.graph if isinstance(self.source, OnnxModel) else None
            self.kept = apply(self.api, made.network, self.options, graph)
        return made

    def build(self, marks: Sequence[str] = (), *, debug: str = "") -> Built:
        """See ``_build``; one at a time in a process."""
        with BUILDING:
            try:
                return self._build(marks, debug, self.like)
            except BackendError:
                if not marks or not self.like or self.options.precision_constraints != "obey":
                    raise
                return self._build(marks, debug, {})  # under obey, a precision too many may have been the cause

    def release(self) -> None:
        """Give back what TensorRT's kernels for building take (8.6: 3 GB of the host's memory, 0.7 GB of the GPU's)."""
        self.builder = None

    def load(self, built: Built) -> Built:
        """Load an engine again from its ``data``."""
        loaded = _load(self.api, self.logger, self.messages, built.data, self.source.path)
        return dataclasses.replace(built, engine=loaded.engine, runtime=loaded.runtime)

    def _build(self, marks: Sequence[str], debug: str, like: Mapping[str, str]) -> Built:
        """``plan``, and load it."""
        made = self.plan(marks, debug, like)
        loaded = _load(self.api, self.logger, self.messages, made.data, self.source.path)
        return dataclasses.replace(made, engine=loaded.engine, runtime=loaded.runtime)

    def plan(self, marks: Sequence[str] = (), debug: str = "", like: Mapping[str, str] = MappingProxyType({})) -> Built:
        """Build an engine and leave it serialized: what needs no card where ``chips`` are given.

        like: precisions to prefer where tensors are marked. marks: tensors to be outputs too, or to be debug tensors
        where ``debug`` is "marked". debug "unfused": all that fusion leaves are debug tensors. Raises ModelError,
        MarkError, InputError, OutputError or BackendError.
        """
        real = not marks and not debug
        tell(say("building_real") if real else say("building_marked", count=len(marks), seconds=self.seconds))
        made = self.network()
        network = made.network
        layers = read_layers(network)
        inputs = tuple(network.get_input(i).name for i in range(network.num_inputs))
        outputs = tuple(network.get_output(i).name for i in range(network.num_outputs))
        asked = list_asked(network, self.kept) if self._user_asks else ()
        _mark(network, marks, debug)
        config = made.builder.create_builder_config()
        set_flags(self.api, config, self.recipe, self.options, strong=self.road.strong)
        looked_at = bool(marks) and not debug and not self._keeps_tactics
        set_resources(self.api, config, self.options, looked_at=looked_at)
        set_chips(self.api, config, self.chips)
        weak = not self.road.strong
        imitated = prefer_precisions(self.api, network, config, like) if weak and marks else 0
        if self.api.times_kernels:
            self.timing.attach(config)
        feeds = [as_wanted(network, feed) for feed in self.feeds]
        profile = add_profile(made.builder, network, config, self.options, feeds[0])
        calibrator = self._calibrate(made, config, layers, feeds, profile)
        recorded: dict[str, dict[str, Any]] = {}
        untaken: list[str] = []
        selector = self._selector(recorded, untaken, real)
        if selector is not None:
            config.algorithm_selector = selector
        self.messages.fresh_errors()
        begun = time.monotonic()
        data = made.builder.build_serialized_network(network, config)
        seconds = time.monotonic() - begun
        if calibrator is not None and calibrator.failure is not None:
            failure = calibrator.failure
            raise BackendError(f"calibration failed: {failure}", where=self.source.path) from failure
        if data is None:
            raise build_error(self.source.path, self.messages.fresh_errors())
        if self.api.times_kernels:
            self.timing.collect(config)
        plan = bytes(data)
        if real:
            self.seconds = seconds
            self._save(plan, recorded)
        return Built(
            engine=None, runtime=None, data=plan, seconds=seconds, layers=layers, inputs=inputs, outputs=outputs,
            asked=asked, calibrated=calibrator is not None, untaken=tuple(untaken), imitated=imitated,
        )  # fmt: skip

    @property
    def _user_asks(self) -> bool:
        """Some layer may have a precision of its own that the user gave; the parser sets some by itself."""
        scripted = isinstance(self.source, Script) or bool(self.options.network_script)
        return not self.road.strong and (scripted or self.options.asks_for_layers)

    def _calibrate(
        self, made: Made, config: Any, layers: Sequence[LayerFacts], feeds: Sequence[Feeds], profile: Any
    ) -> Any:
        if not needs_calibration(self.api, self.recipe, layers, made.network, strong=self.road.strong):
            return None
        require_same_shapes(feeds)
        assert self.device is not None  # who calibrates is not an edition that builds without a card
        calibrator = make_calibrator(self.api.trt, feeds, self.device, self.table)
        config.int8_calibrator = calibrator
        if profile is not None:
            own = made.builder.create_optimization_profile()
            for name, value in feeds[0].items():
                own.set_shape(name, value.shape, value.shape, value.shape)
            config.set_calibration_profile(own)
        return calibrator

    def _selector(self, recorded: dict[str, dict[str, Any]], untaken: list[str], real: bool) -> Any:
        if self.options.load_tactics:
            saved = tactics.load_tactics(self.options.load_tactics)
            return tactics.make_replayer(self.api.trt, saved, untaken)
        if real and (self.options.save_tactics or self._keeps_tactics):
            self.chosen = recorded
            return tactics.make_recorder(self.api.trt, recorded)
        if not real and self._keeps_tactics and self.chosen:
            return tactics.make_replayer(self.api.trt, self.chosen, untaken)
        return None

    @property
    def _keeps_tactics(self) -> bool:
        """Whether rebuilt engines take the real one's tactics: the fused layers are the same in both."""
        return self.options.fused_only and self.api.replays_tactics

    def _save(self, plan: bytes, recorded: Mapping[str, Mapping[str, Any]]) -> None:
        if self.options.save_tactics:
            tactics.save_tactics(self.options.save_tactics, recorded, self.api.version)
        if self.options.save_engine:
            path = Path(self.options.save_engine)
            try:
                with guard_output(path):
                    path.write_bytes(plan)
            except OSError as error:
                raise OutputError(f"the engine cannot be written: {error.strerror}", where=str(path)) from error


def as_wanted(network: Any, feeds: Feeds) -> dict[str, np.ndarray[Any, Any]]:
    """Return the feeds with the types that the network's inputs have: TensorRT 8 takes INT64 inputs as INT32."""
    wanted = {}
    for place in range(network.num_inputs):
        tensor = network.get_input(place)
        if tensor.name not in feeds:
            raise BackendError(f"the network wants an input '{tensor.name}', which has no value", where="TensorRT",
                               hint="give it with --inputs")  # fmt: skip
        dtype = numpy_dtype(tensor.dtype)
        array = np.asarray(feeds[tensor.name])
        wanted[tensor.name] = array if dtype is None else array.astype(dtype, copy=False)
    return wanted


def _mark(network: Any, marks: Sequence[str], debug: str) -> None:
    if debug == "unfused":
        network.mark_unfused_tensors_as_debug_tensors()
        return
    tensors = {
        tensor.name: tensor
        for place in range(network.num_layers)
        for index in range(network.get_layer(place).num_outputs)
        if (tensor := network.get_layer(place).get_output(index)) is not None
    }
    for name in marks:
        if name not in tensors:
            raise BackendError(f"the network has no tensor '{name}'", where="TensorRT")
        if debug == "marked":
            network.mark_debug(tensors[name])
        elif not tensors[name].is_network_output:
            network.mark_output(tensors[name])


def _load(api: Api, logger: Any, messages: Messages, data: bytes, path: str) -> Built:
    messages.fresh_errors()
    runtime = api.trt.Runtime(logger)
    messages.quoted = True
    engine = runtime.deserialize_cuda_engine(data)
    messages.quoted = False
    if engine is None:
        raise engine_error(path, messages.fresh_errors(), api.version)
    return Built(engine=engine, runtime=runtime, data=data)
