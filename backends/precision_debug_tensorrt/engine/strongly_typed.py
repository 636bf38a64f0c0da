"""The precision written into an ONNX model: what a strongly typed network is built from.

FP16 and BF16: every node gets a type, its float inputs are cast to it, its outputs keep their names and have it; the
model's own inputs and outputs stay FP32. INT8: QuantizeLinear and DequantizeLinear, calibrated on the inputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from precision_debug.errors import BackendError, OutputError
from precision_debug.onnx.graph import iterate_graphs
from precision_debug.onnx.model import name_nodes
from precision_debug.ownership import guard_output
from precision_debug.reasons import Reason, list_some

from ..model import OnnxModel
from ..modes import Recipe
from ..reasons import say
from .casts import find_carriers, write_casts
from .constraints import Asked, match_layers
from .operator_types import count_types, find_integer_nodes, operator_types
from .options import Options

__all__ = ["make_typed_model", "save_typed"]


def make_typed_model(
    source: OnnxModel, recipe: Recipe, options: Options, feeds: Sequence[Mapping[str, Any]], folder: Path,
    kept_types: Collection[str] = (),
) -> tuple[OnnxModel, list[Reason], tuple[Asked, ...]]:  # fmt: skip
    """Return the model in the precision of the mode and of the layers that the user names; notes on what was done; what
    was asked of single layers.

    folder: an existing folder for temporary files. kept_types: operator types that stay in FP32 unless the user names
    them. Raises MarkError, ModelError or BackendError.
    """
    proto = source.model.proto
    notes: list[Reason] = []
    if recipe.precisions == ("INT8",) and not source.op_types & {"QuantizeLinear", "DequantizeLinear"}:
        proto = _quantise(source, feeds, folder, options.keep_layers)
        notes.append(say("qdq_written", count=len(feeds)))
    base = next((kind for kind in recipe.precisions if kind in {"FP16", "BF16"}), "FP32")
    names = [node.name for node in proto.graph.node]
    layers = match_layers(options.layer_precisions, names, where="--layer_precisions")
    layers = {**dict.fromkeys((name for name in options.keep_layers if name in set(names)), "FP32"), **layers}
    wanted = frozenset(layers)
    # a cast between DequantizeLinear and its reader would take the reader out of INT8
    others = [node.name for graph in iterate_graphs(proto.graph) for node in graph.node if node.op_type in kept_types]
    layers = {**dict.fromkeys([*others, *find_integer_nodes(proto)], "FP32"), **layers}
    types = operator_types(proto, {})
    if base != "FP32" or set(layers.values()) - {"FP32"}:
        written = write_casts(proto, base, layers, folder=source.model.folder)
        proto = written.proto
        added = len(find_carriers(proto.graph))
        notes.append(say("casts_written", type=base, count=added))
        if written.regardless:
            notes.append(say("stay_fp32", nodes=list_some(written.regardless, 6)))
        if written.unfit:
            notes.append(say("unfit_constants", type=base, nodes=list_some(written.unfit, 6)))
        types = operator_types(proto, written.types)
    if types:
        notes.append(say("typed_operators", kinds=count_types(types)))
    outputs = {node.name: node.output[0] for node in source.model.proto.graph.node if node.output}
    named = [name for name in layers if name in wanted]
    asked = tuple(Asked(layer=name, precision=layers[name], output=outputs.get(name, "")) for name in named)
    typed = dataclasses.replace(source, model=dataclasses.replace(source.model, proto=proto), types=types)
    return typed, notes, asked


def save_typed(model: Any, path: str) -> None:
    """Write a model with its weights where the user wants it; over 2 GB they go to ``path`` + ".data". OutputError."""
    import onnx

    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    try:
        onnx.load_external_data_for_model(proto, str(model.folder))
        large = sum(len(tensor.raw_data) for tensor in proto.graph.initializer) > 2_000_000_000
        beside = Path(f"{path}.data")
        with guard_output(path, beside):
            beside.unlink(missing_ok=True)  # onnx appends to it
            onnx.save_model(proto, path, save_as_external_data=large, location=beside.name)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputError(f"the model cannot be saved ({reason})", where=path, hint="name another file") from error


def _quantise(
    source: OnnxModel, feeds: Sequence[Mapping[str, Any]], folder: Path, kept: Sequence[str]
) -> Any:  # fmt: skip
    """Symmetric INT8 QDQ, as TensorRT takes it: activations per tensor, weights per channel, biases left alone."""
    import onnx

    try:
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    except ImportError as error:
        raise BackendError(
            f"INT8 for a model without QDQ needs onnxruntime ({error})", where=source.path,
            hint="pip install 'precision_debug[onnx]', or quantise the model first",
        ) from error  # fmt: skip

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._feeds = iter(feeds)

        def get_next(self) -> Any:
            feed = next(self._feeds, None)
            return None if feed is None else dict(feed)

    plain, done = folder / "before_int8.onnx", folder / "int8.onnx"
    embedded = onnx.ModelProto()
    embedded.CopyFrom(source.model.proto)
    try:
        onnx.load_external_data_for_model(embedded, str(source.model.folder))
        onnx.save(embedded, str(plain))
        quantize_static(
            str(plain), str(done), Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
            activation_type=QuantType.QInt8, weight_type=QuantType.QInt8, nodes_to_exclude=list(kept),
            extra_options={"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False},
        )  # fmt: skip
        proto = onnx.load(str(done))
    except Exception as error:
        raise BackendError(
            f"INT8 QDQ cannot be written: {error}", where=source.path, hint="quantise the model first"
        ) from error
    name_nodes(proto.graph)
    return proto
