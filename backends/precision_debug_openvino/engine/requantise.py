"""One calibrated model, and operators taken out of its INT8 again: NNCF's quantisation of a model takes a hundred times
as long as the removal of quantisers from it.

What is left differs a little from a quantisation of its own with the same operators ignored: NNCF then puts quantisers
elsewhere where several operators read a tensor, and corrects other biases. So this chooses among sets, and what is
chosen is quantised anew. NNCF's accuracy-aware quantisation does the same (nncf.quantize_with_accuracy_control).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from .graph import list_bodies

__all__ = ["without_quantisers"]

_PASSES_ON = frozenset({
    "MaxPool", "AdaptiveMaxPool", "ReduceMax", "Reshape", "Squeeze", "Unsqueeze", "Split", "VariadicSplit", "Transpose",
    "Tile", "StridedSlice", "ShuffleChannels", "Broadcast", "Pad", "Minimum", "Maximum", "ConvertLike", "Gather",
    "GatherND", "GatherElements", "ScatterUpdate", "ScatterNDUpdate", "ScatterElementsUpdate", "DepthToSpace",
    "SpaceToDepth", "BatchToSpace", "SpaceToBatch",
})  # fmt: skip
"""What a quantiser is moved in front of (nncf.openvino.graph.metatypes.groups.QUANTIZE_AGNOSTIC_OPERATIONS)."""

_CORRECTED = frozenset({
    "Convolution", "GroupConvolution", "ConvolutionBackpropData", "GroupConvolutionBackpropData", "MatMul",
})  # fmt: skip
"""What NNCF corrects the bias of."""

_SHAPED = frozenset({"Reshape", "Unsqueeze", "Squeeze", "Broadcast", "Transpose", "Convert"})
"""What a bias may go through on its way to a sum."""


def without_quantisers(quantised: Any, model: Any, names: Collection[str]) -> Any:
    """Return a copy of a quantised model in which operators of these names read what was not quantised for them, and
    have their own weights and biases. model: as it was before its quantisation, which kept the names."""
    clone = quantised.clone()
    untouched = model.clone()
    before = {str(op.get_friendly_name()): op for op in _with_bodies(untouched)}
    ignored = frozenset(names)
    for op in _with_bodies(clone):
        if str(op.get_friendly_name()) in ignored and op.get_type_name() != "Constant":
            for port in op.inputs():
                _undo(port, ignored)
            _restore(op, before)
            if op.get_type_name() in _CORRECTED:
                for reader in op.output(0).get_target_inputs():
                    _restore(reader.get_node(), before)
    clone.validate_nodes_and_infer_types()
    return clone


def _with_bodies(model: Any) -> list[Any]:
    """Return all operators, those in branches and loops too, in execution order."""
    found: list[Any] = []
    for op in model.get_ordered_ops():
        for body in list_bodies(op):
            found += _with_bodies(body)
        found.append(op)
    return found


def _undo(port: Any, ignored: Collection[str]) -> None:
    """Lead what an input reads past its quantiser; one behind what only moves numbers, if nobody else needs it."""
    source, moved = port.get_source_output(), False
    while source.get_node().get_type_name() in _PASSES_ON and source.get_node().get_input_size():
        source, moved = source.get_node().input_value(0), True
    quantiser = source.get_node()
    if quantiser.get_type_name() != "FakeQuantize":
        return
    if not moved:
        port.replace_source_output(quantiser.input_value(0))
    elif all(name in ignored for name in _list_readers(quantiser.output(0))):
        for reader in list(quantiser.output(0).get_target_inputs()):
            reader.replace_source_output(quantiser.input_value(0))


def _list_readers(port: Any) -> list[str]:
    """Return names of the operators that read a port's numbers, behind what only moves these."""
    found: list[str] = []
    for reader in port.get_target_inputs():
        op = reader.get_node()
        if op.get_type_name() in _PASSES_ON:
            found += [name for out in op.outputs() for name in _list_readers(out)]
        elif op.get_type_name() != "ShapeOf":
            found.append(str(op.get_friendly_name()))
    return found


def _restore(op: Any, before: Mapping[str, Any]) -> None:
    """Give an operator its own constants back: NNCF leaves weights as whole numbers, and biases corrected, those too
    that are brought to the shape of a result which is known only when it is there."""
    was = before.get(str(op.get_friendly_name()))
    if was is None or was.get_type_name() != op.get_type_name():
        return
    for port, source in zip(op.inputs(), was.input_values(), strict=True):
        if source.get_element_type().is_real() and _is_constant(source):
            port.replace_source_output(source)
        elif source.get_node().get_type_name() in _SHAPED:
            _restore(port.get_source_output().get_node(), before)


def _is_constant(port: Any) -> bool:
    op = port.get_node()
    inputs = op.input_values()
    return op.get_type_name() == "Constant" or (bool(inputs) and all(map(_is_constant, inputs)))
