"""What the standard says of a file: faults that onnx's own checker and shape inference find, without its weights."""

from __future__ import annotations

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...onnx.graph import iterate_external_tensors, iterate_graphs, order_nodes, reorder
from ...onnx.model import Model
from ...onnx.without_weights import read_light
from ...reasons import Reason, list_some, say

__all__ = ["Standard", "check_by_standard"]

_DEFAULT = "ai.onnx"
_WEIGHTS = "weights"
_WORDS = 300
"""Characters of the checker's own words that are told."""

_NODE = re.compile(r"Context: .*?Name: (\S+)")


@dataclass(frozen=True, kw_only=True)
class Standard:
    """faults: what makes a file no model of its standard. unknown: what the onnx package here knows nothing of, so that
    nothing of that was checked. told: what the checker refuses for its form alone, and operators of other domains."""

    faults: Sequence[Reason]
    unknown: Sequence[Reason]
    told: Sequence[Reason]


def check_by_standard(model: Model, folder: Path) -> Standard:
    """Check a file as onnx's own checker does, its types and shapes too.

    Some of what it refuses is a matter of form that engines take: operators in another order than they run in, an
    output without a shape, a graph without a name. That is told, and mended in a copy, so that it hides nothing else.
    folder: an existing one for that copy.
    """
    import onnx

    light = read_light(model.path).proto
    unknown = [*_check_newer_opsets(light)]
    if unknown:
        return Standard(faults=(), unknown=unknown, told=())
    faults = [*_check_declared_twice(light), *_check_operators_exist(light)]
    form = [*_check_form(light)]
    if not faults:
        weights = folder / _WEIGHTS
        weights.touch()
        for tensor in iterate_external_tensors(light.graph):
            del tensor.external_data[:]
            tensor.external_data.add(key="location", value=_WEIGHTS)
        try:
            _check(light, folder)
            _make_dense(light)
            onnx.shape_inference.infer_shapes(light, check_type=True, strict_mode=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError, TypeError) as error:
            faults.append(_describe_checker_error(error))
    return Standard(faults=faults, unknown=(), told=[*form, *_list_other_domains(light)])


def _check(proto: Any, folder: Path) -> None:
    """Have the checker see a copy of a model whose inputs and outputs all have a shape. Raises what it raises."""
    import onnx

    shaped = type(proto)()
    shaped.CopyFrom(proto)
    for graph in iterate_graphs(shaped.graph):
        for info in _without_shape(graph):
            info.type.tensor_type.shape.SetInParent()
    file = folder / "checked.onnx"
    file.write_bytes(shaped.SerializeToString())
    onnx.checker.check_model(str(file))


def _make_dense(proto: Any) -> None:
    """Put dense constants, whose values lie elsewhere, in place of sparse ones, which ONNX takes for scalars."""
    for graph in iterate_graphs(proto.graph):
        for tensor in graph.sparse_initializer:
            dense = graph.initializer.add(
                name=tensor.values.name, data_type=tensor.values.data_type, dims=tensor.dims, data_location=1
            )
            dense.external_data.add(key="location", value=_WEIGHTS)
        del graph.sparse_initializer[:]


def _describe_checker_error(error: Exception) -> Reason:
    text = str(error).strip()
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    first = re.sub(r"\[\w+Error\] ", "", first).removeprefix("Inference error(s): ")
    node = _NODE.search(text)
    at = f"{node[1]}: " if node is not None and node[1] != "OpType:" and node[1] not in first else ""
    return say("proven_refused", why=f"{at}{first}"[:_WORDS])


@functools.cache
def _newest_opsets() -> Mapping[str, int]:
    """Return the newest opset of each domain that the onnx package here defines."""
    import onnx

    newest: dict[str, int] = defaultdict(int)
    for schema in onnx.defs.get_all_schemas_with_history():
        newest[schema.domain or _DEFAULT] = max(newest[schema.domain or _DEFAULT], schema.since_version)
    return {**newest, _DEFAULT: max(newest[_DEFAULT], onnx.defs.onnx_opset_version())}


def _read_opsets(proto: Any) -> dict[str, int]:
    return {one.domain or _DEFAULT: one.version for one in proto.opset_import}


def _check_newer_opsets(proto: Any) -> Iterator[Reason]:
    import onnx

    for domain, version in _read_opsets(proto).items():
        if version > _newest_opsets().get(domain, version):
            yield say("standard_newer", domain=domain, version=version, known=_newest_opsets()[domain])
    if proto.ir_version > onnx.IR_VERSION:
        yield say("standard_newer", domain="IR", version=proto.ir_version, known=int(onnx.IR_VERSION))


def _check_declared_twice(proto: Any) -> Iterator[Reason]:
    for graph in iterate_graphs(proto.graph):
        for what in (graph.input, graph.output):
            for name, count in Counter(item.name for item in what).items():
                if count > 1:
                    yield say("proven_declared_twice", name=name, count=count)
    for domain, count in Counter(one.domain or _DEFAULT for one in proto.opset_import).items():
        if count > 1:
            yield say("proven_declared_twice", name=domain, count=count)


def _check_operators_exist(proto: Any) -> Iterator[Reason]:
    """Yield the operators that their domain does not have in the opset of the file."""
    import onnx

    opsets = _read_opsets(proto)
    missing: dict[tuple[str, int], list[str]] = {}
    for node in (node for graph in iterate_graphs(proto.graph) for node in graph.node):
        domain = node.domain or _DEFAULT
        if domain not in _newest_opsets() or domain not in opsets:
            continue
        if not onnx.defs.has(node.op_type, opsets[domain], "" if domain == _DEFAULT else domain):
            missing.setdefault((domain, opsets[domain]), []).append(f"{node.op_type} {next(iter(node.output), '')}")
    for (domain, version), names in missing.items():
        yield say("proven_no_operator", domain=domain, version=version, count=len(names), names=list_some(names))


def _list_other_domains(proto: Any) -> Iterator[Reason]:
    """Yield what no package of the standard's defines, so that nothing of it can be checked here."""
    opsets = _read_opsets(proto)
    kinds = Counter(
        f"{node.domain} {node.op_type}" for graph in iterate_graphs(proto.graph) for node in graph.node
        if node.domain in opsets and node.domain not in _newest_opsets()
    )  # fmt: skip
    if kinds:
        yield say("standard_unchecked", count=kinds.total(), names=list_some(list(kinds)))


def _check_form(proto: Any) -> Iterator[Reason]:
    """Yield what the checker refuses and engines take, after it is mended, but for shapes."""
    graphs = list(iterate_graphs(proto.graph))
    unnamed = [graph for graph in graphs if not graph.name]
    for graph in unnamed:
        graph.name = "graph"
    if unnamed:
        yield say("standard_unnamed", count=len(unnamed))
    turned = [graph for graph in graphs if order_nodes(graph) != list(graph.node)]
    if turned:
        reorder(proto.graph, {})
        yield say("standard_unordered", count=len(turned))
    names = [info.name for info in _without_shape(proto.graph)]
    if names:
        yield say("standard_no_shape", count=len(names), names=list_some(names))


def _without_shape(graph: Any) -> list[Any]:
    return [
        info for info in (*graph.input, *graph.output)
        if info.type.HasField("tensor_type") and not info.type.tensor_type.HasField("shape")
    ]  # fmt: skip
