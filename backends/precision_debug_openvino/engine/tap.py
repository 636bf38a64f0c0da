"""An operator of ours in OpenVINO's graph: it is handed a tensor while the engine runs.

``through`` stands in a tensor's way: its readers get what it gives, which may be something else. What stands on both
sides of it is never fused. ``beside`` is one more reader, that gives a token which is nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["NAME", "Receive", "make_tap_types"]

Receive = Callable[[int, Any], Any]
"""(number of the tap, the engine's own array) to what its readers get in place of it; None: the same."""

NAME = "precision_debug_tap_"
"""What an operator of ours is called, before its number."""


def _read(tensor: Any) -> Any:
    """Return the engine's own array; bfloat16, whose bits it gives as another type's, in float32."""
    if tensor.get_element_type().get_type_name() != "bf16":
        return tensor.data
    return (np.array(tensor.data).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _write(tensor: Any, value: Any) -> None:
    """Put an array into a tensor of the engine; floats are rounded to bfloat16 where that is what it holds."""
    if tensor.get_element_type().get_type_name() != "bf16":
        tensor.data[...] = value
        return
    bits = np.ascontiguousarray(value, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # to nearest, ties to even
    kept = np.where(np.isfinite(value), rounded, bits >> 16)
    tensor.data.view(np.uint16)[...] = kept.astype(np.uint16)


@functools.cache
def make_tap_types() -> tuple[Any, Any]:
    """The classes (through, beside), each made with (inputs, number, receive)."""
    import openvino
    from openvino import Op

    class Tap(Op):  # type: ignore[misc,unused-ignore]
        def __init__(self, inputs: Any, number: int, receive: Receive) -> None:
            super().__init__(self)
            self.number, self.receive = number, receive
            self.set_arguments(inputs)
            self.constructor_validate_and_infer_types()

        def clone_with_new_inputs(self, new_inputs: Any) -> Any:
            return type(self)(new_inputs, self.number, self.receive)

        def has_evaluate(self) -> bool:
            return True

    class Through(Tap):
        def validate_and_infer_types(self) -> None:
            self.set_output_type(0, self.get_input_element_type(0), self.get_input_partial_shape(0))

        def evaluate(self, outputs: Any, inputs: Any) -> bool:
            source, out = inputs[0], outputs[0]
            out.shape = source.shape
            new = self.receive(self.number, _read(source))
            if new is None:
                source.copy_to(out)
            else:
                _write(out, new)
            return True

    class Beside(Tap):
        def validate_and_infer_types(self) -> None:
            self.set_output_type(0, openvino.Type.f32, openvino.PartialShape([1, 1]))

        def evaluate(self, outputs: Any, inputs: Any) -> bool:
            outputs[0].data[...] = 0
            self.receive(self.number, _read(inputs[0]))
            return True

    return Through, Beside
