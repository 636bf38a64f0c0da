"""Makes a rebuilt engine compute as the real one does: its precisions layer by layer, and its tactics.

Marking tensors changes what is fastest. Left alone, TensorRT 8.6 rebuilt a small FP16 engine wholly in FP32, so that
its table showed no error at all. Precisions of the real engine are therefore preferred in the rebuilt one; TF32 cannot
be asked for layer by layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from precision_debug.inspector import EngineLayer, is_opaque, real_precision

from ..naming import LayerIndex
from .kept import is_silent
from .network import LayerFacts
from .versions import Api

__all__ = ["imitate", "precisions_of"]

_ASKED = {"FP16": "FP16", "BF16": "BF16", "FP32": "FP32", "TF32": "FP32", "INT8": "INT8"}
_MULTIPLIES = frozenset({"CONVOLUTION", "DECONVOLUTION", "FULLY_CONNECTED", "MATRIX_MULTIPLY"})


def precisions_of(network: Sequence[LayerFacts], engine: Sequence[EngineLayer]) -> dict[str, str]:
    """Layer of the network to the precision that the engine gave it, where the engine tells one.

    INT8 only where values are multiplied, since the engine does not quantise what is fused behind that on its way; and
    not with QDQ, which says it itself.
    """
    explicit = any(layer.type in {"QUANTIZE", "DEQUANTIZE"} for layer in network)
    index = LayerIndex(engine)
    found = {}
    for layer in network:
        names = [output.name for output in layer.outputs] or [""]
        there = index.find(names[0], layer.name)
        if there is None or is_opaque(there):
            continue
        precision = _ASKED.get(real_precision(there)[0], "")
        if precision and (precision != "INT8" or (layer.type in _MULTIPLIES and not explicit)):
            found[layer.name] = precision
    return found


def imitate(api: Api, network: Any, config: Any, precisions: Mapping[str, str]) -> int:
    """Prefer these precisions for layers that nobody asked something of; how many they are."""
    count = 0
    for place in range(network.num_layers):
        layer = network.get_layer(place)
        wanted = precisions.get(layer.name, "")
        if wanted and not layer.precision_is_set and not is_silent(layer):
            layer.precision = api.data_type(wanted)
            count += 1
    flags = api.trt.BuilderFlag
    if count and not config.get_flag(flags.OBEY_PRECISION_CONSTRAINTS):
        config.set_flag(flags.PREFER_PRECISION_CONSTRAINTS)
    return count
