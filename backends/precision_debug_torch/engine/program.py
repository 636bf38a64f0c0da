"""An exported program in another floating type: ``module.half()`` for a graph whose types were written down; and what
it takes, where it was saved without example inputs."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["cast_program", "count_rows", "make_stand_ins", "without_records"]


def without_records(module: Any) -> None:
    """Drop what an export noted for itself: example values, which every copy of the module would copy too, and checks
    of the types that it saw, which no other precision passes."""
    for part in module.modules():
        graph = getattr(part, "graph", None)
        if not isinstance(graph, torch.fx.Graph):
            continue
        for node in [*graph.nodes]:
            node.meta = {}
            if "_assert_tensor_metadata" in str(node.target) and not node.users:
                graph.erase_node(node)
        if hasattr(part, "recompile"):
            part.recompile()


def cast_program(module: Any, dtype: torch.dtype) -> int:
    """Cast a program's own copy in place, whose parameters and buffers are in the type already.

    Constants follow, and so does each float32 that an operator was exported with: a program does not tell the model's
    own type from one that the model asked for. So do float32's ends, which a model asks ``torch.finfo`` for to mask:
    no narrower type holds them. Returns how many operators were changed.
    """
    changed = 0
    here, there = torch.finfo(torch.float32), torch.finfo(dtype)
    ends = {here.min: there.min, here.max: there.max} if there.max < here.max else {}

    def cast(value: Any) -> Any:
        if isinstance(value, float):
            return ends.get(value, value)
        return dtype if value is torch.float32 else value

    for part in module.modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                part.__dict__[name] = value.detach().to(dtype)
        graph = getattr(part, "graph", None)
        for node in graph.nodes if isinstance(graph, torch.fx.Graph) else ():
            if any(cast(value) is not value for value in (*node.args, *node.kwargs.values())):
                node.args = tuple(map(cast, node.args))
                node.kwargs = {key: cast(value) for key, value in node.kwargs.items()}
                changed += 1
        if isinstance(graph, torch.fx.Graph) and hasattr(part, "recompile"):
            part.recompile()
    return changed


def make_stand_ins(program: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments and keyword arguments of a program that was saved without its example inputs: zeros of the types
    and sizes that it was exported for, the smallest size where one is left open."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    ranges = {str(symbol): bounds for symbol, bounds in program.range_constraints.items()}

    def make(argument: Any) -> Any:
        value = values.get(argument.name)
        if not isinstance(value, torch.Tensor):
            return getattr(argument, "value", value)  # a number, a text or None, which the export has fixed
        sizes = [dim if isinstance(dim, int) else int(getattr(ranges.get(str(dim)), "lower", 1)) for dim in value.shape]
        return torch.zeros(sizes, dtype=value.dtype)

    args, kwargs = torch.utils._pytree.tree_unflatten(
        [make(argument) for argument in _user_inputs(program)], program.call_spec.in_spec
    )
    return args, kwargs


def count_rows(program: Any) -> dict[str, int]:
    """Return how many rows the table has that an input looks up by number, by the input's name in the program."""
    inputs = {argument.name for argument in _user_inputs(program)}
    rows: dict[str, int] = {}
    for node in program.graph.nodes:
        if node.target is not torch.ops.aten.embedding.default:
            continue
        table, places = node.args[:2]
        value = table.meta.get("val")
        if places.name in inputs and value is not None:
            rows[places.name] = min(int(value.shape[0]), rows.get(places.name, int(value.shape[0])))
    return rows


def _user_inputs(program: Any) -> list[Any]:
    return [spec.arg for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
