"""Which operators of a model OpenVINO's device takes, as its plugin says."""

from __future__ import annotations

from collections import Counter

from precision_debug.protocols import Refused, Survey
from precision_debug.records import SessionSpec

from ..failures import reading
from ..model import read_model
from ..settings import setting

__all__ = ["survey"]


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
