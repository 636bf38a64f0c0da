"""Projections that an engine computes as one: q, k and v, or gate and up, whose weights it has stacked.

What belongs together the model says: products of one tensor with several weights, and how wide each is. How the engine
stacked them the values say: in which order, and in how many groups, each with its share of every one of them (a rank of
a tensor-parallel run, or a head).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....records import TensorMeta
from .fingerprint import ALIKE, Fingerprint, take

__all__ = ["Projections", "Stack", "find_best_stack", "find_projections", "is_same_module"]

Array = np.ndarray[Any, Any]

_MOST_GROUPS = 256
_MOST_ORDERED = 3


@dataclass(frozen=True, kw_only=True)
class Projections:
    """Projections of one tensor by several weights, which an engine may compute as one.

    names: the model's tensors, in its order, that are computed from one other each by its own weights. sizes: the width
    of each, which is its last axis. rows: how many vectors of that width."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    rows: int


@dataclass(frozen=True, kw_only=True)
class Stack:
    """The order in which projections are stacked in one tensor.

    order: of the projections, one after the other in each group. copies: how many groups hold the same of all but the
    widest (ranks that share the heads of k and v)."""

    order: tuple[int, ...]
    groups: int = 1
    copies: int = 1

    def taken_apart(self, value: Array, of: Projections) -> list[Array] | None:
        """Return each projection [rows, size] of a stacked one, in the model's order; None where it cannot be that."""
        widths = [size * (self.copies if size < max(of.sizes) else 1) for size in of.sizes]
        uneven = self.groups % self.copies or any(width % self.groups for width in widths)
        if uneven or value.size != of.rows * sum(widths):
            return None
        grouped = value.reshape(of.rows, self.groups, -1)
        found: dict[int, Array] = {}
        start = 0
        for place in self.order:
            wide = widths[place] // self.groups
            own = grouped[:, :, start : start + wide]
            start += wide
            if self.copies > 1 and of.sizes[place] < max(of.sizes):
                sets = own.reshape(of.rows, -1, self.copies, wide)
                if not all(np.array_equal(sets[:, :, 0], sets[:, :, other]) for other in range(1, self.copies)):
                    return None
                own = sets[:, :, 0]
            found[place] = np.ascontiguousarray(own).reshape(of.rows, of.sizes[place])
        return [found[place] for place in range(len(of.sizes))]


def find_projections(
    metas: Sequence[TensorMeta], shapes: Mapping[str, tuple[int, ...]], prints: Mapping[str, Fingerprint]
) -> list[Projections]:  # fmt: skip
    """Of a model whose tensors have these shapes and values, in execution order."""
    fixed: set[str] = set()
    root: dict[str, str] = {}
    reads: dict[str, str] = {}
    for meta in metas:
        live = [name for name in meta.inputs if name not in fixed]
        if not live and meta.op_type != "Input":
            fixed.add(meta.name)
        source = root.get(live[0]) if len(live) == 1 else None
        same = source is not None and _hold_same_numbers(source, meta.name, shapes, prints)
        root[meta.name] = source if same and source is not None else meta.name
        if source is not None and not same:
            reads[meta.name] = source
    siblings: dict[tuple[str, str], list[str]] = {}
    kinds = {meta.name: meta.op_type for meta in metas}
    for name, source in reads.items():
        shape, other = shapes.get(name), shapes.get(source)
        if shape and other and math.prod(shape[:-1]) == math.prod(other[:-1]) and len(shape) > 1:
            siblings.setdefault((source, kinds[name]), []).append(name)
    found = [names for names in siblings.values() if len(names) > 1]
    found += _list_behind(found, reads, kinds, shapes)
    return [
        Projections(
            names=tuple(run), sizes=tuple(shapes[name][-1] for name in run), rows=math.prod(shapes[run[0]][:-1])
        )
        for names in found for start, end in itertools.combinations(range(len(names) + 1), 2)
        if 2 <= len(run := names[start:end]) <= _MOST_ORDERED + 1
    ]  # fmt: skip


def _list_behind(
    groups: Sequence[list[str]], reads: Mapping[str, str], kinds: Mapping[str, str],
    shapes: Mapping[str, tuple[int, ...]],
) -> list[list[str]]:  # fmt: skip
    """Return what is made of each projection of a group alone by the same operator: with its bias, where that is
    one."""
    readers: dict[str, list[str]] = {}
    for name, source in reads.items():
        readers.setdefault(source, []).append(name)
    found = []
    for names in groups:
        next_ = [[one for one in readers.get(name, ()) if shapes.get(one) == shapes[name]] for name in names]
        if all(len(ones) == 1 for ones in next_) and len({kinds[ones[0]] for ones in next_}) == 1:
            found.append([ones[0] for ones in next_])
    return found


def _hold_same_numbers(
    one: str, other: str, shapes: Mapping[str, tuple[int, ...]], prints: Mapping[str, Fingerprint]
) -> bool:  # fmt: skip
    if one not in prints or other not in prints or math.prod(shapes[one]) != math.prod(shapes[other]):
        return False
    return np.array_equal(prints[one].own, prints[other].own)


def find_best_stack(
    value: Array, of: Projections, prints: Mapping[str, Fingerprint], *, ranks: int, known: Sequence[Stack]
) -> tuple[Stack, float] | None:
    """Return how the projections are stacked in it, by the model's values; how far the worst of them is off. None: no
    way."""
    best: tuple[Stack, float] | None = None
    as_others = [stack for stack in known if len(stack.order) == len(of.sizes)]
    for stack in itertools.chain(as_others, _iterate_stacks(value, of, ranks)):
        parts = stack.taken_apart(value, of)
        if parts is None:
            continue
        far = max(_measure_distance(prints.get(name), part) for name, part in zip(of.names, parts, strict=True))
        if far <= ALIKE and (best is None or far < best[1]):
            best = stack, far
        if best is not None and best[1] < ALIKE / 10:
            break
    return best


def _iterate_stacks(value: Array, of: Projections, ranks: int) -> Iterator[Stack]:
    """Plain ones first."""
    held = value.size // of.rows if of.rows else 0
    small = sum(size for size in of.sizes if size < max(of.sizes))
    extra, total = held - sum(of.sizes), sum(of.sizes)
    copies = 1 + extra // small if small and extra > 0 and extra % small == 0 else 1
    if held != total + (copies - 1) * small:
        return
    places = range(len(of.sizes))
    orders = list(itertools.permutations(places)) if len(of.sizes) <= _MOST_ORDERED else [tuple(places)]
    most = min(math.gcd(*of.sizes) * copies, _MOST_GROUPS)
    counts = dict.fromkeys([*((ranks,) if ranks > 1 else ()), *range(1, most + 1)])
    for groups in counts:
        for order in orders:
            yield Stack(order=order, groups=groups, copies=copies)


def _measure_distance(known: Fingerprint | None, part: Array) -> float:
    """Return the relative L2 distance at the places of the fingerprint, which are those of the element's number."""
    other = take(part)
    if known is None or other is None or known.own.shape != other.own.shape:
        return math.inf
    norm = max(float(np.linalg.norm(known.own)), float(np.linalg.norm(other.own)))
    return float(np.linalg.norm(known.own - other.own)) / norm if norm else math.inf


def is_same_module(name: str, names: Sequence[str]) -> bool:
    """Return whether a stacked projection has these names, but for what differs between them.

    layers.0.attn.qkv_proj is of layers.0.attn.q_proj, k_proj and v_proj."""
    plain = [_plain_name(one) for one in names]
    front = _common_part(plain)
    back = _common_part([one[::-1] for one in plain])[::-1]
    own = _plain_name(name)
    return len(front) > 1 and f"_{front}" in f"_{own}" and own.endswith(back) and bool(re.search(r"\d", front))


def _common_part(names: Sequence[str]) -> str:
    return "".join(
        letters[0] for letters in itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    )


def _plain_name(name: str) -> str:
    return re.sub(r"[^0-9a-z]+", "_", name.lower()).strip("_")
