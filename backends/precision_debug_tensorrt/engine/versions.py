"""What the installed TensorRT can do: one attribute here for each difference between 8.6 and 11.

Told by the names that the module has, not by its version number, so that a backport or a repackaged wheel counts for
what it is. The names were checked against the Python bindings of 8.6, 10.16 and 11.4.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
from typing import Any

from precision_debug.errors import BackendUnavailable

from ..reasons import say

__all__ = ["RTX", "TENSORRT", "Api", "load_api"]


TENSORRT, RTX = "tensorrt", "tensorrt_rtx"
"""The editions: TensorRT, and TensorRT for RTX, which has the API of TensorRT 11 under another module name."""

_LIBRARIES = {RTX: "tensorrt_rtx_libs"}
"""Loads the shared libraries that the bindings' wheel leaves to another one."""

_MODULES = {TENSORRT: ("tensorrt",), RTX: ("tensorrt_rtx", "tensorrt_rtx_bindings")}
"""The metapackage's module first; the bindings' own wheel is enough."""


class Api:
    """TensorRT's module ``trt`` and what it offers. edition: TENSORRT or RTX."""

    def __init__(self, trt: Any, edition: str = TENSORRT) -> None:
        self.trt, self.edition = trt, edition

    @property
    def title(self) -> str:
        """How a reader knows it."""
        return "TensorRT for RTX" if self.edition == RTX else "TensorRT"

    @property
    def chips(self) -> tuple[str, ...]:
        """Compute capabilities that engines can be built for without a card ("8.9", "12.0"); () where none can."""
        members = dict(getattr(getattr(self.trt, "ComputeCapability", None), "__members__", {}))
        return tuple(f"{name[2:-1]}.{name[-1]}" for name in members if re.fullmatch(r"SM\d{2,3}", name))

    @property
    def version(self) -> str:
        return str(self.trt.__version__)

    @property
    def weakly_typed(self) -> bool:
        """Builder flags, layer precisions and constraints exist (up to 10)."""
        return hasattr(self.trt.BuilderFlag, "FP16")

    @property
    def strongly_typed(self) -> bool:
        """A network can take its precisions from the model's own types (9.1 and later)."""
        return hasattr(self.trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED")

    @property
    def calibrates(self) -> bool:
        """INT8 calibrators exist (up to 10)."""
        return hasattr(self.trt, "IInt8EntropyCalibrator2")

    @property
    def replays_tactics(self) -> bool:
        """Tactics can be chosen by a program (up to 10)."""
        return hasattr(self.trt, "IAlgorithmSelector")

    @property
    def debug_tensors(self) -> bool:
        """Tensors can be seen by a listener (10 and later)."""
        return hasattr(self.trt, "IDebugListener")

    @property
    def unfused_debug_tensors(self) -> bool:
        """The listener can be asked for just what fusion leaves (10.12 and later)."""
        return hasattr(self.trt.INetworkDefinition, "mark_unfused_tensors_as_debug_tensors")

    @property
    def times_kernels(self) -> bool:
        """A build times kernels, so that a timing cache repeats it; for RTX kernels are made where they run."""
        return self.edition != RTX

    def can_hold(self, precision: str) -> bool:
        """Return whether a layer can compute in "FP16", "BF16", "INT8", "FP8" or "FP32".

        8.6 knows the name FP8, but builds no layer with it; it came with BF16 in 9.1.
        """
        types = self.trt.DataType
        wanted = {"FP16": "HALF", "BF16": "BF16", "INT8": "INT8", "FP8": "BF16", "FP32": "FLOAT"}.get(precision, "")
        return hasattr(types, wanted)

    def creation_flags(self, *, strong: bool) -> int:
        """Return the flags for ``create_network``; 8.x must be told of the explicit batch, 11 has no such flag."""
        flags = self.trt.NetworkDefinitionCreationFlag
        names = [name for name in ("EXPLICIT_BATCH", *(["STRONGLY_TYPED"] if strong else [])) if hasattr(flags, name)]
        return functools.reduce(lambda total, name: total | 1 << int(getattr(flags, name)), names, 0)

    def data_type(self, precision: str) -> Any:
        """TensorRT's type for one of our precision names."""
        names = {"FP32": "FLOAT", "FP16": "HALF", "BF16": "BF16", "INT8": "INT8", "FP8": "FP8", "INT32": "INT32",
                 "INT64": "INT64", "BOOL": "BOOL"}  # fmt: skip
        return getattr(self.trt.DataType, names[precision])

    def parser_problem(self, error: Any) -> tuple[int, str, str, str]:
        """(place of the node in the graph, its name, its operator, what the parser says); 8.6 tells only the place."""

        def text(name: str) -> str:
            value = getattr(error, name, None)
            return str(value() if value is not None else "")

        return int(error.node()), text("node_name"), text("node_operator"), str(error.desc())


@functools.cache
def load_api(edition: str = TENSORRT) -> Api:
    """Return the installed TensorRT, or TensorRT for RTX. Raises BackendUnavailable."""
    try:
        tensorrt = _import_edition(edition)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        rtx = edition == RTX
        raise BackendUnavailable(
            say("rtx_not_importable", error=said) if rtx else say("not_importable", error=said),
            hint=say("install_rtx") if rtx else say("install_it"),
        ) from error
    if not hasattr(tensorrt, "Builder"):
        raise BackendUnavailable(
            say("another_module"), where=str(getattr(tensorrt, "__file__", "tensorrt")), hint=say("rename_own"),
        )  # fmt: skip
    return Api(tensorrt, edition)


def _import_edition(edition: str) -> Any:
    if edition in _LIBRARIES:
        with contextlib.suppress(ModuleNotFoundError):  # the libraries may be the system's
            importlib.import_module(_LIBRARIES[edition])
    *others, last = _MODULES[edition]
    for name in others:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    return importlib.import_module(last)
