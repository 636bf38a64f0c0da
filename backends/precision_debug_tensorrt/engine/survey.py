"""Which nodes of an ONNX model TensorRT's parser takes; nothing is built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from precision_debug.errors import BackendUnavailable, ModelError
from precision_debug.protocols import Feeds, Refused, Survey
from precision_debug.records import SessionSpec

from ..model import OnnxModel, read_source
from ..modes import Recipe
from . import device_memory, versions
from .messages import Messages, make_logger
from .operator_types import list_types
from .options import read_options

if TYPE_CHECKING:
    from ..make import ChipBuild

__all__ = ["survey"]


_WHY = frozenset(["qdq_written", "refused_in_type", "stay_fp32", "unfit_constants"])
"""Codes of notes that say why operators are not in the type that the mode asks for, or how they came to it."""


def survey(spec: SessionSpec, recipe: Recipe, feeds: Feeds) -> Survey:
    """See ``protocols.Surveyor``. An edition that builds without a card is asked for a build for each of its chips."""
    source = read_source(spec.model)
    if not isinstance(source, OnnxModel):
        raise ModelError("only an ONNX model is asked about", where=spec.model.path, hint="give the .onnx file")
    api = versions.load_api(recipe.edition)
    device = "" if api.chips else f" on {device_memory.find_device().name}"
    messages = Messages()
    logger = make_logger(api.trt, messages)
    if not api.trt.init_libnvinfer_plugins(logger, ""):
        raise BackendUnavailable("TensorRT's own plugins cannot be registered", where="libnvinfer_plugin")
    builder = api.trt.Builder(logger)
    network = builder.create_network(api.creation_flags(strong=not api.weakly_typed))
    parser = api.trt.OnnxParser(network, logger)
    nodes = list(source.model.proto.graph.node)
    data = source.model.proto.SerializeToString()
    refused = _find_refused(parser, data, str(source.model.folder / "model.onnx"), len(nodes))
    problems = [api.parser_problem(parser.get_error(i)) for i in range(parser.num_errors)]
    why = {place: text for place, _, _, text in problems}
    named = {name: text for _, name, _, text in problems if name}
    builds: list[ChipBuild] = []
    if api.chips and not refused:
        from ..make import build_for_chips  # the build imports this package

        arrays = {name: np.asarray(value) for name, value in feeds.items()}
        builds = build_for_chips(api, logger, messages, source, recipe, read_options(spec.options), [arrays])
    return Survey(
        engine=f"{api.title} {api.version}{device}",
        taken=dict(Counter(node.op_type for place, node in enumerate(nodes) if place not in refused)),
        refused=[
            Refused(
                name=nodes[place].name, op_type=nodes[place].op_type,
                why=why.get(place) or named.get(nodes[place].name, ""),
            )
            for place in sorted(refused) if place < len(nodes)
        ],
        precisions=_precisions(builds),
        builds=[_describe_build(recipe, one) for one in builds],
        failed=any(one.built is None for one in builds),
    )  # fmt: skip


def _precisions(builds: Sequence[ChipBuild]) -> list[str]:
    """Return which operators compute in what, of the first engine that was built; chips may differ in what they
    take."""
    first = next((one for one in builds if one.built is not None), None)
    if first is None or not isinstance(first.source, OnnxModel):
        return []
    why = [str(note) for note in first.notes if note.code.rpartition(".")[2] in _WHY]
    return [*list_types(first.source.model.proto, first.source.types), *why]


def _describe_build(recipe: Recipe, one: ChipBuild) -> str:
    begin = f"{recipe.mode.name} for compute capability {one.chip}: "
    if one.built is None:
        return f"{begin}no engine: {one.why}"
    return f"{begin}built, {len(one.built.data):,} bytes, {len(one.built.layers)} layers before fusion"


def _find_refused(parser: Any, data: bytes, path: str, count: int) -> set[int]:
    """Places of the nodes, of ``count``. TensorRT 10 tells of each stretch whether it is taken. 8.6 lists the stretches
    that are, and what stands beside one says whether it is the whole model, so that a node in none is refused."""
    if hasattr(parser, "supports_model_v2"):
        parser.supports_model_v2(data, path)
        groups = [
            (parser.get_subgraph_nodes(place), parser.is_subgraph_supported(place))
            for place in range(parser.num_subgraphs)
        ]
        return {int(node) for nodes, supported in groups if not supported for node in nodes}
    _, groups = parser.supports_model(data, path)
    return set(range(count)) - {int(node) for nodes, _ in groups for node in nodes}
