"""What the mode onnx_ref needs of onnx.reference: its evaluators for graphs inside graphs, and Loop done right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from precision_debug.errors import PrecisionDebugError
from precision_debug.onnx.graph import iterate_subgraphs, list_outer_reads

from ..reasons import say
from .reference_fallback import Borrowed
from .reference_operators import corrected, refusal

__all__ = ["evaluator_class", "inner_evaluators", "inner_of", "is_float", "last_uses", "run_loop", "single", "wide"]

Execute = Callable[[Any, Mapping[str, Any], Any], list[Any]]


def evaluator_class(execute: Execute) -> Any:
    """Return a ReferenceEvaluator that leaves running a graph's nodes to ``execute``.

    onnx.reference makes the evaluators of inner graphs from the class of the outer one, so it runs those as well.
    """
    from onnx import FunctionProto
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import RuntimeContextError

    class Evaluator(ReferenceEvaluator):  # type: ignore[misc]
        def _load_impl(self, node: Any, input_types: Any = None) -> Any:
            """Return a maker of the node: a right one in place of a wrong one, or one that says that there is none."""
            version = self.opsets.get(node.domain, 0)
            right, why = corrected(node, version), refusal(node, version)
            if right is not None or why:
                return lambda *_: right or Borrowed(node, why)
            try:
                make = super()._load_impl(node, input_types)
            except RuntimeContextError:
                raise
            except Exception as error:
                return _absent(node, error)
            return lambda *arguments: _made(make, node, arguments)

        def run(self, output_names: Any, feed_inputs: Any, attributes: Any = None, **more: Any) -> Any:
            if isinstance(self.proto_, FunctionProto):
                return super().run(output_names, feed_inputs, attributes, **more)
            return execute(self, feed_inputs, attributes)

    return Evaluator


def _made(make: Any, node: Any, arguments: Any) -> Any:
    try:
        return make(*arguments)
    except PrecisionDebugError:
        raise
    except Exception as error:
        return _absent(node, error)(*arguments)


def _absent(node: Any, error: Exception) -> Callable[..., Borrowed]:
    """onnx.reference cannot make a node. Raises the error where the node has graphs inside, which need it."""
    if any(iterate_subgraphs(node)):
        raise error
    return lambda *_: Borrowed(node, say("reference_lacks"))


def inner_evaluators(evaluator: Any, key: Any = ()) -> list[tuple[Any, Any]]:
    """Scope key and evaluator of a graph and of those inside it."""
    found = [(key, evaluator)]
    for node in evaluator.rt_nodes_:
        for inner, value in inner_of(node, key):
            found += inner_evaluators(value, inner)
    return found


def inner_of(node: Any, key: Any) -> list[tuple[Any, Any]]:
    """Scope key and evaluator of each graph in a node's attributes."""
    if not hasattr(node, "onnx_node"):
        return []
    step = next((name for name in node.output if name), node.onnx_node.name)
    return [
        ((*key, (step, item.name)), getattr(node, item.name)) for item in node.onnx_node.attribute if item.HasField("g")
    ]


def run_loop(node: Any, inputs: list[Any], results: Mapping[str, Any], attributes: Any) -> list[Any]:
    """Return the operator Loop.

    onnx.reference's own takes a missing condition for false, and joins rows along their first axis.
    """
    import numpy as np

    body = node.body
    limit, go, carried = inputs[0], inputs[1], [wide(value) for value in inputs[2:]]
    rows: list[list[Any]] = [[] for _ in body.output_names[1 + len(carried) :]]
    turn = 0
    while (go is None or bool(np.asarray(go).reshape(()))) and (
        limit is None or turn < int(np.asarray(limit).reshape(()))
    ):
        start = (np.array(turn, np.int64), np.array(True), *carried)
        outputs = body.run(None, {**results, **dict(zip(body.input_names, start, strict=True))}, attributes)
        go, carried = outputs[0], outputs[1 : 1 + len(carried)]
        for row, value in zip(rows, outputs[1 + len(carried) :], strict=True):
            row.append(value)
        turn += 1
    return [*carried, *(np.stack(row) if row else np.zeros((0,), np.float64) for row in rows)]


def last_uses(evaluator: Any) -> dict[int, list[str]]:
    """For each node, by place, the values that nothing reads after it."""
    last: dict[str, int] = {}
    for place, node in enumerate(evaluator.rt_nodes_):
        for name in (*node.input, *node.output, *list_outer_reads(node.onnx_node)):
            last[name] = place
    kept = {"", *evaluator.output_names}
    found: dict[int, list[str]] = {}
    for name, place in last.items():
        if name not in kept:
            found.setdefault(place, []).append(name)
    return found


def is_float(value: Any, name: str = "") -> bool:
    """Return whether a value is an array of floats; of the type ``name`` where one is given."""
    if not hasattr(value, "dtype"):
        return False
    dtype = value.dtype
    return bool(dtype.name == name if name else dtype.kind == "f" or dtype.name == "bfloat16")


def wide(value: Any) -> Any:
    """Return floats as float64."""
    return value.astype("float64") if is_float(value) and not is_float(value, "float64") else value


def single(value: Any) -> Any:
    """float64 as float32."""
    return value.astype("float32") if is_float(value, "float64") else value
