"""Reads model files, and what a model wants to be fed with."""

from __future__ import annotations

import contextlib
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

__all__ = ["find_narrower_operator", "read_inputs", "read_model", "read_plain", "real_numbers", "with_uses"]


_WHOLE_ARITHMETIC = frozenset({"Div", "Mod", "Mul", "CumSum", "Cast"})


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


def find_narrower_operator(path: str) -> str:
    """Return the first operator of an .onnx file that computes whole numbers of what is fed in a narrower type here.

    OpenVINO holds 64 bits in 32, where products, running sums and casts of floats may go beyond, and divides whole
    numbers in float32, which knows each of them up to 2^24. What is computed of sizes alone is small. "": none does.
    """
    if not path.lower().endswith(".onnx"):
        return ""
    try:
        from onnx import TensorProto, shape_inference
    except ModuleNotFoundError:  # nobody but OpenVINO can read the file here
        return ""
    from precision_debug.onnx.without_weights import read_light

    long = {TensorProto.INT64, TensorProto.UINT64, TensorProto.UINT32}
    whole = {*long, TensorProto.INT32}
    graph = read_light(path).proto.graph
    if not any(node.op_type in _WHOLE_ARITHMETIC for node in graph.node):
        return ""
    with contextlib.suppress(Exception):  # of a file that cannot be inferred the types that it says are known
        graph = shape_inference.infer_shapes(read_light(path).proto).graph
    values = (*graph.input, *graph.value_info, *graph.output)
    kinds = {one.name: one.type.tensor_type.elem_type for one in values}
    fed = {one.name for one in graph.input} - {one.name for one in graph.initializer}
    for node in graph.node:
        if node.op_type in ("Shape", "Size") or not fed & {*node.input}:
            continue
        fed.update(node.output)
        made, reads = kinds.get(node.output[0]), kinds.get(node.input[0])
        if node.op_type in ("Div", "Mod") and made in whole:
            return str(node.output[0])
        of_floats = node.op_type == "Cast" and reads in (TensorProto.FLOAT, TensorProto.DOUBLE)
        if made in long and (of_floats or node.op_type in ("Mul", "CumSum")):
            return str(node.output[0])
    return ""
