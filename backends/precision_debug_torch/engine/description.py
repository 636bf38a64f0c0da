"""What an exported program or a TorchScript file holds; nothing of it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from precision_debug.errors import ModelError
from precision_debug.numbers.arrays import as_array, measure_span
from precision_debug.protocols.description import DescribedLayer, DescribedWeight, Description
from precision_debug.records import InputMeta

from ..model import load_program, load_script

__all__ = ["describe"]


def describe(path: str) -> Description:
    """See ``protocols.Describer``."""
    try:
        if Path(path).suffix.lower() == ".pt2":
            return _of_program(load_program(path))
        return _of_script(load_script(path))
    except (UnicodeDecodeError, RuntimeError) as error:  # names that are not text, and whatever else loads all the same
        raise ModelError(f"is damaged: {str(error).splitlines()[0]}", where=path, hint="save it again") from error


def _of_program(program: Any) -> Description:
    import torch

    nodes = {node.name: node for node in program.graph.nodes}
    signature = program.graph_signature
    inputs = [spec.arg.name for spec in signature.input_specs if spec.kind.name == "USER_INPUT"]
    outputs = [spec.arg.name for spec in signature.output_specs if spec.kind.name == "USER_OUTPUT"]
    held = {
        spec.arg.name: str(spec.target)
        for spec in signature.input_specs
        if spec.kind.name not in ("USER_INPUT", "TOKEN")
    }
    layers = [
        DescribedLayer(
            op_type=str(node.target),
            name=node.name,
            inputs=tuple(held.get(one.name, one.name) for one in node.all_input_nodes),
            outputs=(node.name,),
            attributes={str(key): str(value) for key, value in _settings(node).items()},
        )
        for node in program.graph.nodes
        if node.op == "call_function"
    ]
    return Description(
        format=f"torch.export program, read by torch {torch.__version__}",
        inputs=[_meta(name, nodes) for name in inputs if name in nodes],
        outputs=[_meta(name, nodes) for name in outputs if name in nodes],
        layers=layers, weights=_weights({**program.constants, **program.state_dict}),
    )  # fmt: skip


def _settings(node: Any) -> Mapping[str, Any]:
    """Arguments that are not tensors, by the operator's own names where it has a schema."""
    schema = getattr(node.target, "_schema", None)
    names = [argument.name for argument in schema.arguments] if schema is not None else []
    plain = {
        names[place] if place < len(names) else str(place): value
        for place, value in enumerate(node.args) if not _holds_nodes(value)
    }  # fmt: skip
    return {**plain, **{key: value for key, value in node.kwargs.items() if not _holds_nodes(value)}}


def _holds_nodes(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_holds_nodes, value))
    return hasattr(value, "all_input_nodes")


def _meta(name: str, nodes: Mapping[str, Any]) -> InputMeta:
    value = nodes[name].meta.get("val")
    if not hasattr(value, "shape"):
        return InputMeta(name=name, dtype=type(value).__name__, shape=())
    shape = tuple(dim if isinstance(dim, int) else str(dim) for dim in value.shape)
    return InputMeta(name=name, dtype=str(value.dtype).removeprefix("torch."), shape=shape)


def _of_script(module: Any) -> Description:
    import torch

    graph = module.inlined_graph
    arguments = [one for one in graph.inputs() if one.debugName() != "self"]
    return Description(
        format=f"TorchScript, read by torch {torch.__version__}",
        inputs=[_value(one) for one in arguments if not str(one.type()).startswith("__torch__")],
        outputs=[_value(one) for one in graph.outputs()],
        layers=list(_nodes(graph.nodes(), 0)),
        weights=_weights(dict(module.state_dict())),
    )


def _nodes(nodes: Iterable[Any], depth: int) -> Iterator[DescribedLayer]:
    for node in nodes:
        kind = str(node.kind())
        if kind not in {"prim::Constant", "prim::GetAttr", "prim::ListConstruct"}:
            outputs = tuple(one.debugName() for one in node.outputs())
            yield DescribedLayer(
                op_type=kind, name=outputs[0] if outputs else kind, depth=depth, outputs=outputs,
                inputs=tuple(one.debugName() for one in node.inputs() if one.node().kind() != "prim::Constant"),
            )  # fmt: skip
        for block in node.blocks():
            yield from _nodes(block.nodes(), depth + 1)


def _value(value: Any) -> InputMeta:
    kind = value.type()
    known = kind.kind() == "TensorType" and kind.sizes() is not None
    dtype = str(kind.dtype() or "").removeprefix("torch.") if kind.kind() == "TensorType" else str(kind)
    return InputMeta(name=value.debugName(), dtype=dtype, shape=tuple(kind.sizes()) if known else None)


def _weights(held: Mapping[str, Any]) -> Iterator[DescribedWeight]:
    for name, value in held.items():
        if not hasattr(value, "detach"):
            continue
        low, high, lost = measure_span(as_array(value, name=name)) if value.numel() else (None, None, 0)
        yield DescribedWeight(
            name=name, dtype=str(value.dtype).removeprefix("torch."), shape=tuple(value.shape), low=low, high=high,
            non_finite=lost,
        )  # fmt: skip
