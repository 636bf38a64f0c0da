"""A model taken apart: its operators, which a backend can run one by one, and the layers that its author wrote.

Two protocols that a backend may offer beside Backend. ``pairing`` needs the first of the side that was exported, and
the second of the side that it was exported from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from .records import SessionSpec, TensorMeta

__all__ = ["Layer", "LayerKeeper", "Operator", "OperatorRunner", "Operators"]


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator of a graph. inputs: every one of them, constants too, "" where an optional one is left out.

    attributes: plain values (numbers, texts, tuples of numbers); others are left out.
    """

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Layer:
    """What a layer was built with.

    parameters: what they are for ("weight", "bias", of a batch norm also "mean" and "variance") to their full names.
    attributes: in ONNX's words ("epsilon", "axis", "strides").
    """

    parameters: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)


class Operators(Protocol):
    """A model's operators in an order in which they can run, and its constants."""

    @property
    def operators(self) -> Sequence[Operator]:
        """Of the main graph."""

    @property
    def constants(self) -> Mapping[str, Any]:
        """Weights by name, numpy arrays; only those that an operator or the model's output reads."""

    def run(
        self, operator: Operator, values: Mapping[str, Any], attributes: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any] | None:
        """The outputs of one operator on these inputs (constants too), by name, numpy arrays.

        attributes: in place of its own. None where it cannot run alone.
        """


@runtime_checkable
class OperatorRunner(Protocol):
    """A backend that can run a model's operators one by one, in float32, whatever the mode."""

    def operators(self, spec: SessionSpec) -> Operators:
        """Raises ModelError."""


@runtime_checkable
class LayerKeeper(Protocol):
    """An exporter that knows what each layer was built with."""

    def layers(self, spec: SessionSpec) -> Mapping[str, Layer]:
        """By the names that ``layer_of`` gives."""

    def layers_named(self, names: Iterable[str]) -> Mapping[str, Layer]:
        """The same of the weights' names alone, as a recording has them."""

    def layer_of(self, meta: TensorMeta) -> str:
        """The layer that a tensor of its sessions was made in, as ``Exporter.modules_in`` calls it; "" not known."""
