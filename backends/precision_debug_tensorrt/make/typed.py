"""The model as a strongly typed network wants it: types written in, and what the parser refuses in them left alone."""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from precision_debug.errors import BackendError
from precision_debug.onnx.graph import iterate_subgraphs
from precision_debug.reasons import Reason

from ..engine.casts import CAST
from ..engine.constraints import Asked
from ..engine.messages import Messages
from ..engine.options import Options
from ..engine.strongly_typed import make_typed_model
from ..engine.versions import Api
from ..model import OnnxModel
from ..modes import Recipe
from ..reasons import say

__all__ = ["build_typed", "drop_size_names", "make_typed_source"]

T = TypeVar("T")


def make_typed_source(
    api: Api, logger: Any, messages: Messages, source: OnnxModel, recipe: Recipe, options: Options,
    feeds: Sequence[Mapping[str, Any]], folder: Path, refused_by_builder: Sequence[str] = (),
) -> tuple[OnnxModel, list[Reason], tuple[Asked, ...]]:  # fmt: skip
    """Do as ``make_typed_model``, as far as the installed parser takes it.

    An operator that has no importer in a type (HardSwish in BF16, with TensorRT for RTX 1.7) stays in FP32 with all of
    its kind, and a note says so; so do ``refused_by_builder``. What the parser refuses in FP32 too is left for the
    build to report. Raises as ``make_typed_model``.
    """
    kept = list(refused_by_builder)
    while True:
        found, notes, asked = make_typed_model(source, recipe, options, feeds, folder, kept)
        refused = _find_refused_type(api, logger, messages, found)
        if not refused or refused in kept:
            break
        kept.append(refused)
    if refused:  # in FP32 too: it is no matter of types
        kept.remove(refused)
        found, notes, asked = make_typed_model(source, recipe, options, feeds, folder, kept)
    if kept:
        low = recipe.precisions[0] if recipe.precisions else "FP32"
        notes = [*notes, say("refused_in_type", kinds=kept, type=low)]
    return found, notes, asked


def build_typed(
    typed: Callable[[Sequence[str]], tuple[OnnxModel, list[Reason], tuple[Asked, ...]]],
    build: Callable[[OnnxModel], T],
) -> tuple[T, OnnxModel, list[Reason], tuple[Asked, ...]]:
    """Build, with what the builder refuses in the low type in FP32: a transposed convolution in BF16, say.

    typed: the model with these operator types kept. build: raises BackendError. The first error is raised again where
    it names no operator that could be kept.
    """
    kept: list[str] = []
    while True:
        source, notes, asked = typed(kept)
        try:
            return build(source), source, notes, asked
        except BackendError as error:
            kind = _find_named_type(error.what, source) or _find_body_type(source, kept)
            if not kind or kind in kept:
                raise
            kept.append(kind)


def drop_size_names(source: OnnxModel, feeds: Sequence[Mapping[str, Any]]) -> OnnxModel:
    """Return the model without names of sizes that are fed as different numbers.

    TensorRT (8.6 and later, on a card) holds sizes of one name to be one number; Paddle2ONNX calls each of them "?".
    """
    sizes: dict[str, set[int]] = defaultdict(set)
    for item in source.model.proto.graph.input:
        shape = np.shape(feeds[0][item.name]) if feeds and item.name in feeds[0] else ()
        for dim, size in zip(item.type.tensor_type.shape.dim, shape, strict=False):
            if dim.dim_param:
                sizes[dim.dim_param].add(int(size))
    several = {name for name, found in sizes.items() if len(found) > 1}
    if not several:
        return source
    proto = type(source.model.proto)()
    proto.CopyFrom(source.model.proto)
    for item in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for dim in item.type.tensor_type.shape.dim:
            if dim.dim_param in several:
                dim.ClearField("dim_param")
    return dataclasses.replace(source, model=dataclasses.replace(source.model, proto=proto))


def _find_named_type(said: str, source: OnnxModel) -> str:
    """Return the type of the operator that an error of the builder is about: it names layers as the model's nodes."""
    words = set(re.findall(r"[\w./:]+", said))
    found = [node for node in source.model.proto.graph.node if node.name and node.name in words]
    low = [node for node in found if not node.name.startswith(CAST)]
    return str(low[0].op_type) if low else ""


def _find_body_type(source: OnnxModel, kept: Sequence[str]) -> str:
    """Return the type of an operator with bodies that are not kept yet: what is wrong in one, the builder names by
    nothing."""
    types = (str(node.op_type) for node in source.model.proto.graph.node if any(True for _ in iterate_subgraphs(node)))
    return next((kind for kind in types if kind not in kept), "")


def _find_refused_type(api: Api, logger: Any, messages: Messages, source: OnnxModel) -> str:
    """Return the type of the first operator that the parser does not take; "" where it takes all."""
    builder = api.trt.Builder(logger)
    network = builder.create_network(api.creation_flags(strong=True))
    parser = api.trt.OnnxParser(network, logger)
    if parser.parse(source.model.proto.SerializeToString(), str(source.model.folder / "model.onnx")):
        return ""
    messages.fresh_errors()
    nodes = source.model.proto.graph.node
    for place, name, kind, _ in (api.parser_problem(parser.get_error(i)) for i in range(parser.num_errors)):
        by_name = next((node.op_type for node in nodes if name and node.name == name), "")
        found = kind or by_name or (nodes[place].op_type if 0 <= place < len(nodes) else "")
        if found:
            return str(found)
    return ""
