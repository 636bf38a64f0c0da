"""How a weight in a file differs from the model's own, and which forms of it are right: turned, reshaped, folded."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..protocols import Layer
from ..reasons import Reason, ReasonOrText, say

__all__ = ["are_same_weights", "describe_relation", "fold", "fold_batch_norm", "iterate_forms"]

Array = np.ndarray[Any, Any]

_FEW = 0.02
"""Share of elements up to which they are counted; above it is another weight."""


def are_same_weights(one: Array, other: Array) -> bool:
    """Return whether weights are equal to the bit, or in the lower precision of the other."""
    return one.shape == other.shape and (
        np.array_equal(one, other) or (one.dtype != other.dtype and np.array_equal(one.astype(other.dtype), other))
    )


def iterate_forms(own: Array, like: Array) -> Iterator[Array]:
    """Yield a weight in the shape and type of another: as it is, with its axes turned, with axes of size 1 added."""
    if own.size != like.size:
        return
    if own.shape == like.shape:
        yield own.astype(like.dtype, copy=False)
    elif _plain_shape(own.shape) == _plain_shape(like.shape):
        yield own.reshape(like.shape).astype(like.dtype, copy=False)
    if 1 < own.ndim < 5:
        for axes in itertools.permutations(range(own.ndim)):
            if axes != tuple(range(own.ndim)) and tuple(own.shape[axis] for axis in axes) == like.shape:
                yield np.ascontiguousarray(own.transpose(axes)).astype(like.dtype, copy=False)


def fold(weight: Array, bias: Array | None, norm: Mapping[str, Array], epsilon: float) -> tuple[Array, Array]:
    """Return a convolution's or linear layer's weight [out, …] and bias with the batch norm after it folded in."""
    wide = {role: value.astype(np.float64) for role, value in norm.items()}
    factor = wide.get("weight", 1.0) / np.sqrt(wide["variance"] + epsilon)
    start = bias.astype(np.float64) if bias is not None else 0.0
    return (
        weight.astype(np.float64) * np.reshape(factor, (-1, *(1,) * (weight.ndim - 1))),
        wide.get("bias", 0.0) + (start - wide["mean"]) * factor,
    )


def fold_batch_norm(
    layers: Sequence[Layer], weights: Mapping[str, Array], like: Array
) -> Iterator[tuple[ReasonOrText, Array]]:
    """Weights and biases of layers with the batch norm among them folded in, in the shape of one of the file's."""
    norms = [layer for layer in layers if "variance" in layer.parameters]
    for norm, layer in itertools.product(norms, layers):
        name = layer.parameters.get("weight", "")
        if layer is norm or name not in weights or weights[name].ndim < 2:
            continue
        values = {role: weights[full] for role, full in norm.parameters.items() if full in weights}
        own = layer.parameters.get("bias", "")
        if not {"mean", "variance"} <= set(values) or len(values["variance"]) != len(weights[name]):
            continue
        made = fold(weights[name], weights.get(own), values, float(norm.attributes.get("epsilon", 1e-5)))
        bias = own or norm.parameters.get("bias", name)
        for full, value in ((name, made[0]), (bias, made[1])):
            if value.shape == like.shape:
                yield say("with_norm", name=full), value.astype(like.dtype)


def describe_relation(name: ReasonOrText, right: Array, has: Array, weights: Mapping[str, Array]) -> Reason:
    """Return how what a file has differs from what is right, in one clause."""
    wide, other = right.astype(np.float64), has.astype(np.float64)
    if right.ndim > 1:
        for axes in itertools.permutations(range(right.ndim)) if right.ndim < 5 else ():
            turned = wide.transpose(axes)
            if axes != tuple(range(right.ndim)) and turned.shape == other.shape and np.allclose(turned, other, 1e-6, 0):
                return say("is_transposed", name=name)
    for full, value in weights.items():
        other_one = full not in name and value.size == has.size and not np.array_equal(value.ravel(), right.ravel())
        if (
            other_one
            and np.any(value != value.flat[0])
            and any(are_same_weights(form, has) for form in iterate_forms(value, has))
        ):
            return say("swapped", name=name, other=full)
    differs = np.abs(wide - other) > 1e-6 * (np.abs(wide) + np.sqrt(np.mean(np.square(wide))))
    count = int(differs.sum())
    if 0 < count <= max(1, int(_FEW * differs.size)):
        place = tuple(int(axis) for axis in np.argwhere(differs)[0])
        there, wanted = float(other[place]), float(wide[place])
        return say("elements_changed", count=count, all=differs.size, name=name, place=str(list(place)), has=there,
                   wanted=wanted)  # fmt: skip
    norm = float(np.square(wide).sum())
    factor = float((wide * other).sum()) / norm if norm else 0.0
    apart = float(np.linalg.norm(wide - other)) / max(float(np.sqrt(norm)), 1e-300)
    if factor and np.linalg.norm(other - factor * wide) <= 1e-5 * np.linalg.norm(other):
        return say("is_scaled", name=name, factor=factor)
    if not np.any(other):
        return say("all_zero", name=name)
    return say("other_checkpoint", name=name, distance=apart)


def _plain_shape(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)
