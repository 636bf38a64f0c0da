"""Why an operator of an exported file is wrong, by repairing it: the cause is what makes its output agree.

A bias is added, the model's own weight is put in the file's place, turned or folded with its batch norm, an attribute
gets the layer's own value, two inputs change places. What repairs it is named with how it differs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....pairing.relation import describe_relation, fold_batch_norm, iterate_forms
from ....protocols import Layer, Operator
from ....reasons import NOTHING, Reason, say
from .graph import BaseGraph, TargetGraph
from .likeness import agree, is_float
from .walk import Fault, FoundPairs

__all__ = ["Causes"]

Array = np.ndarray[Any, Any]

_REPAIRED = 1e-3
"""How near the output of a repaired operator must come to the model's: ten times agreement.SLACK."""

_TOGETHER = 4
"""Inputs of an operator whose order is tried."""


@dataclass(frozen=True, kw_only=True)
class Causes:
    """layers: by the names that layer_of gives. weights: the model's own, by full name."""

    base: BaseGraph
    target: TargetGraph
    found: FoundPairs
    layers: Mapping[str, Layer]
    weights: Mapping[str, Array]
    layer_of: Callable[[str], str]

    def of(self, fault: Fault) -> Reason:
        """Return what repairs an operator, in one clause; "" where nothing that was tried does."""
        known = self.base.values[fault.baseline]
        region = [one for one in self.target.operators if one.name in set(fault.operators)]
        layers = self._layers(fault.baseline)
        if not region:
            return NOTHING

        def repairs(**changes: Any) -> bool:
            made = self.target.compute(region, self._exactly, **changes).get(fault.target)
            return made is not None and agree(made, known, _REPAIRED)

        value = self.target.compute(region, self._exactly).get(fault.target)
        tests: tuple[Callable[[], Reason], ...] = (
            lambda: self._bias(value, known, layers),
            lambda: self._attribute(region, layers, repairs),
            lambda: self._weight(region, layers, repairs),
            lambda: self._turned(region, repairs),
            lambda: self._weights_together(region, layers, repairs),
            lambda: self._order(region, repairs),
            lambda: self._factor(value, known),
        )
        return next((text for test in tests if (text := test())), NOTHING)

    def _exactly(self, name: str) -> Array | None:
        own = self.target.own.get(name)
        partner = self.found.pairs.get(name)
        if partner is None or own is None or self.base.values[partner[0]].shape != own.shape:
            return own
        return self.base.values[partner[0]].astype(own.dtype, copy=False)

    def _layers(self, name: str) -> list[Layer]:
        """Return the layers of a tensor of the model and of those before it that have no partner."""
        found: dict[str, Layer] = {}
        taken = {partner for partner, _ in self.found.pairs.values()}
        waiting, seen = [name], {name}
        while waiting and len(seen) < 32:
            one = waiting.pop(0)
            layer = self.layer_of(one)
            if layer in self.layers:
                found.setdefault(layer, self.layers[layer])
            for source in self.base.inputs_of.get(one, ()):
                if source not in taken and source not in seen:
                    seen.add(source)
                    waiting.append(source)
        return list(found.values())

    def _bias(self, value: Array | None, known: Array, layers: Sequence[Layer]) -> Reason:
        if value is None or value.shape != known.shape or not is_float(known):
            return NOTHING
        lacks = known.astype(np.float64) - value.astype(np.float64)
        for layer in layers:
            for role, name in layer.parameters.items():
                bias = self.weights.get(name)
                if role in ("mean", "variance") or bias is None or bias.ndim != 1 or not np.any(bias):
                    continue
                for axis in {1 if known.ndim > 1 else 0, known.ndim - 1}:
                    if known.ndim and known.shape[axis] == bias.size:
                        shape = [bias.size if place == axis else 1 for place in range(known.ndim)]
                        whole = np.broadcast_to(bias.astype(np.float64).reshape(shape), known.shape)
                        if agree(lacks, whole, 10 * _REPAIRED):
                            return say("bias_missing", name=name, role=role)
                        if agree(-lacks, whole, 10 * _REPAIRED):
                            return say("bias_twice", name=name)
        return NOTHING

    def _attribute(self, region: Sequence[Operator], layers: Sequence[Layer], repairs: Any) -> Reason:
        for one, (name, wanted) in itertools.product(region, _list_attributes(layers)):
            has = one.attributes.get(name)
            if has is None or has == wanted or (isinstance(has, tuple) and len(has) != len(wanted)):
                continue
            if repairs(attributes={one.name: {name: wanted}}):
                operator = f"{one.op_type} {one.name}".strip()  # the one of the region that carries the attribute
                return say(
                    "attribute_is", name=name, operator=operator, has=_format_value(has), wanted=_format_value(wanted)
                )
        small = {
            name: value for one in region for name in one.inputs
            if (value := self.target.constants.get(name)) is not None and value.size == 1 and is_float(value)
        }  # fmt: skip
        for (constant, value), (name, wanted) in itertools.product(small.items(), _list_attributes(layers)):
            has = float(value.reshape(-1)[0])
            differs = isinstance(wanted, float) and has != wanted
            if differs and repairs(changed={constant: np.full_like(value, wanted)}):
                return say("number_is", name=name, has=_format_value(has), wanted=_format_value(wanted))
        return NOTHING

    def _weight(self, region: Sequence[Operator], layers: Sequence[Layer], repairs: Any) -> Reason:
        for constant, value in self._constants(region):
            for name, right in self._candidates(layers, value):
                if not np.array_equal(right, value) and repairs(changed={constant: right}):
                    return describe_relation(name, right, value, self.weights)
        return NOTHING

    def _turned(self, region: Sequence[Operator], repairs: Any) -> Reason:
        """Return a square weight that is the model's, but read the other way round."""
        for constant, value in self._constants(region):
            for axes in itertools.permutations(range(value.ndim)) if 1 < value.ndim < 5 else ():
                turned = np.ascontiguousarray(value.transpose(axes))
                other = turned.shape == value.shape and axes != tuple(range(value.ndim))
                if other and repairs(changed={constant: turned}):
                    return say("weight_transposed", name=constant)
        for one in region:
            for name in ("transB", "transA"):
                if one.op_type == "Gemm" and repairs(attributes={one.name: {name: 1 - one.attributes.get(name, 0)}}):
                    return say("operand_transposed", name=name, value=one.attributes.get(name, 0))
        return NOTHING

    def _weights_together(self, region: Sequence[Operator], layers: Sequence[Layer], repairs: Any) -> Reason:
        """Several weights at once: an old checkpoint."""
        choices: list[tuple[str, Array, list[tuple[str, Array]]]] = []
        for constant, value in self._constants(region):
            rivals = list(self._candidates(layers, value))
            if rivals:
                choices.append((constant, value, rivals[:4]))
        for picked in itertools.islice(itertools.product(*(rivals for _, _, rivals in choices)), 64):
            changed = {constant: right for (constant, _, _), (_, right) in zip(choices, picked, strict=True)}
            if changed and repairs(changed=changed):
                parts = [
                    describe_relation(name, right, value, self.weights)
                    for (_, value, _), (name, right) in zip(choices, picked, strict=True)
                    if not np.array_equal(right, value)
                ]
                return say("together", causes=parts)
        return NOTHING

    def _order(self, region: Sequence[Operator], repairs: Any) -> Reason:
        """Return inputs that changed places: of the whole model, or of one operator."""
        inputs = [name for name in self.target.own if name not in self.target.producer]
        for read in dict.fromkeys(name for one in region for name in self.target.reads(one) if name in inputs):
            for other in inputs:
                value, own = self._exactly(other), self._exactly(read)
                fits = other != read and value is not None and own is not None and value.shape == own.shape
                if fits and repairs(changed={read: value}):
                    return say("input_exchanged", read=read, other=other)
        for one in region:
            reads = self.target.reads(one)
            if not 1 < len(reads) <= _TOGETHER:
                continue
            for order in itertools.permutations(reads):
                values = [self._exactly(name) for name in order]
                if order == tuple(reads) or any(value is None for value in values):
                    continue
                if repairs(changed=dict(zip(reads, values, strict=True))):
                    return say("reads_order", operator=one.op_type, reads=reads, order=order)
        return NOTHING

    def _factor(self, value: Array | None, known: Array) -> Reason:
        if value is None or value.shape != known.shape or not is_float(known) or known.size < 2:
            return NOTHING
        one, other = known.astype(np.float64).ravel(), value.astype(np.float64).ravel()
        factor = float(one @ other) / max(float(one @ one), 1e-300)
        return say("output_scaled", factor=factor) if agree(other, factor * one, _REPAIRED) else NOTHING

    def _constants(self, region: Sequence[Operator]) -> Iterator[tuple[str, Array]]:
        for name in dict.fromkeys(name for one in region for name in one.inputs):
            value = self.target.constants.get(name)
            if value is not None and is_float(value) and value.size > 1:
                yield name, value

    def _candidates(self, layers: Sequence[Layer], like: Array) -> Iterator[tuple[str, Array]]:
        """Yield the layers' own parameters in the shape of one of the file's: as they are, turned, folded with a
        norm."""
        for layer in layers:
            for name in layer.parameters.values():
                if name in self.weights:
                    for form in iterate_forms(self.weights[name], like):
                        yield name, form
        yield from fold_batch_norm(layers, self.weights, like)


def _list_attributes(layers: Sequence[Layer]) -> list[tuple[str, Any]]:
    return [(name, value) for layer in layers for name, value in layer.attributes.items()]


def _format_value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(list(value) if isinstance(value, tuple) else value)
