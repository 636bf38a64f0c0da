"""Static (QDQ) and dynamic int8 with onnxruntime.quantization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from precision_debug.errors import InputError, ModelError, UsageError
from precision_debug.protocols import Feeds

from ..graph import all_graphs
from ..model import Model, name_nodes
from ..options import flag, one_of, texts
from ..quiet import quietly
from ..runtime import Runtime, our_errors
from .dump import dump

__all__ = ["quantise"]

_PER_CHANNEL = 13
_METHODS = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile", "distribution": "Distribution"}
_TYPES = {
    "int8": "QInt8",
    "uint8": "QUInt8",
    "int16": "QInt16",
    "uint16": "QUInt16",
    "int4": "QInt4",
    "uint4": "QUInt4",
}


def quantise(
    source: Model, change: str, runtime: Runtime, feeds: Sequence[Feeds], folder: Path
) -> tuple[Model, tuple[str, ...]]:
    """The quantised model and what the reader must know of it.

    Constants are folded first (ONNX Runtime's basic optimisations), as its own guide asks. Options: "calibration"
    ("minmax", "entropy", "percentile", "distribution"), "activation_type", "weight_type", "per_channel",
    "reduce_range", "nodes_to_exclude", "op_types". Raises UsageError, InputError, ModelError or BackendError.
    """
    settings = _Settings(runtime.settings, source)
    prepared = dump(source, runtime, folder, "basic")
    _mark_prepared(prepared)
    path, result = folder / "before_quantisation.onnx", folder / "quantised.onnx"
    path.write_bytes(prepared.proto.SerializeToString())
    with our_errors(source.path, "the model cannot be quantised by onnxruntime.quantization"), quietly(folder):
        if change == "int8":
            _static(path, result, settings, feeds)
        else:
            _dynamic(path, result, settings)
    return _read(result, source), settings.notes(change, len(feeds))


class _Settings:
    """The user's options, checked."""

    def __init__(self, options: Mapping[str, Any], source: Model) -> None:
        self.method = one_of("calibration", options.get("calibration", "minmax"), _METHODS)
        self.activation = one_of("activation_type", options.get("activation_type", "int8"), _TYPES)
        self.weight = one_of("weight_type", options.get("weight_type", "int8"), _TYPES)
        self.per_channel = options.get("per_channel")
        self.opset = max((item.version for item in source.proto.opset_import if not item.domain), default=0)
        self.reduce_range = flag("reduce_range", options.get("reduce_range", False))
        self.exclude = texts(options.get("nodes_to_exclude"))
        self.op_types = texts(options.get("op_types"))
        nodes = {node.name for graph in all_graphs(source.proto.graph) for node in graph.node}
        for name in self.exclude:
            if name not in nodes:
                raise UsageError(f"the model has no node {name}", where="nodes_to_exclude")

    def notes(self, change: str, count: int) -> tuple[str, ...]:
        weights = "per channel" if self._channels(change) else "per tensor"
        if change == "int8_dynamic":
            return (
                f"dynamic quantisation: weights {self.weight} {weights}, activations uint8 by each run's own range",
            )
        if self.per_channel is None and self.opset < _PER_CHANNEL:
            weights += f" (per channel needs opset {_PER_CHANNEL}, the model has {self.opset})"
        sets = "1 sample set" if count == 1 else f"{count} sample sets"
        return (
            f"quantised by onnxruntime.quantization (QDQ): activations {self.activation}, weights {self.weight} "
            f"{weights}, ranges by {self.method} over {sets}",
        )

    def _channels(self, change: str) -> bool:
        if self.per_channel is None:
            return change == "int8" and self.opset >= _PER_CHANNEL
        return flag("per_channel", self.per_channel)

    def common(self, change: str) -> dict[str, Any]:
        from onnxruntime import quantization

        return {
            "op_types_to_quantize": list(self.op_types) or None,
            "per_channel": self._channels(change),
            "reduce_range": self.reduce_range,
            "weight_type": getattr(quantization.QuantType, _TYPES[self.weight]),
            "nodes_to_exclude": list(self.exclude),
            "use_external_data_format": True,
        }


def _static(path: Path, result: Path, settings: _Settings, feeds: Sequence[Feeds]) -> None:
    from onnxruntime import quantization

    if not feeds:
        raise InputError("static quantisation needs inputs to calibrate on", where="ort_int8", hint="give --inputs")
    quantization.quantize_static(
        str(path),
        str(result),
        _Reader(feeds),
        quant_format=quantization.QuantFormat.QDQ,
        activation_type=getattr(quantization.QuantType, _TYPES[settings.activation]),
        calibrate_method=getattr(quantization.CalibrationMethod, _METHODS[settings.method]),
        **settings.common("int8"),
    )


def _dynamic(path: Path, result: Path, settings: _Settings) -> None:
    from onnxruntime import quantization

    quantization.quantize_dynamic(str(path), str(result), **settings.common("int8_dynamic"))


class _Reader:
    """Hands the calibrator one sample set after the other (onnxruntime.quantization.CalibrationDataReader)."""

    def __init__(self, feeds: Sequence[Feeds]) -> None:
        self._feeds = feeds
        self._left = iter(feeds)

    def get_next(self) -> dict[str, Any] | None:
        return next((dict(feed) for feed in self._left), None)

    def set_range(self, start_index: int, end_index: int) -> None:
        self._left = iter(self._feeds[start_index:end_index])

    def __len__(self) -> int:
        return len(self._feeds)

    def __iter__(self) -> _Reader:
        return self

    def __next__(self) -> dict[str, Any]:
        feed = self.get_next()
        if feed is None:
            raise StopIteration
        return feed


def _mark_prepared(model: Model) -> None:
    # before version 4 every constant had to be an input as well, which the quantiser's own constants are not
    model.proto.ir_version = max(model.proto.ir_version, 4)
    entry = model.proto.metadata_props.add()
    entry.key, entry.value = "onnx.quant.pre_process", "onnxruntime.quant"


def _read(path: Path, source: Model) -> Model:
    import onnx

    proto = onnx.load(str(path), load_external_data=False)
    if not any(node.op_type in _SIGNS for graph in all_graphs(proto.graph) for node in graph.node):
        raise ModelError(
            "nothing in it could be quantised", where=source.path, hint="choose other op_types, or another run mode"
        )
    for graph in all_graphs(proto.graph):
        name_nodes(graph)
    return Model(proto=proto, folder=path.parent, path=source.path)


_SIGNS = frozenset(
    {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "DynamicQuantizeLSTM"}
)
