"""Reads model files, and what a model wants to be fed with."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from collections.abc import Sequence
from typing import Any

from precision_debug.errors import ModelError, PrecisionDebugError, UsageError
from precision_debug.onnx.real_numbers import RealNumbers
from precision_debug.reasons import say as general
from precision_debug.records import InputMeta, ModelFiles, SessionSpec

from .failures import reading
from .modes import SUFFIXES
from .naming import dtype_of, port_name, shape_of
from .reasons import say
from .settings import setting

__all__ = ["read_inputs", "read_model", "read_plain", "real_numbers", "with_uses"]


def read_model(spec: SessionSpec) -> Any:
    """Return an ``openvino.Model``, with what ``uncompressed_from`` asks for. Raises ModelError or UsageError."""
    source = str(setting(spec.options, "uncompressed_from"))
    model = read_plain(spec.model)
    if source:
        from .engine.uncompressed import restore

        if not restore(model, read_plain(ModelFiles(model_file=source))):
            raise UsageError(say("not_rounded_from", name=source), where="--option uncompressed_from")
    return model


def read_plain(files: ModelFiles) -> Any:
    """Return an ``openvino.Model`` as the files have it. Raises ModelError."""
    import openvino

    path = files.model_file
    if os.path.isdir(path):
        inside = sorted(name for name in os.listdir(path) if name.lower().endswith(SUFFIXES))
        hint = say("file_inside", names=", ".join(inside[:3])) if inside else say("give_a_file")
        raise ModelError(say("a_folder"), where=path, hint=hint)
    if not os.path.isfile(path):
        raise ModelError(general("no_such_file"), where=files.path or "model", hint=say("give_a_file"))
    if path.lower().endswith(".onnx"):
        from precision_debug.onnx.model import refuse_strays

        refuse_strays(path)
    with reading(path):
        core = openvino.Core()
        return core.read_model(path, files.params_file) if files.params_file else core.read_model(path)


def read_inputs(model: Any) -> Sequence[InputMeta]:
    """Return what a model is fed with."""
    return tuple(InputMeta(name=port_name(port), dtype=dtype_of(port), shape=shape_of(port)) for port in model.inputs)


def with_uses(metas: Sequence[InputMeta], path: str) -> Sequence[InputMeta]:
    """Return the inputs with what an ONNX file says of them beyond OpenVINO, which forgets the names of dimensions:
    sizes that are chosen for one name are of one size, as they have to be."""
    if not path.lower().endswith(".onnx") or importlib.util.find_spec("onnx") is None:
        return metas
    from precision_debug.onnx import input_roles
    from precision_debug.onnx.model import read_inputs, read_model

    try:
        source = read_model(path)
        with_use = {one.name: one for one in input_roles.with_uses(read_inputs(source), source.proto.graph)}
    except PrecisionDebugError:  # OpenVINO reads it all the same
        return metas
    return tuple(_with_use(meta, with_use[meta.name]) if meta.name in with_use else meta for meta in metas)


def real_numbers(path: str) -> RealNumbers:
    """Return what the quantised tensors of an ONNX file stand for; nothing of other files, and without the package
    onnx."""
    if not path.lower().endswith(".onnx") or importlib.util.find_spec("onnx") is None:
        return RealNumbers()
    from precision_debug.onnx.model import read_model

    try:
        return RealNumbers.of(read_model(path))
    except PrecisionDebugError:  # OpenVINO reads it all the same
        return RealNumbers()


def _with_use(meta: InputMeta, by: InputMeta) -> InputMeta:
    if meta.shape is None or by.shape is None or len(meta.shape) != len(by.shape):
        return meta
    shape = tuple(dim if isinstance(dim, int) else other for dim, other in zip(meta.shape, by.shape, strict=True))
    return dataclasses.replace(meta, shape=shape, limit=by.limit, layout=by.layout)
