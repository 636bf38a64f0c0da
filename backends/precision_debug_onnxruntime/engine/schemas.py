"""What ONNX Runtime states of its own operators' attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from precision_debug.onnx.types import Schemas

__all__ = ["read_schemas"]


def read_schemas() -> Schemas:
    """Return the defaults of operators that the standard does not have; empty where ONNX Runtime or onnx is not
    installed, or it says nothing."""
    try:
        from onnx import AttributeProto
        from onnxruntime.capi import onnxruntime_pybind11_state as runtime

        known = [one for one in runtime.get_all_operator_schema() if one.domain not in ("", "ai.onnx")]
        return {(one.domain, one.name): {key: AttributeProto.FromString(value._default_value) for key, value in
                                         one.attributes.items()} for one in known}  # fmt: skip
    except (ImportError, AttributeError):
        return {}
