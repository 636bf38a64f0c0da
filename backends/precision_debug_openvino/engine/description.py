"""Describe an OpenVINO model, and which of its operators a device takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from precision_debug.errors import ModelError
from precision_debug.numbers.arrays import measure_span
from precision_debug.protocols import Refused, Survey
from precision_debug.protocols.description import DescribedLayer, DescribedWeight, Description
from precision_debug.records import InputMeta, ModelFiles, SessionSpec

from ..failures import reading
from ..model import read_inputs, read_model
from ..naming import dtype_of, numpy_name, port_name, shape_of
from ..settings import setting

__all__ = ["describe", "survey"]


# What an OpenVINO model holds, as its importer reads it, before anything is fused.

_CONSTANT = "Constant"


def describe(path: str) -> Description:
    """See ``protocols.Describer``."""
    model = read_model(SessionSpec(model=ModelFiles(model_file=path), mode="ov_fp32"))
    try:
        return _description(model)
    except UnicodeDecodeError as error:  # OpenVINO takes names that are not text
        raise ModelError(f"is damaged: {error}", where=path, hint="convert it again") from error


def _description(model: Any) -> Description:
    import openvino

    ops = model.get_ordered_ops()
    return Description(
        format=f"OpenVINO model, read by OpenVINO {openvino.__version__.partition('-')[0]}",
        inputs=read_inputs(model),
        outputs=[InputMeta(name=port_name(p), dtype=dtype_of(p), shape=shape_of(p)) for p in model.outputs],
        layers=list(_layers(ops)),
        weights=list(_weights(ops)),
    )


def _layers(ops: Sequence[Any]) -> Iterator[DescribedLayer]:
    for op in ops:
        kind = str(op.get_type_name())
        if kind in {_CONSTANT, "Parameter", "Result"}:
            continue
        yield DescribedLayer(
            op_type=kind,
            name=str(op.get_friendly_name()),
            inputs=tuple(port_name(port.get_source_output()) for port in op.inputs()),
            outputs=tuple(port_name(port) for port in op.outputs()),
            attributes={str(key): str(value) for key, value in op.get_attributes().items()},
        )


def _weights(ops: Sequence[Any]) -> Iterator[DescribedWeight]:
    for op in ops:
        if op.get_type_name() == _CONSTANT:
            low, high, lost = measure_span(op.data)
            yield DescribedWeight(
                name=str(op.get_friendly_name()), dtype=numpy_name(op.get_element_type().get_type_name()),
                shape=tuple(op.get_output_shape(0)), low=low, high=high, non_finite=lost,
            )  # fmt: skip


# Which operators of a model OpenVINO's device takes, as its plugin says.

def survey(spec: SessionSpec) -> Survey:
    """See ``protocols.Surveyor``."""
    import openvino

    core = openvino.Core()
    model = read_model(spec)
    device = str(setting(spec.options, "device") or "CPU")
    with reading(spec.model.path):
        taken = core.query_model(model, device)
    ops = [op for op in model.get_ordered_ops() if op.get_type_name() not in {"Constant", "Parameter", "Result"}]
    names = {str(op.get_friendly_name()): str(op.get_type_name()) for op in ops}
    return Survey(
        engine=f"OpenVINO {openvino.__version__.partition('-')[0]} on {device}",
        taken=dict(Counter(kind for name, kind in names.items() if name in taken)),
        refused=[Refused(name=name, op_type=kind) for name, kind in names.items() if name not in taken],
    )
