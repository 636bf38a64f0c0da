"""A session on a dynamic-graph nn.Layer: each operator, and each sublayer, is shown as it returns.

Operators are what ``dynamic_calls`` wraps; what is computed outside of them shows in what reads it.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from precision_debug.errors import BackendError, InputError
from precision_debug.feeds.training_step import StepParts, list_changed_by_evaluation, list_step_notes
from precision_debug.inspector import EngineLayer
from precision_debug.protocols import Feeds, Hook, Replace, Replacer
from precision_debug.reasons import Reason
from precision_debug.reasons import say as core
from precision_debug.records import Doubt, Operator, TensorMeta

from ..failures import our_errors
from ..modes import Recipe
from ..reasons import say
from .dynamic_model import Layer
from .dynamic_watch import Show, Watch, iterate_leaves, round_as_type
from .framework import import_paddle
from .predictor import decode_bfloat16
from .training.step import Step

__all__ = ["DygraphSession"]


class DygraphSession:
    """layer: as its author built it; a copy is cast and run, unless it is for a training step. feeds: for listing the
    tensors before the first run. step: what makes the training step of the layer's parts; None: forward alone is run.
    training: it runs in the mode that its author left it in. seed: of what it draws there.
    """

    layers: Sequence[EngineLayer] = ()
    alone = arithmetic = ""

    def __init__(
        self, layer: Layer, recipe: Recipe, *, versions: Mapping[str, str], feeds: Feeds | None, device: str,
        step: Callable[[StepParts], Step] | None = None, training: bool = False, seed: int = 0,
    ) -> None:  # fmt: skip
        paddle = import_paddle()
        self.versions = versions
        self._layer, self._recipe = layer, recipe
        self._place = paddle.CUDAPlace(0) if device == "gpu" else paddle.CPUPlace()
        self._metas: tuple[TensorMeta, ...] | None = None
        self._calls: Mapping[str, tuple[str, Any]] = {}
        self._feeds = feeds
        self._closed: Collection[str] = ()
        self._skipped = False
        with our_errors(layer.path, mode=recipe.mode.name):
            # an optimiser may hold the parameters of the layer itself, which no other session has
            module = copy.deepcopy(layer.module) if step is None else layer.module
            module.to(device=self._place, dtype=None if recipe.amp else recipe.precision)
            if recipe.amp == "O2":
                module = paddle.amp.decorate(models=module, level="O2", dtype=recipe.precision)
        self._module: Any = module
        self._step = None if step is None else step(dataclasses.replace(layer.parts, module=module))
        self._seed = seed
        self._put_in_evaluation = step is None and bool(module.training) and not training
        self.doubts: Sequence[Doubt] = ()
        if self._put_in_evaluation:
            changed = list_changed_by_evaluation(module.named_sublayers(include_self=True))
            if changed:
                self.doubts = (Doubt(code="put_in_evaluation", values={"names": ", ".join(changed[:6])}),)
            self._module.eval()

    @property
    def notes(self) -> Sequence[Reason]:
        """See protocols.Session."""
        found = [say("dynamic_shown"), *([say("evaluation")] if self._put_in_evaluation else [])]
        if self._step is None:
            ends = [meta for meta in self._metas or () if meta.is_output]
            one_number = any(meta.shape == () and "float" in meta.dtype for meta in ends)
            learns = self._module is None or any(not one.stop_gradient for one in self._module.parameters())
            return (*found, core("step_forward")) if learns and (self._layer.parts.loss or one_number) else found
        found += list_step_notes(
            self._step.until, self._step.scale, skipped=self._skipped, autocast=bool(self._recipe.amp)
        )
        found.append(say("step_shown"))
        if self._step.scale != 1:
            found.append(say("step_scaler"))
        return found

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        """Before the first run, asking takes a run on the feeds of ``open``."""
        if self._metas is None and self._feeds is not None:
            self._execute(self._feeds, lambda _meta, _tensor: None, listing=True)
        return self._metas or ()

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """Outputs: "output", or "output[0]", "output.key" where the layer returns several."""

        def show(meta: TensorMeta, tensor: Any) -> None:
            if hook is not None and (names is None or meta.name in names):
                hook(meta.op_type, meta.name, _array(tensor))

        outputs = self._execute(feeds, show if hook is not None else None)
        return {name: _array(tensor) for name, tensor in outputs.items()}

    @property
    def replacer(self) -> Replacer:
        return self

    @property
    def replaces(self) -> bool:
        """See protocols.Replacer: a tensor is Python's, and takes what is copied into it."""
        return True

    def run_replacing(self, feeds: Feeds, replace: Replace, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """See protocols.Replacer."""

        def show(meta: TensorMeta, tensor: Any) -> Any:
            return replace(meta.op_type, meta.name, _array(tensor)) if names is None or meta.name in names else None

        outputs = self._execute(feeds, show)
        return {name: _array(tensor) for name, tensor in outputs.items()}

    def held(self, name: str, value: Any) -> Any:
        """See protocols.Replacer."""
        meta = next((meta for meta in self._metas or () if meta.name == name), None)
        array = np.asarray(value)
        return None if meta is None else array if array.dtype.kind != "f" else round_as_type(array, meta.dtype)

    def operator(self, name: str) -> Operator | None:
        """See protocols.Replacer."""
        call = self._calls.get(name)
        if call is None or self._module is None:
            return None
        op_type, arguments = call
        held = {id(tensor): key for key, tensor in self._module.state_dict().items()}
        parameters = {
            held[id(tensor)]: _array(tensor) for _, tensor in iterate_leaves(arguments, "") if id(tensor) in held
        }
        return Operator(op_type=op_type, attributes=dict(_plain(arguments, "")), parameters=parameters)

    def close(self) -> None:
        self._module = None
        self._calls = {}

    def _execute(self, feeds: Feeds, show: Show | None, *, listing: bool = False) -> dict[str, Any]:
        if self._module is None:
            raise BackendError("the session is closed", where=self._layer.path, hint="open it again")
        if self._step is not None and self._metas is None and show is not None and not listing:
            self._execute(feeds, lambda _meta, _tensor: None, listing=True)  # so that no hook is told of a run twice
        arguments = self._arguments(feeds)
        while True:
            watch = self._watch(show, arguments)
            closed = len(self._closed)
            try:
                with our_errors(self._layer.path, mode=self._recipe.mode.name), watch or contextlib.nullcontext():
                    outputs = self._ran(arguments, watch)
                break
            except Exception:
                if watch is not None and watch.failures:
                    raise watch.failures[0] from None  # what a hook raises reaches the caller as it is
                if watch is None or len(watch.closed) == closed:
                    raise
                self._closed = watch.closed  # a node that takes no gradients back was met: once more without its hook
        if watch is not None:
            self._closed = watch.closed
            self._metas, self._calls = watch.listed(), watch.calls
        return outputs

    def _watch(self, show: Show | None, arguments: Mapping[str, Any]) -> Watch | None:
        if show is None:
            return None
        scale = self._step.scale if self._step is not None else 1.0
        given = arguments.values()
        return Watch(self._module, show, given, step=self._step is not None, scale=scale, closed=self._closed)

    def _ran(self, arguments: dict[str, Any], watch: Watch | None) -> dict[str, Any]:
        paddle = import_paddle()
        amp: Any = contextlib.nullcontext()
        if self._recipe.amp:
            amp = paddle.amp.auto_cast(True, level=self._recipe.amp, dtype=self._recipe.precision)
        if self._step is None:
            with paddle.no_grad(), amp, self._as_it_was():
                return dict(iterate_leaves(self._module(**arguments), "output"))
        made = self._step.run(arguments, amp, watch)
        self._skipped = self._skipped or made.skipped
        return dict(made)

    @contextlib.contextmanager
    def _as_it_was(self) -> Iterator[None]:
        """What runs in training mode draws the same every time, and its statistics are as before afterwards."""
        if not any(part.training for part in self._module.sublayers(include_self=True)):
            yield
            return
        import_paddle().seed(self._seed)
        before = {name: one.clone() for name, one in self._module.named_buffers()}
        try:
            yield
        finally:
            for name, one in self._module.named_buffers():
                if name in before:
                    one.set_value(before[name])

    def _arguments(self, feeds: Feeds) -> dict[str, Any]:
        paddle = import_paddle()
        known = [*self._layer.arguments] or [meta.name for meta in self._layer.guessed]
        unknown = sorted(set(feeds) - set(known))
        if unknown:
            raise InputError(
                f"forward has no input {unknown[0]}", where=self._layer.path, hint=f"its inputs: {' '.join(known)}"
            )
        missing = [name for name in self._layer.names if name not in feeds]
        if missing:
            raise InputError(f"no value for input {missing[0]}", where=self._layer.path, hint="give it with --inputs")
        tensors = {
            name: paddle.to_tensor(np.asarray(feeds[name]), place=self._place) for name in known if name in feeds
        }
        if self._recipe.amp:
            return tensors
        return {
            name: tensor.astype(self._recipe.precision) if tensor.is_floating_point() else tensor
            for name, tensor in tensors.items()
        }


def _plain(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield numbers and texts in a nest of lists and dicts, with where they are."""
    if isinstance(value, (bool, int, float, str)):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _plain(item, f"{name}.{key}".strip("."))
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from _plain(item, f"{name}[{place}]")


def _array(tensor: Any) -> Any:
    return decode_bfloat16(np.asarray(tensor.numpy()), str(tensor.dtype))
