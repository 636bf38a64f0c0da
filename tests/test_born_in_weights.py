"""NaN and Inf that a model's own weights hold: nothing is said of inputs that were not looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from approval import holds_approved

from precision_debug import compare
from precision_debug.claims import State
from precision_debug.report.lead import lead_sentences

onnx = pytest.importorskip("onnx", reason="needs onnx")
pytest.importorskip("onnxruntime", reason="needs onnxruntime")


@pytest.mark.parametrize(("held", "called"), [(np.inf, "Inf"), (np.nan, "NaN")])
def test_an_operator_is_not_said_to_read_none_of_what_its_weights_hold(held: float, called: str) -> None:
    from onnx_models import model, value

    make: Any = onnx.helper.make_node
    proto = model([make("MatMul", ["x", "w"], ["t"]), make("Relu", ["t"], ["y"])], [value("x", [2, 3])],
                  [value("y", [2, 3])])  # fmt: skip
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.full((3, 3), held, np.float32), "w"))
    onnx.save(proto, "m.onnx")
    report = compare("m.onnx", run_mode="ort_opt", inputs={"x": np.ones((2, 3), np.float32)})
    first, said, *_ = (text.en for text in lead_sentences(report))
    whys = [claim.why for claim in report.claims if claim.state is State.REFUTED]
    assert [why.code for why in whys if why is not None] == ["output_non_finite"]
    assert "MatMul `t`" in first
    assert said.startswith(f"MatMul `t` makes the {called} of `y`")
    assert "inputs that have none" not in said
    assert holds_approved(said)
