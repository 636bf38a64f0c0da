"""Attributes of an exported file that differ from the model's, whether or not the values of this input show it.

An epsilon of 1e-5 in place of 1e-6 moves nothing on one input and much on another, so it is found by reading: both
sides say with which numbers an operator was built, and operators are compared where their outputs are a pair.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ....protocols import Layer, Operator
from ....reasons import Reason, say
from .graph import BaseGraph, TargetGraph
from .likeness import is_float
from .walk import FoundPairs

__all__ = ["Built", "find_differing_attributes", "list_attribute_notes"]

Built = Callable[[str], Mapping[str, Any]]
"""A tensor of the model to what its operator was built with, in its framework's words; {} where that is not known."""

_EPSILON, _LOWER, _UPPER = "epsilon", "lower bound", "upper bound"
_WORDS = {
    "eps": _EPSILON, "epsilon": _EPSILON, "negative_slope": "alpha", "approximate": "approximate",
    "min": _LOWER, "min_val": _LOWER, "max": _UPPER, "max_val": _UPPER,
    "stride": "strides", "strides": "strides", "dilation": "dilations", "dilations": "dilations",
    "padding": "pads", "paddings": "pads", "groups": "group",
}  # fmt: skip
_NORMS = frozenset({
    "BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization", "RMSNormalization",
    "SimplifiedLayerNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
})  # fmt: skip
_SLOPES = {"LeakyRelu": 0.01, "Elu": 1.0}
"""What alpha is where it is not given (the ONNX operators' defaults)."""
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
_ROOTS = frozenset({"Sqrt", "Rsqrt", "Pow", "Reciprocal"})
_BOUNDED = frozenset({"clamp", "clip", "hardtanh", "relu6"})
_SMALL = 0.05
"""A number below it that is added before a root is taken is an epsilon."""
_MOST = 6
"""Differences that get a sentence each; three times as many more are named."""
_BEFORE = 32
"""Tensors without a partner that are walked back through at most."""


@dataclass(frozen=True, kw_only=True)
class _Differs:
    attribute: str
    operator: str  # of the file: type and name
    has: Any
    of: str  # the model's tensor
    wanted: Any


def list_attribute_notes(
    base: BaseGraph, target: TargetGraph, found: FoundPairs, built: Built, layers: Mapping[str, Layer],
    layer_of: Callable[[str], str], path: str, said: Sequence[str] = (),
) -> tuple[Reason, ...]:  # fmt: skip
    """One sentence on each attribute that differs. said: notes on wrong operators; what they say is not said again."""
    file = Path(path).name
    differ = [
        one for one in find_differing_attributes(base, target, found, built, layers, layer_of)
        if not any(f"{one.attribute} of {one.operator} " in note for note in said)
        and not any(f"({one.operator})" in note and f"{one.attribute} " in note for note in said)
    ]  # fmt: skip
    notes = [
        say("attribute_differs", attribute=one.attribute, operator=one.operator, file=file, has=_format_value(one.has),
            wanted=_format_value(one.wanted), of=one.of)
        for one in differ[:_MOST]
    ]  # fmt: skip
    if len(differ) > _MOST:
        names: list[str] = [
            say("attribute_of", attribute=one.attribute, of=one.of) for one in differ[_MOST : 4 * _MOST]
        ]
        names += ["…"] * (len(differ) > 4 * _MOST)
        notes.append(say("attributes_differ_more", count=len(differ) - _MOST, file=file, names=names))
    return tuple(notes)


def find_differing_attributes(
    base: BaseGraph, target: TargetGraph, found: FoundPairs, built: Built, layers: Mapping[str, Layer],
    layer_of: Callable[[str], str],
) -> list[_Differs]:  # fmt: skip
    """In the file's order. Where either side does not say with what it was built, nothing is compared."""
    taken = {partner for partner, _ in found.pairs.values()}
    known = set(found.pairs)
    differ: dict[tuple[str, str], _Differs] = {}
    for one in target.operators:
        for name in one.outputs:
            if name not in found.pairs:
                continue
            partner = found.pairs[name][0]
            region = target.region(name, known - {name})
            facts = _collect_facts(base, partner, taken, built, layers, layer_of)
            attributes = list(_iterate_attributes(target, region))
            count = collections.Counter(attribute for _, attribute, _ in attributes)
            for operator, attribute, has in attributes:
                wanted = facts.get(attribute, {})
                if count[attribute] > len(wanted) or any(_are_same(has, value) for value in wanted.values()):
                    continue
                if any(not _are_comparable(has, value) for value in wanted.values()):
                    continue
                of, value = next(iter(wanted.items()))
                label = f"{operator.op_type} {operator.name}".strip()
                differ.setdefault(
                    (operator.name, attribute),
                    _Differs(attribute=attribute, operator=label, has=has, of=of, wanted=value),
                )
    return list(differ.values())


def _collect_facts(
    base: BaseGraph, name: str, taken: Collection[str], built: Built, layers: Mapping[str, Layer],
    layer_of: Callable[[str], str],
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """Return for each attribute the model's tensors, and what each was built with.

    Of one tensor and of those before it that have no partner. What a layer is said to have counts where none of its
    operators says it."""
    found: dict[str, dict[str, Any]] = {}
    waiting, seen = [name], {name}
    while waiting and len(seen) < _BEFORE:
        one = waiting.pop(0)
        operator, layer = built(one), layers.get(layer_of(one))
        kind = base.metas[one].op_type.rpartition(".")[2] if one in base.metas else ""
        for attribute, value in _iterate_named_attributes(kind, operator):
            found.setdefault(attribute, {})[one] = value
        epsilon = layer.attributes.get(_EPSILON) if layer is not None else None
        if epsilon is not None and "norm" in kind:
            found.setdefault(_EPSILON, {}).setdefault(one, epsilon)
        for source in base.inputs_of.get(one, ()):
            if source not in taken and source not in seen:
                seen.add(source)
                waiting.append(source)
    return found


def _iterate_named_attributes(kind: str, operator: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what a framework's operator says of itself, in words that both sides have."""
    plain = kind.strip("_")
    for own, value in operator.items():
        word = _WORDS.get(own)
        if word is None or value is None or isinstance(value, bool):
            continue
        if word in (_LOWER, _UPPER) and plain not in _BOUNDED:
            continue
        if word == "alpha" and "relu" not in plain:
            continue
        if word in ("strides", "dilations", "pads", "group"):
            if "conv" not in plain or operator.get("padding_algorithm", "EXPLICIT") != "EXPLICIT":
                continue
            if word == "group":
                yield word, value
            elif not isinstance(value, (list, tuple)):
                continue
            elif word != "pads":
                yield word, tuple(value)
            elif len(value) == len(operator.get("stride", operator.get("strides", ()))):
                yield word, tuple(value) * 2
        else:
            yield word, value
    if plain in ("elu", "leaky_relu") and isinstance(operator.get("alpha"), (int, float)):
        yield "alpha", operator["alpha"]
    if plain in ("add", "scale"):
        number = operator.get("other", operator.get("bias"))
        if isinstance(number, float) and 0 < number < _SMALL:
            yield _EPSILON, number
    if plain == "gelu" and "approximate" not in operator:
        yield "approximate", "none"


def _iterate_attributes(target: TargetGraph, region: Sequence[Operator]) -> Iterator[tuple[Operator, str, Any]]:
    """Yield what the file's operators between two pairs were built with."""
    kinds = {one.op_type for one in region}
    for one in region:
        attributes = one.attributes
        if one.op_type in _NORMS:
            yield one, _EPSILON, attributes.get(_EPSILON, 1e-5)
        elif one.op_type == "Add" and any(
            reader.op_type in _ROOTS for name in one.outputs for reader in target.readers.get(name, ())
        ):
            numbers = [number for name in one.inputs if (number := _find_only_number(target, name)) is not None]
            if len(numbers) == 1 and 0 < numbers[0] < _SMALL:
                yield one, _EPSILON, numbers[0]
        elif one.op_type in _SLOPES and sum(other.op_type == one.op_type for other in region) == 1:
            yield one, "alpha", attributes.get("alpha", _SLOPES[one.op_type])
        elif one.op_type == "Gelu":
            yield one, "approximate", attributes.get("approximate", "none")
        elif one.op_type in ("Erf", "Tanh") and len(kinds & {"Erf", "Tanh", "Gelu"}) == 1 and "Mul" in kinds:
            yield one, "approximate", "none" if one.op_type == "Erf" else "tanh"
        elif one.op_type == "Clip" and len(region) == 1:
            for place, word in ((1, _LOWER), (2, _UPPER)):
                number = (
                    _find_only_number(target, one.inputs[place]) if place < len(one.inputs) else attributes.get(word)
                )
                if number is not None:
                    yield one, word, number
        elif one.op_type in _CONVOLUTIONS and len(region) == 1 and attributes.get("auto_pad", "NOTSET") == "NOTSET":
            weight = target.constants.get(one.inputs[1])
            rank = weight.ndim - 2 if weight is not None else 0
            for word, default in (("strides", (1,) * rank), ("dilations", (1,) * rank), ("pads", (0,) * 2 * rank)):
                yield one, word, tuple(attributes.get(word, default))
            yield one, "group", attributes.get("group", 1)


def _find_only_number(target: TargetGraph, name: str) -> float | None:
    value = target.constants.get(name)
    if value is None or value.size != 1 or not is_float(value):
        return None
    return float(value.reshape(-1)[0])


def _are_comparable(has: Any, wanted: Any) -> bool:
    if isinstance(has, tuple) or isinstance(wanted, tuple):
        return isinstance(has, tuple) and isinstance(wanted, tuple) and len(has) == len(wanted)
    return isinstance(has, str) == isinstance(wanted, str)


def _are_same(has: Any, wanted: Any) -> bool:
    """Equal, but for the rounding of the type that the file holds a number in."""
    if isinstance(has, (int, float)) and isinstance(wanted, (int, float)):
        with np.errstate(all="ignore"):
            return math.isclose(has, wanted, rel_tol=1e-5) or (has != 0 and bool(np.float16(wanted) == has))
    return bool(has == wanted)


def _format_value(value: Any) -> str:
    return f"{value:.7g}" if isinstance(value, float) else str(list(value) if isinstance(value, tuple) else value)
