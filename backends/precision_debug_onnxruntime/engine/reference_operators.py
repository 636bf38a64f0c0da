"""Operators that onnx.reference gets wrong: done right here, in the type of their input, or refused.

Found by running each operator at each of its versions in onnx.reference (1.17 to 1.23) and in ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from precision_debug.onnx.graph import read_attribute, split_words
from precision_debug.reasons import NOTHING, Reason

from ..reasons import say

__all__ = ["Corrected", "corrected", "refusal"]

Compute = Callable[..., tuple[Any, ...]]

_RANDOM = split_words("Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike")
_IGNORED = ("activations", "activation_alpha", "activation_beta", "clip", "input_forget")
_SEQUENCE_LENS = 4


class Corrected:
    """A node as onnx.reference's evaluator wants it, with another computation."""

    has_linked_attribute = False

    def __init__(self, node: Any, compute: Compute) -> None:
        self.onnx_node, self._compute = node, compute
        self.op_type, self.domain = node.op_type, node.domain
        self.input: Sequence[str] = node.input
        self.output: Sequence[str] = node.output

    def need_context(self) -> bool:
        """Return whether it reads more of the graph than its inputs."""
        return False

    def run(self, *inputs: Any) -> tuple[Any, ...]:
        return self._compute(self.onnx_node, *inputs)


def corrected(node: Any, version: int) -> Corrected | None:
    """Return the node done right; None where onnx.reference's own will do. version: the opset that the model asks
    for."""
    if node.domain not in {"", "ai.onnx"} or any(item.ref_attr_name for item in node.attribute):
        return None
    found: Compute | None = None
    if node.op_type in {"Softmax", "LogSoftmax", "Hardmax"} and version < 13:
        found = _softmax
    elif node.op_type == "BatchNormalization" and 7 <= version < 14 and not any(node.output[1:]):
        found = _batch_normalization
    elif (
        node.op_type == "Conv" and _explicit(node) and any(step > 1 for step in read_attribute(node, "dilations") or ())
    ):
        found = _dilated
    elif node.op_type == "DequantizeLinear" and version < 19:
        found = _dequantise
    elif node.op_type in _RIGHT:
        found = _RIGHT[node.op_type]
    return None if found is None else Corrected(node, found)


def refusal(node: Any, version: int) -> Reason:
    """Return why onnx.reference's own result of a node is worth nothing; "" where it is."""
    if node.domain not in {"", "ai.onnx"}:
        return NOTHING
    if node.op_type in _RANDOM:
        return say("random")
    if node.op_type in {"LSTM", "GRU", "RNN"}:
        ignored = [name for name in _IGNORED if read_attribute(node, name)]
        if len(node.input) > _SEQUENCE_LENS and node.input[_SEQUENCE_LENS]:
            ignored.append("sequence_lens")
        return say("reference_ignores", names=ignored) if ignored else NOTHING
    wrong = (
        (node.op_type == "BatchNormalization" and version < 14 and any(node.output[1:]))
        or (node.op_type == "MaxPool" and any(node.output[1:]) and _padded(node))
        or (node.op_type == "LpPool" and read_attribute(node, "ceil_mode", 0))
        or (node.op_type == "RoiAlign" and version < 16)
        or (node.op_type == "Resize" and read_attribute(node, "coordinate_transformation_mode") == "align_corners")
    )
    return say("reference_wrong") if wrong else NOTHING


def _explicit(node: Any) -> bool:
    return read_attribute(node, "auto_pad", "NOTSET") in {"NOTSET", b"NOTSET"}


def _padded(node: Any) -> bool:
    return any(read_attribute(node, "pads") or ()) or read_attribute(node, "auto_pad", "NOTSET") not in {
        "NOTSET",
        "VALID",
    }


def _softmax(node: Any, x: Any) -> tuple[Any, ...]:
    """Before opset 13: over all axes from ``axis`` on, as one."""
    import numpy as np

    axis = int(read_attribute(node, "axis", 1))
    axis += x.ndim if axis < 0 else 0
    flat = x.reshape(int(np.prod(x.shape[:axis], dtype=np.int64)), -1)
    if node.op_type == "Hardmax":
        found = np.zeros_like(flat)
        found[np.arange(flat.shape[0]), flat.argmax(axis=1)] = 1
        return (found.reshape(x.shape),)
    shifted = flat - flat.max(axis=1, keepdims=True)
    total = np.exp(shifted).sum(axis=1, keepdims=True)
    found = shifted - np.log(total) if node.op_type == "LogSoftmax" else np.exp(shifted) / total
    return (found.reshape(x.shape).astype(x.dtype),)


def _batch_normalization(node: Any, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> tuple[Any, ...]:
    """With the statistics that are given: before opset 14, one output means inference."""
    import numpy as np

    shape = (1, *x.shape[1:]) if not read_attribute(node, "spatial", 1) else (1, -1, *(1,) * (x.ndim - 2))
    scale, bias, mean, var = (each.reshape(shape) for each in (scale, bias, mean, var))
    epsilon = float(read_attribute(node, "epsilon", 1e-5))
    return ((scale * (x - mean) / np.sqrt(var + epsilon) + bias).astype(x.dtype),)


def _dilated(node: Any, x: Any, weight: Any, bias: Any = None) -> tuple[Any, ...]:
    """Return a convolution whose kernel has gaps. onnx.reference fills them with zeros and unfolds the input as often
    as the filled kernel is long: 30 GB for a kernel of 3 with a dilation of 4096. """
    import numpy as np

    rank = x.ndim - 2
    kernel = weight.shape[2:]
    strides = tuple(read_attribute(node, "strides") or (1,) * rank)
    dilations = tuple(read_attribute(node, "dilations"))
    groups = int(read_attribute(node, "group", 1))
    spans = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    pads = read_attribute(node, "pads") or (0,) * 2 * rank
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    sizes = [(full - span) // step + 1 for full, span, step in zip(padded.shape[2:], spans, strides, strict=True)]
    split = weight.reshape(groups, -1, *weight.shape[1:])
    found = np.zeros((x.shape[0], groups, split.shape[1], *sizes), x.dtype)
    everything = (slice(None), slice(None))
    for place in np.ndindex(*kernel):
        starts = [index * step for index, step in zip(place, dilations, strict=True)]
        window = tuple(
            slice(start, start + (size - 1) * step + 1, step)
            for start, size, step in zip(starts, sizes, strides, strict=True)
        )
        kept = (*everything, slice(None), *place)
        part = padded[everything + window].reshape(x.shape[0], groups, -1, *sizes)
        found += np.einsum("goi,ngi...->ngo...", split[kept], part)
    found = found.reshape(x.shape[0], -1, *sizes)
    return (found if bias is None else found + bias.reshape(1, -1, *(1,) * rank),)


def _dequantise(node: Any, x: Any, scale: Any, zero: Any = 0) -> tuple[Any, ...]:
    """Before opset 19, of which onnx.reference has none: one scale, or one for each place along ``axis``."""
    import numpy as np

    if np.size(scale) > 1:
        shape = [1] * x.ndim
        shape[int(read_attribute(node, "axis", 1))] = -1
        scale, zero = scale.reshape(shape), np.reshape(zero, shape if np.size(zero) > 1 else ())
    return ((np.subtract(x, zero, dtype=np.float64) * scale).reshape(x.shape).astype(scale.dtype),)


def _global_max_pool(_: Any, x: Any) -> tuple[Any, ...]:
    return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


def _local_response_normalization(node: Any, x: Any) -> tuple[Any, ...]:
    import numpy as np

    size, channels = int(read_attribute(node, "size")), x.shape[1]
    squares = np.square(x)
    sums = np.zeros_like(x)
    for channel in range(channels):
        begin, end = max(0, channel - (size - 1) // 2), min(channels, channel + size // 2 + 1)
        sums[:, channel] = squares[:, begin:end].sum(axis=1)
    alpha, beta = float(read_attribute(node, "alpha", 1e-4)), float(read_attribute(node, "beta", 0.75))
    return ((x / (float(read_attribute(node, "bias", 1.0)) + alpha / size * sums) ** beta).astype(x.dtype),)


def _lp_normalization(node: Any, x: Any) -> tuple[Any, ...]:
    import numpy as np

    axis, order = int(read_attribute(node, "axis", -1)), int(read_attribute(node, "p", 2))
    norm = np.power(np.power(np.abs(x), order).sum(axis=axis, keepdims=True), 1.0 / order)
    return (np.divide(x, norm, out=np.zeros_like(x), where=norm != 0),)


_RIGHT: dict[str, Compute] = {
    "GlobalMaxPool": _global_max_pool,
    "LRN": _local_response_normalization,
    "LpNormalization": _lp_normalization,
}
