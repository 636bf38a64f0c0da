"""The plugin: names its run modes and opens sessions."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from precision_debug.errors import ModelError, UsageError
from precision_debug.protocols import Capabilities, demand
from precision_debug.reasons import Catalogue, Reason
from precision_debug.records import Availability, InputMeta, RunMode, SessionSpec, TensorMeta
from precision_debug.settings import Setting, get_passed

from . import modes
from .reasons import REASONS
from .settings import SETTINGS

if TYPE_CHECKING:
    from precision_debug.protocols import Description, Feeds, Layer, Rung, Session, Switch, Watching

    from .engine.dynamic_model import Layer as DynamicLayer
    from .keep import PaddleKeep, PirKeep

__all__ = ["PaddleBackend"]


class PaddleBackend:
    """Paddle Inference, 2.6 and 3: legacy and PIR programs."""

    name = "paddle"
    run_modes: Sequence[RunMode] = modes.RUN_MODES
    settings: Sequence[Setting] = SETTINGS
    reasons: Catalogue = REASONS
    described: Sequence[str] = (".pdmodel", ".json")

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            exporter=self,
            weight_keeper=self,
            layer_keeper=self,
            watcher=self,
            ladder=self,
            keeper=self,
            precision_reader=self,
            teller=self,
            describer=self,
            bare_runner=self,
            follower=self,
        )

    def follow(
        self, model: Any, optimiser: Any, scaler: Any, folder: str, every: int, steps: Collection[int]
    ) -> AbstractContextManager[Any] | None:
        """See ``protocols.Follower``."""
        if not any(base.__module__.startswith("paddle.nn") for base in type(model).__mro__):
            return None
        if steps:
            what = "whole steps are kept of torch's loops only"
            raise UsageError(what, where="training(steps=…)", hint="leave steps out: the statistics are kept")
        from .engine.following import following

        return following(model, optimiser, scaler, folder, every)

    def describe(self, path: str) -> Description:
        """See ``protocols.Describer``."""
        from .engine.description import describe

        return describe(path)

    def availability(self, mode: str) -> Availability:
        return modes.availability(mode)

    def inputs(self, spec: SessionSpec) -> Sequence[InputMeta]:
        from .engine.dynamic_model import is_factory
        from .model import read_model

        if is_factory(spec.model.model_file):
            return self._layer(spec).inputs
        return read_model(spec.model).program.inputs

    def open(self, spec: SessionSpec, feeds: Sequence[Feeds]) -> Session:
        from .engine import tf32
        from .model import read_model

        if modes.recipe(spec.mode).dygraph:
            self._require(spec.mode, spec.model.model_file)
            from .opening import open_layer

            return open_layer(spec, modes.recipe(spec.mode), feeds)
        self._require(spec.mode, spec.model.path)
        model = read_model(spec.model)
        tf32.settle(modes.recipe(spec.mode), spec.options)
        from .opening import open_session

        folder: Any = spec.work_dir or tempfile.mkdtemp(prefix="precision_debug-")
        return open_session(spec, model, modes.recipe(spec.mode), feeds, Path(folder))

    def _require(self, mode: str, where: str) -> None:
        demand(modes.availability(mode), mode, where=where)

    def run_bare(self, spec: SessionSpec, feeds: Feeds) -> bool:
        """See BareRunner: a predictor without hooks, of the program as it is."""
        recipe = modes.recipe(spec.mode)
        if recipe.dygraph or recipe.tensorrt:
            return False
        from .engine.predictor import Runner
        from .make import make_config
        from .model import read_model
        from .opening import device_of

        model = read_model(spec.model)
        config = make_config(recipe, model.file, model.params, spec.options, device=device_of(recipe)[0])
        Runner(config, where=model.path, mode=spec.mode).run(feeds)
        return True

    def watch(self, config: Any, folder: str) -> Watching | None:
        """See Watcher."""
        from .engine.watched_session import make_watching

        return make_watching(config, Path(folder))

    def examples(self, spec: SessionSpec) -> Feeds:
        """Of a layer, what its factory returned with it; a program brings none."""
        from .engine.dynamic_model import is_factory

        return self._layer(spec).arguments if is_factory(spec.model.model_file) else {}

    def _layer(self, spec: SessionSpec) -> DynamicLayer:
        from .engine.dynamic_model import read_layer

        self._require(modes.DYGRAPH, spec.model.model_file)
        return read_layer(spec.model.model_file, seed=int(get_passed(spec.options, "seed")))

    def modules_in(self, path: str) -> dict[str, str]:
        """Return names of a paddle2onnx file's tensors to the operators that they come from."""
        from .engine.onnx_export import modules_in

        return modules_in(path) if Path(path).suffix.lower() == ".onnx" else {}

    def weights(self, spec: SessionSpec) -> dict[str, Any]:
        """Return the parameters by name; a program's without Paddle, {} where the file does not fit the program."""
        from .engine.dynamic_model import arrays_of, is_factory
        from .engine.onnx_export import weights_of
        from .model import read_model

        if is_factory(spec.model.model_file):
            return arrays_of(self._layer(spec).module)
        model = read_model(spec.model)
        try:
            return weights_of(model)
        except ModelError:
            return {}

    def check_weights(self, spec: SessionSpec, path: str) -> tuple[Reason, ...]:  # noqa: ARG002
        """Left to ``precision_debug.pairing``, which has the file's weights."""
        return ()

    def check_arrays(self, weights: Mapping[str, Any], path: str) -> tuple[Reason, ...]:  # noqa: ARG002
        """As ``check_weights``."""
        return ()

    def layers(self, spec: SessionSpec) -> dict[str, Layer]:
        """See ``protocols.LayerKeeper``."""
        from .engine.dynamic_model import is_factory, layers_of
        from .engine.onnx_export import layers_of as layers_of_program
        from .model import read_model

        if is_factory(spec.model.model_file):
            return layers_of(self._layer(spec).module)
        return layers_of_program(read_model(spec.model))

    def layers_named(self, names: Iterable[str]) -> dict[str, Layer]:
        """``layers`` of a recording's weights."""
        from .engine.onnx_export import layers_named

        return layers_named(names)

    def layer_of(self, meta: TensorMeta) -> str:
        """Return the operator that a tensor was made by."""
        from .engine.onnx_export import layer_of

        return layer_of(meta)

    def keep(self, spec: SessionSpec) -> PaddleKeep | PirKeep | None:
        """See ``protocols.Keeper``: of programs, in modes of lower precision that take names or types."""
        from .engine.pir_program import PirProgram
        from .keep import PaddleKeep, PirKeep, TensorRTKeep, count_types
        from .model import read_model

        chosen = modes.recipe(spec.mode)
        if chosen.dygraph or chosen.precision not in ("float16", "bfloat16"):
            return None
        program = read_model(spec.model).program
        if isinstance(program, PirProgram) and chosen.onednn:
            names = frozenset(value.name for value in program.values if value.dtype == "float32" and not value.hidden)
            return PirKeep(spec=spec, names=names)
        kind = TensorRTKeep if chosen.tensorrt else PaddleKeep
        return kind(spec=spec, recipe=chosen, types=count_types(program.values))

    def executed(self, session: Session) -> tuple[int, int] | None:
        """See ``protocols.PrecisionReader``: by the types that Paddle's own hook saw its kernels write."""
        return getattr(session, "executed", None)

    def heard(self, line: str) -> Reason | None:
        """See ``protocols.ProgressReader``."""
        from .engine.build_log import read_progress

        return read_progress(line)

    def rungs(self, spec: SessionSpec) -> Sequence[Rung]:
        """See ``protocols.Ladder``."""
        from .engine import ladder

        return ladder.rungs(spec)

    def switches(self, spec: SessionSpec, rung: Rung, op_types: Collection[str]) -> Sequence[Switch]:
        """See ``protocols.Ladder``."""
        from .engine import ladder

        return ladder.switches(spec, rung, op_types)
