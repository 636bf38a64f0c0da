"""The front of this backend: names its run modes and opens sessions."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from precision_debug import registry
from precision_debug.errors import UsageError
from precision_debug.protocols import Capabilities, FolderConfigurations, demand
from precision_debug.reasons import Catalogue, Reason
from precision_debug.records import Availability, InputMeta, RunMode, SessionSpec, TensorMeta
from precision_debug.settings import Setting, get_passed

from . import modes
from .reasons import REASONS
from .settings import SETTINGS, setting

if TYPE_CHECKING:
    from precision_debug.protocols import (
        BaselineStore,
        Comparer,
        Description,
        Feeds,
        Hook,
        Layer,
        Matches,
        Remedy,
        Rung,
        Session,
        Switch,
    )

    from .keep import PackedKeep, TorchKeep
    from .model import Model

__all__ = ["TorchBackend", "on_device", "open_model"]

_MODELS = 2
"""Models that stay loaded for the next session: both sides of a comparison ask for theirs, mostly the same one."""


class TorchBackend:
    """PyTorch; its settings are in ``settings.SETTINGS``. live: the model of every session, where it is in memory."""

    name = "torch"
    run_modes: Sequence[RunMode] = modes.RUN_MODES
    settings: Sequence[Setting] = SETTINGS
    reasons: Catalogue = REASONS
    described: Sequence[str] = (".pt2", ".pt", ".pth", ".ts")

    def __init__(self, live: Model | None = None) -> None:
        self._live = live
        self._kept: dict[tuple[Any, ...], Model] = {}
        self._open = 0
        self._lock = threading.RLock()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            exporter=self,
            weight_keeper=self,
            ladder=self,
            layer_keeper=self,
            pairer=self,
            on_device=self,
            on_device_alone=self,
            keeper=self,
            describer=self,
            follower=self,
            bare_runner=self,
            agreeing=self,
            roads=self,
            configurer=self,
        )

    def follow(
        self, model: Any, optimiser: Any, scaler: Any, folder: str, every: int, steps: Collection[int]
    ) -> AbstractContextManager[Any] | None:
        """See ``protocols.Follower``."""
        if not any(base.__module__.partition(".")[0] == "torch" for base in type(model).__mro__):
            return None
        from .engine.training.following import following

        return following(model, optimiser, scaler, folder, every, steps)

    def describe(self, path: str) -> Description:
        """See ``protocols.Describer``."""
        self._require("torch_fp32", path)
        from .engine.description import describe

        return describe(path)

    def availability(self, mode: str) -> Availability:
        return modes.availability(mode)

    def inputs(self, spec: SessionSpec) -> Sequence[InputMeta]:
        self._require("torch_fp32")
        from .model import read_inputs

        return read_inputs(self._model(spec))

    def examples(self, spec: SessionSpec) -> Feeds:
        """Return the model's own example inputs, which a random feed cannot imitate (token ids, masks); {} where
        none."""
        self._require("torch_fp32")
        from .model import example_feeds

        return example_feeds(self._model(spec))

    def modules_in(self, path: str) -> dict[str, str]:
        """Return names of an exported file's tensors to the torch modules that they come from; {} where it does not
        say."""
        from .engine.onnx_names import module_of_tensors

        return module_of_tensors(path) if Path(path).suffix.lower() == ".onnx" else {}

    def check_weights(self, spec: SessionSpec, path: str) -> tuple[Reason, ...]:
        """Return what to know of an exported file's weights before an operator is blamed, one sentence each.

        Empty where the file is of a kind whose weights cannot be read here. Raises ModelError.
        """
        from .engine.exported_weights import check_weights, summarise_weights

        if Path(path).suffix.lower() != ".onnx":
            return ()
        return summarise_weights(check_weights(self._model(spec), path), path)

    def weights(self, spec: SessionSpec) -> Mapping[str, Any]:
        """Return parameters and buffers as they are in the model, name to array."""
        self._require("torch_fp32")
        from .engine.exported_weights import weights_of

        return weights_of(self._model(spec))

    def check_arrays(self, weights: Mapping[str, Any], path: str) -> tuple[Reason, ...]:
        """``check_weights`` of a recording's weights; needs no torch."""
        from .engine.exported_weights import check_arrays, summarise_weights

        if Path(path).suffix.lower() != ".onnx":
            return ()
        return summarise_weights(check_arrays(weights, path), path)

    def layers(self, spec: SessionSpec) -> dict[str, Layer]:
        """See ``protocols.LayerKeeper``."""
        from .engine.layers import layers_of

        return layers_of(self._model(spec).module)

    def layers_named(self, names: Iterable[str]) -> dict[str, Layer]:
        """``layers`` of a recording's weights; needs no torch."""
        from .engine.layers import layers_of_names

        return layers_of_names(names)

    def layer_of(self, meta: TensorMeta) -> str:
        """Return the path of the module that a tensor was made in."""
        from .engine.layers import layer_of

        return layer_of(meta)

    def on_device(self, first: SessionSpec, second: SessionSpec) -> tuple[Comparer, BaselineStore] | Reason | None:
        """Return what compares both runs' tensors on the device that they share; None where they share none, or on the
        CPU."""
        self._require("torch_fp32")
        return on_device(first.options, second.options, self._model(first))

    def on_device_alone(self, first: SessionSpec, second: SessionSpec) -> Comparer | Reason | None:  # noqa: ARG002
        """For its run after another one, whose tensors wait in the host's memory."""
        self._require("torch_fp32")
        tools = on_device(second.options, second.options)
        return tools[0] if isinstance(tools, tuple) else tools

    def pair(self, baseline: Sequence[TensorMeta], target: Sequence[TensorMeta]) -> Matches | None:
        """See Pairer."""
        from .engine.pairing import pair

        return pair(baseline, target)

    def rungs(self, spec: SessionSpec) -> Sequence[Rung]:
        """See ``protocols.Ladder``."""
        from .engine import ladder

        return ladder.rungs(spec)

    def switches(self, spec: SessionSpec, rung: Rung, op_types: Collection[str]) -> Sequence[Switch]:  # noqa: ARG002
        """See ``protocols.Ladder``: what torch.compile can leave out."""
        from .engine import ladder

        return ladder.switches(dataclasses.replace(spec, mode=rung.mode, options={**spec.options, **rung.options}))

    def keep(self, spec: SessionSpec) -> TorchKeep | PackedKeep | None:
        """See ``protocols.Keeper``: of modules in Python, in modes of lower precision; of a quantised folder's."""
        from .keep import TorchKeep, packed_keep

        chosen = modes.recipe(spec.mode)
        if not chosen.change and not chosen.autocast and (found := packed_keep(spec)) is not None:
            return found
        low = (
            chosen.autocast
            or chosen.change == "int8"
            or (chosen.change == "fp8" and setting(spec.options, "step") != "forward")
            or (not chosen.change and chosen.dtype in ("float16", "bfloat16"))
        )
        return TorchKeep(spec=spec, recipe=chosen) if low and not spec.model.path.endswith(".pt2") else None

    configurations = FolderConfigurations()
    truth = "torch_fp64"
    roads: Sequence[str] = modes.ROADS

    def travel(self, spec: SessionSpec, road: str, feeds: Feeds, hook: Hook) -> Mapping[str, Any]:
        """See ``protocols.Roads``."""
        self._require(spec.mode, spec.model.path)
        from .engine.roads import travel
        from .make import build

        return travel(build(self._model(spec), modes.recipe(spec.mode), spec.options), road, feeds, hook)

    def agreements(
        self, spec: SessionSpec, tensors: Sequence[TensorMeta], culprits: Sequence[Sequence[str]]
    ) -> Sequence[Remedy]:
        """See ``protocols.Agreeing``: of torch.compile."""
        if modes.recipe(spec.mode).change != "compile":
            return ()
        from .engine.eager_numerics import list_agreements

        return list_agreements(spec, tensors, culprits)

    def open(self, spec: SessionSpec, feeds: Sequence[Feeds]) -> Session:
        return self._opened(spec, feeds, None)

    def open_for(self, comparer: Comparer, spec: SessionSpec, feeds: Sequence[Feeds]) -> Session:
        """See OnDevice."""
        return self._opened(spec, feeds, comparer)

    def _opened(self, spec: SessionSpec, feeds: Sequence[Feeds], comparer: Comparer | None) -> Session:
        demand(modes.availability(spec.mode, step=setting(spec.options, "step") != "forward"), spec.mode)
        session = open_model(
            self._model(spec), spec.mode, spec.options, feeds, comparer=comparer, on_close=self._closed
        )
        with self._lock:
            self._open += 1
        return session

    def _model(self, spec: SessionSpec) -> Model:
        """Return the model of a file; both sides of a comparison get the same one, unless the file changed."""
        if self._live is not None:
            return self._live
        from .make import chosen_device, use_device
        from .model import read_model

        file = Path(spec.model.path.partition(".py:")[0] + ".py" if ".py:" in spec.model.path else spec.model.path)
        stamp = file.stat().st_mtime_ns if file.is_file() else 0
        seed = _seed(spec.options)
        step = setting(spec.options, "from_step")
        key = (spec.model.path, stamp, seed, step)
        with self._lock:  # both sides may ask at the same time
            if key not in self._kept:
                for older in [*self._kept][: 1 - _MODELS]:
                    del self._kept[older]
                with use_device(chosen_device(spec.options)):  # "cuda" in a factory means the baseline's card
                    self._kept[key] = read_model(spec.model, seed=seed)
                    if step:
                        from .engine.training.resumed import resume_at_step

                        self._kept[key] = resume_at_step(self._kept[key], step)
            return self._kept[key]

    def run_bare(self, spec: SessionSpec, feeds: Feeds) -> bool:
        """See ``protocols.BareRunner``."""
        from .engine.bare import run_bare

        return run_bare(self._model(spec), spec.mode, spec.options, feeds)

    def _closed(self) -> None:
        with self._lock:
            self._open -= 1
            if self._open == 0:
                self._kept.clear()

    def _require(self, mode: str, where: str = "") -> None:
        demand(self.availability(mode), mode, where=where)


def open_model(
    model: Model, mode: str, options: Any, feeds: Sequence[Feeds] = (), *, comparer: Comparer | None = None,
    on_close: Any = None,
) -> Session:  # fmt: skip
    """Return a session of a model that is in memory already."""
    from .engine.compiled_session import CompiledSession
    from .engine.inductor_options import options_of
    from .engine.process_switches import LISTING
    from .make import build
    from .session import TorchSession

    level = setting(options, "level")
    if level == "module" and model.kind == "script":
        raise UsageError(
            "TorchScript runs its submodules inside its own interpreter", where=model.path, hint="use --level op"
        )
    recipe = modes.recipe(mode)
    if model.ranks and setting(options, "step") == "forward":
        what = "the steps of several ranks are run up to their gradients"
        raise UsageError(what, where="--option from_step", hint="add --step backward, or name one rank's file")
    if setting(options, "step") != "forward":
        from .engine.training.opening import as_step

        model, options = as_step(model, recipe, options)
    with LISTING:  # a run that lists may change parameters that are shared, and puts them back
        built = build(model, recipe, options)
    kind: Any = TorchSession
    if recipe.change == "compile":
        given = options_of(setting(options, "inductor"))
        left: tuple[str, ...] = setting(options, "uncompiled")
        kind = functools.partial(
            CompiledSession, backend=setting(options, "compile_backend"), options=given, uncompiled=left
        )
    session: Session = kind(
        built, recipe, level=level, seed=_seed(options), feeds=feeds[0] if feeds else None,
        device_tensors=setting(options, "device_tensors"), comparer=comparer, on_close=on_close,
    )  # fmt: skip
    return session


def on_device(first: Any, second: Any, model: Model | None = None) -> tuple[Comparer, BaselineStore] | Reason | None:
    """See TorchBackend; first, second: both sessions' options. model: says where it lies, where they do not."""
    from .make import choose_placement, chosen_device
    from .on_device import DeviceComparer, DeviceStore

    where = setting(second, "compare_on")
    found = [
        chosen_device(options) if model is None else choose_placement(model, options) for options in (first, second)
    ]
    types = {device.type if device is not None else chosen_device(first).type for device in found}
    if where == "host" or len(types) > 1 or (types == {"cpu"} and where != "device"):
        return None
    return registry.explain_host_only("torch") or (DeviceComparer(), DeviceStore())


def _seed(options: Any) -> int:
    return int(get_passed(options, "seed"))
