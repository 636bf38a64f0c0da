"""A backend of another kind, written by CONTRIBUTING's guide alone: an LSTM in numpy, with a loop over time.

A model is an .lstm.npz file: wx [inputs, 4 * width], wh [width, 4 * width], b [4 * width]. Each time step is a further
iteration of the body's tensors ("gates@0", "gates@1", …). lstm_int8 rounds weights to 8 bits and says so as layers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from zipfile import BadZipFile

import numpy as np

from precision_debug.errors import BackendError, InputError, ModelError, UsageError
from precision_debug.inspector import EngineLayer
from precision_debug.protocols import Capabilities, Feeds, Hook
from precision_debug.reasons import Catalogue
from precision_debug.records import Availability, InputMeta, RunMode, SessionSpec, TensorMeta
from precision_debug.settings import Setting, value

Array = np.ndarray[Any, Any]

DTYPES = {"lstm_fp32": np.float32, "lstm_fp16": np.float16, "lstm_half": np.float16, "lstm_int8": np.float32}
PRECISIONS = {"lstm_fp32": "float32", "lstm_fp16": "float16", "lstm_half": "float16", "lstm_int8": "int8"}
SETTINGS = (
    Setting(
        name="bits", kind="whole", default=8, low=2, high=8, modes=("lstm_int8",), help="of a weight", zh="权重位数"
    ),
)
BODY = {"gates": ("x",), "cell": ("gates",), "hidden": ("gates", "cell")}


def rounded(weight: Array, bits: int) -> Array:
    step = np.abs(weight).max() / (2 ** (bits - 1) - 1)
    return (np.round(weight / step) * step).astype(weight.dtype)


class LstmSession:
    versions: Mapping[str, str] = {"numpy": np.__version__}
    notes = doubts = ()
    alone = arithmetic = ""
    replacer = None

    def __init__(self, weights: Mapping[str, Array], mode: str, bits: int) -> None:
        self._weights: Mapping[str, Array] | None = weights
        kind = DTYPES[mode]
        precision = f"INT{bits}" if mode == "lstm_int8" else ""
        self.layers: Sequence[EngineLayer] = (
            (EngineLayer(name="lstm", layer_type="Recurrent", weights_type="INT8"),) if precision else ()
        )
        extra = {"Weights": precision} if precision else {}
        self.tensors: Sequence[TensorMeta] = (
            TensorMeta(name="x", op_type="Input", dtype=np.dtype(kind).name),
            *(
                TensorMeta(name=name, op_type=name.title(), node="lstm", inputs=inputs, extra=extra)
                for name, inputs in BODY.items()
            ),
            TensorMeta(name="last", op_type="Gather", inputs=("hidden",), is_output=True),
        )
        self._kind, self._once = kind, self.tensors

    def _unrolled(self, steps: int) -> Sequence[TensorMeta]:
        """What a run shows: each of the body's tensors once an iteration."""

        def named(name: str, step: int) -> str:
            return f"{name}@{step}" if name in BODY else name

        body = [
            dataclasses.replace(meta, name=named(meta.name, step), inputs=tuple(named(n, step) for n in meta.inputs))
            for step in range(steps)
            for meta in self._once
            if meta.name in BODY
        ]
        last = dataclasses.replace(self._once[-1], inputs=(named("hidden", steps - 1),))
        return (self._once[0], *body, last)

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        if self._weights is None:
            raise BackendError("the session is closed", where="lstm", hint="open another one")
        if set(feeds) != {"x"}:
            raise InputError(f"got {sorted(feeds)}", where="lstm", hint="the only input is 'x'")
        types = {meta.name: meta.op_type for meta in self._once}

        def show(name: str, tensor: Array, step: int | None = None) -> None:
            shown = name if step is None else f"{name}@{step}"
            if hook is not None and (names is None or name in names or shown in names):
                hook(types[name], shown, tensor)

        x = np.asarray(feeds["x"]).astype(self._kind)
        self.tensors = self._unrolled(x.shape[0])
        show("x", x)
        width = self._weights["wh"].shape[0]
        hidden = cell = np.zeros((x.shape[1], width), self._kind)
        for step in range(x.shape[0]):
            gates = x[step] @ self._weights["wx"] + hidden @ self._weights["wh"] + self._weights["b"]
            show("gates", gates, step)
            entry, forget, out, new = np.split(gates, 4, axis=1)
            cell = _sigmoid(forget) * cell + _sigmoid(entry) * np.tanh(new)
            show("cell", cell, step)
            hidden = _sigmoid(out) * np.tanh(cell)
            show("hidden", hidden, step)
        show("last", hidden)
        return {"last": hidden}

    def close(self) -> None:
        self._weights = None


def _sigmoid(x: Array) -> Array:
    one = x.dtype.type(1)
    return one / (one + np.exp(-x))


class LstmBackend:
    name = "lstm"
    run_modes: Sequence[RunMode] = tuple(
        RunMode(
            name=mode, summary=f"numpy, {mode[5:]}", suffixes=(".lstm",), baseline="lstm_fp32", precision=precision,
            concurrent=True,
        )
        for mode, precision in PRECISIONS.items()
    )
    settings: Sequence[Setting] = SETTINGS
    reasons = Catalogue("lstm", {})
    capabilities = Capabilities()

    def availability(self, mode: str) -> Availability:
        return Availability(ok=mode in DTYPES, needs="" if mode in DTYPES else "a mode of this backend")

    def inputs(self, spec: SessionSpec) -> Sequence[InputMeta]:
        return (InputMeta(name="x", dtype="float32", shape=("T", "N", _weights(spec)["wx"].shape[0])),)

    def open(self, spec: SessionSpec, feeds: Sequence[Feeds]) -> LstmSession:
        if spec.mode not in DTYPES:
            raise UsageError(f"unknown run mode '{spec.mode}'", where=self.name, hint=f"it has {' '.join(DTYPES)}")
        bits = value(SETTINGS, spec.options, "bits")
        weights = {name: weight.astype(DTYPES[spec.mode]) for name, weight in _weights(spec).items()}
        if spec.mode == "lstm_int8":
            weights = {name: rounded(weight, bits) if weight.ndim == 2 else weight for name, weight in weights.items()}
        return LstmSession(weights, spec.mode, bits)


def _weights(spec: SessionSpec) -> Mapping[str, Array]:
    try:
        with np.load(spec.model.model_file, allow_pickle=False) as file:
            return {name: file[name] for name in ("wx", "wh", "b")}
    except (OSError, EOFError, ValueError, KeyError, BadZipFile) as error:
        raise ModelError(f"not an LSTM ({error})", where=spec.model.path, hint="it needs wx, wh and b") from error
