"""What a file itself proves, without a run: constants that cannot be right, or that do not fit the target's type."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..reasons import Reason, list_some, say
from .constants import Constants
from .graph import Scope, iterate_scopes, read_attribute
from .model import Model
from .scales import MOVERS, Scale, find_broken, read_node_scales

__all__ = ["prove_faults"]

Array = np.ndarray[Any, Any]

_FLOAT16 = np.finfo(np.float16)
_LIMITS = {"float16": (float(_FLOAT16.max), float(_FLOAT16.smallest_subnormal) / 2)}
"""The largest number of a type, and the size below which one becomes 0."""

_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_END = 2**31 - 1
_SAME = 0.01
"""Relative difference of a bias's scale from the product of the scales from which on it is another one."""

_MOST = 5
"""Findings of one kind that are told one by one."""


def prove_faults(model: Model, *, to: str = "", int32: bool = False, kept: Collection[str] = ()) -> list[Reason]:
    """Return what a model file proves of itself, one sentence each, in the order of the graph.

    to: the type of a target that holds floats in it, "float16".

    int32: the target holds whole numbers in 32 bits. kept: nodes, or tensors that they make, that stay in a wider type.
    Only what is wrong whatever is fed to the model.
    """
    found: dict[str, list[Reason]] = {}
    for reason in _check_wiring(model):
        found.setdefault(reason.code, []).append(reason)
    for file in _iterate_files(model):
        for kind in (
            _check_finite,
            _check_attributes,
            _check_scales,
            _check_pairs,
            _check_biases,
            _check_clipped_weights,
            _check_norms,
        ):
            for reason in kind(file):
                found.setdefault(reason.code, []).append(reason)
        for reason in _check_range(file, to, int32, frozenset(kept)):
            found.setdefault(reason.code, []).append(reason)
    told: list[Reason] = []
    for reasons in found.values():
        told += reasons[:_MOST]
        if len(reasons) > _MOST:
            told.append(say("proven_more", count=len(reasons) - _MOST))
    return told


@dataclass(frozen=True, kw_only=True)
class _File:
    """nodes: of a graph. constants: its own. makers: output name to the node that makes it."""

    nodes: Sequence[Any]
    constants: Constants
    makers: Mapping[str, Any]
    readers: Mapping[str, Sequence[Any]]

    @classmethod
    def of(cls, model: Model, scope: Scope, outer: Constants | None) -> _File:
        nodes = list(scope.graph.node)
        readers: dict[str, list[Any]] = {}
        for node in nodes:
            for name in node.input:
                readers.setdefault(name, []).append(node)
        makers = {name: node for node in nodes for name in node.output if name}
        return cls(nodes=nodes, constants=Constants(model, scope.graph, outer), makers=makers, readers=readers)

    def value(self, node: Any, place: int) -> Array | None:
        """Return a constant input of a node."""
        name = node.input[place] if len(node.input) > place else ""
        return self.constants.get(name) if name else None

    def dequantised(self, name: str) -> Any:
        """Return the DequantizeLinear that makes a tensor, or None."""
        maker = self.makers.get(name)
        return maker if maker is not None and maker.op_type == "DequantizeLinear" else None


def _iterate_files(model: Model) -> Iterator[_File]:
    """Yield the main graph, then the branches and bodies in it, which see the constants around them."""
    made: dict[int, _File] = {}
    for scope in iterate_scopes(model.proto.graph):
        around = made.get(id(scope.parent.graph)) if scope.parent is not None else None
        made[id(scope.graph)] = _File.of(model, scope, around.constants if around is not None else None)
        yield made[id(scope.graph)]


def _check_wiring(model: Model) -> Iterator[Reason]:
    """Yield names that nothing makes, that two make, and operators that wait for each other: no engine can run
    those."""
    around: dict[int, frozenset[str]] = {}
    for scope in iterate_scopes(model.proto.graph):
        graph, outer = scope.graph, around.get(id(scope.parent.graph)) if scope.parent is not None else None
        held = [item.name for item in graph.initializer] + [item.values.name for item in graph.sparse_initializer]
        made = held + [name for node in graph.node for name in node.output if name]
        for name, count in Counter(made).items():
            if count > 1:
                yield say("proven_made_twice", name=name, count=count)
        ready = {*(outer or ()), *held, *(item.name for item in graph.input), ""}
        around[id(graph)] = known = frozenset(ready | set(made))
        for node in graph.node:
            for name in sorted({*node.input} - known):
                yield say("proven_unmade", name=name, reader=next(filter(None, node.output), node.name))
        for item in graph.output:
            if item.name not in known:
                yield say("proven_unmade_output", name=item.name)
        waiting, ready = list(graph.node), ready | ({name for node in graph.node for name in node.input} - known)
        while waiting:
            left = []
            for node in waiting:
                if ready.issuperset(node.input):
                    ready.update(node.output)
                else:
                    left.append(node)
            if len(left) == len(waiting):
                names = [next(filter(None, node.output), node.name) for node in left]
                yield say("proven_circle", count=len(names), names=list_some(names))
                break
            waiting = left


def _check_attributes(file: _File) -> Iterator[Reason]:
    """Yield numbers that stand in an operator itself, of whatever name."""
    from onnx import numpy_helper

    for node in file.nodes:
        for item in node.attribute if node.op_type != "Constant" else ():
            numbers = np.asarray([item.f, *item.floats])
            if item.HasField("t") and not item.t.external_data:
                with contextlib.suppress(TypeError, ValueError, KeyError):
                    numbers = np.append(numbers, np.asarray(numpy_helper.to_array(item.t)).astype(np.float64))
            if np.isnan(numbers).any():
                name = f"{node.op_type} {next(filter(None, node.output), node.name)}: {item.name}"
                yield say("proven_nan", name=name, count=int(np.isnan(numbers).sum()))


def _check_finite(file: _File) -> Iterator[Reason]:
    for name in file.constants:
        value = file.constants.get(name)
        if value is None or not (value.dtype.kind == "f" or "float" in value.dtype.name):
            continue
        value = value if value.dtype.kind == "f" else value.astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            total = value.sum()  # a NaN comes through, so that most weights are read once, and nothing is written
        if np.isnan(total) and np.isnan(value).any():
            yield say("proven_nan", name=name, count=int(np.isnan(value).sum()))


def _check_scales(file: _File) -> Iterator[Reason]:
    for node in file.nodes:
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        scale = file.value(node, 1)
        if scale is not None and scale.size:
            wrong = ~(np.isfinite(scale.astype(np.float64)) & (scale.astype(np.float64) > 0))
            if wrong.any():
                yield say(
                    "proven_scale", op=node.op_type, name=node.output[0], scale=float(scale[wrong].flat[0])
                )  # fmt: skip
        zero, held = file.value(node, 2), file.value(node, 0)
        if node.op_type == "DequantizeLinear" and zero is not None and held is not None and zero.dtype != held.dtype:
            yield say(
                "proven_zero_point", name=node.output[0], zero=zero.dtype.name, held=held.dtype.name
            )  # fmt: skip
        if node.op_type == "DequantizeLinear" and held is not None and held.dtype == np.int32 and np.any(zero):
            yield say("proven_bias_zero_point", name=node.output[0], zero=int(np.asarray(zero).max()))


def _check_pairs(file: _File) -> Iterator[Reason]:
    """Who makes a quantised tensor and who reads it, itself or moved about, have one scale and zero point for it."""
    made: dict[str, Scale] = {}
    for node in file.nodes:
        of = read_node_scales(node)
        given = of.get(node.input[0]) if node.op_type == "QuantizeLinear" else of.get(node.output[0])
        made |= {node.output[0]: given} if given is not None and node.op_type != "DequantizeLinear" else {}
    for node in file.nodes:
        for name, scale in () if node.op_type == "QuantizeLinear" else read_node_scales(node).items():
            for maker in () if name in node.output else _iterate_makers(file, name, made):
                theirs, ours = (_read_grid(file.constants, one) for one in (made[maker], scale))
                if theirs is None or ours is None or theirs[0].shape != ours[0].shape:
                    continue
                apart = np.abs(theirs[0] - ours[0]) > theirs[2] * theirs[0]
                if (wrong := np.flatnonzero(apart | (theirs[1] != ours[1]))).size:
                    at = int(wrong[0])
                    yield say(
                        "proven_scale_apart", name=maker, op=node.op_type, by=node.output[0],
                        made=float(theirs[0][at]), made_zero=int(theirs[1][at]), read=float(ours[0][at]),
                        read_zero=int(ours[1][at]),
                    )  # fmt: skip


def _iterate_makers(file: _File, name: str, made: Mapping[str, Scale]) -> Iterator[str]:
    """Yield the tensors that something quantises, of which a tensor is made by moving numbers about."""
    if name in made:
        yield name
    elif (maker := file.makers.get(name)) is not None and maker.op_type in MOVERS:
        for source in maker.input if maker.op_type == "Concat" else maker.input[:1]:
            yield from _iterate_makers(file, source, made)


def _read_grid(constants: Constants, of: Scale) -> tuple[Array, Array, float] | None:
    """Return scales, zero points, and the share of a scale that is half a step at the end of the type; None where that
    is no constant, or no scale at all."""
    scale, zero = constants.get(of.scale), constants.get(of.zero_point) if of.zero_point else np.uint8(0)
    if scale is None or zero is None or of.block or find_broken(scale).any():
        return None
    steps = 2.0 ** (8 * zero.dtype.itemsize)
    each = np.atleast_1d(scale.astype(np.float64)).reshape(-1)
    return each, np.broadcast_to(zero.astype(np.float64).reshape(-1), each.shape), 0.5 / steps


def _check_biases(file: _File) -> Iterator[Reason]:
    """An integer kernel adds a bias to sums whose unit is scale_x times scale_w, whatever scale the file gives
    it; a bias of 0 has no unit."""
    shared: dict[str, list[tuple[str, Array]]] = {}
    for node in file.nodes:
        if node.op_type == "QLinearConv":
            units, bias = (file.value(node, 1), file.value(node, 4)), node.input[8] if len(node.input) > 8 else ""
            held, scale = file.constants.get(bias) if bias else None, None
        elif node.op_type in _PRODUCTS and len(node.input) > 2 and node.input[2]:
            parts = [file.dequantised(name) for name in node.input[:3]]
            if any(part is None for part in parts):
                continue
            units = file.value(parts[0], 1), file.value(parts[1], 1)
            bias, held, scale = parts[2].input[0], file.value(parts[2], 0), file.value(parts[2], 1)
        else:
            continue
        if held is None or held.dtype != np.int32:
            continue
        ends = int((np.abs(held.astype(np.int64)) >= _END).sum())
        if ends:
            yield say("proven_bias_clipped", op=node.op_type, name=node.output[0], bias=bias, count=ends)
        counts = np.flatnonzero(held)
        if units[0] is None or units[1] is None or not counts.size:
            continue
        product = (units[0].astype(np.float64).reshape(-1) * units[1].astype(np.float64).reshape(-1)).reshape(-1)
        if product.size in (1, held.size):
            product = np.broadcast_to(product, held.size)[counts]
            if scale is not None and scale.size in (1, held.size):
                given = np.broadcast_to(scale.astype(np.float64).reshape(-1), held.size)[counts]
                off = np.abs(given / product - 1)
                if off.max() > _SAME:
                    one, other = float(given[off.argmax()]), float(product[off.argmax()])
                    yield say(
                        "proven_bias_scale", op=node.op_type, name=node.output[0], bias=bias, scale=one, wanted=other
                    )
        shared.setdefault(bias, []).append((node.output[0], product))
    for bias, users in shared.items():
        first = users[0]
        for name, product in users[1:]:
            if product.shape != first[1].shape or not np.allclose(product, first[1], rtol=_SAME, atol=0):
                yield say("proven_bias_shared", bias=bias, first=first[0], second=name)
                break


def _check_clipped_weights(file: _File) -> Iterator[Reason]:
    """Yield a reason for each constant that goes through a QuantizeLinear whose range it leaves."""
    for node in file.nodes:
        value, scale = file.value(node, 0), file.value(node, 1)
        if node.op_type != "QuantizeLinear" or value is None or scale is None:
            continue
        if value.dtype.kind != "f" or not value.size or scale.size != 1:
            continue
        zero = file.value(node, 2)
        kind = np.dtype(np.uint8) if zero is None else zero.dtype
        if kind.kind not in "iu":
            continue
        limits, offset = np.iinfo(kind), 0 if zero is None else int(zero.reshape(-1)[0])
        unit = float(scale.reshape(-1)[0])
        low, high = (limits.min - offset - 1) * unit, (limits.max - offset + 1) * unit
        least, largest = float(value.min()), float(value.max())
        if least < low or largest > high:
            worst = least if low - least > largest - high else largest
            yield say("proven_weight_clipped", name=node.input[0], value=worst, low=low, high=high)


def _check_norms(file: _File) -> Iterator[Reason]:
    for node in file.nodes:
        if node.op_type == "BatchNormalization":
            variance = file.value(node, 4)
            epsilon = float(read_attribute(node, "epsilon", 1e-5))
            if variance is not None and variance.size and float(variance.min()) + epsilon <= 0:
                yield say("proven_variance", name=node.output[0], variance=float(variance.min()))
        elif node.op_type == "Clip":
            low, high = file.value(node, 1), file.value(node, 2)
            if low is not None and high is not None and low.size and high.size and float(low.max()) > float(high.min()):
                yield say("proven_clip", name=node.output[0], low=float(low.max()), high=float(high.min()))


def _check_range(file: _File, to: str, int32: bool, kept: frozenset[str]) -> Iterator[Reason]:
    limit, least = _LIMITS.get(to, (0.0, 0.0))
    for name in file.constants:
        readers = [
            node for node in file.readers.get(name, ())
            if node.op_type not in ("Shape", "ConstantOfShape") and not kept & {node.name, *node.output}
        ]  # fmt: skip
        value = file.constants.get(name) if readers and (limit or int32) else None
        if value is None or not value.size:
            continue
        by = f"{readers[0].op_type} {readers[0].output[0]}"
        if limit and value.dtype.kind == "f" and value.dtype.itemsize > 2:
            if value.size > 1 and value.max() <= limit and value.min() >= -limit:  # false where there is a NaN
                continue
            size = np.abs(value[np.isfinite(value)].astype(np.float64))
            if size.size and size.max() > limit:
                yield say(
                    "proven_overflow", name=name, by=by, value=float(size.max()), limit=limit, to=to,
                    count=int((size > limit).sum()),
                )  # fmt: skip
            elif value.size == 1 and 0 < float(size.max(initial=0.0)) < least:
                yield say(
                    "proven_underflow", name=name, by=by, value=float(size.max()), to=to, least=2 * least
                )  # fmt: skip
        elif int32 and value.dtype == np.int64:
            ends = (np.iinfo(np.int64).max, np.iinfo(np.int64).min, np.iinfo(np.int64).min + 1)
            wide = value[(np.abs(value) > _END) & ~np.isin(value, ends)]
            if wide.size and not any(node.op_type == "Slice" for node in readers):
                yield say("proven_int64", name=name, by=by, value=int(wide.flat[0]))
