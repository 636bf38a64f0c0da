"""What an exporter wrote into a file about where its tensors come from, beside the layers of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ....protocols import Layer

__all__ = ["Names"]


def _unknown(name: str) -> str:  # noqa: ARG001
    return ""


@dataclass(frozen=True, kw_only=True)
class Names:
    """modules: target name to the layer that it comes from. layer_of: the same of a baseline name. layers: by these.

    shapes: of the model's weights.
    """

    modules: Mapping[str, str] = field(default_factory=dict)
    layer_of: Callable[[str], str] = _unknown
    layers: Mapping[str, Layer] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def may_be(self, target: str, baseline: str) -> bool:
        """Not where both come from layers with weights of one shape, and from different ones: a swap, or a copy."""
        one, other = self.modules.get(target), self.layer_of(baseline)
        return one is None or one == other or not self._sizes(one) or self._sizes(one) != self._sizes(other)

    def _sizes(self, layer: str) -> tuple[int, ...]:
        found = self.layers.get(layer)
        return self.shapes.get(found.parameters.get("weight", ""), ()) if found is not None else ()
