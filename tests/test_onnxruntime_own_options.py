"""ONNX Runtime's session options in its own words: they reach the target, and one that it would ignore is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx_models
import pytest

from precision_debug import compare
from precision_debug.errors import UsageError


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "m.onnx"
    path.write_bytes(onnx_models.mlp().SerializeToString())
    return str(path)


@pytest.mark.parametrize(
    "options",
    [
        {"session.set_denormal_as_zero": "1"},
        {"config": "session.set_denormal_as_zero=1,enable_mem_pattern=0"},
        {"graph_optimization_level": "basic"},
        {"execution_mode": "ORT_PARALLEL", "inter_op_num_threads": "2"},
        {"baseline.config": {"session.set_denormal_as_zero": "1"}},
    ],
)
def test_what_it_reads_is_handed_on(model: str, options: dict[str, Any]) -> None:
    report = compare(model, run_mode="ort_opt", **options)
    assert report.exit_status == 0
    assert dict(report.spec.options) == options


def test_a_level_of_optimisation_decides_what_is_fused(model: str) -> None:
    def fused(**options: Any) -> int:
        return sum(row.status.value == "fused away" for row in compare(model, run_mode="ort_opt", **options).rows)

    assert fused(graph_optimization_level="ORT_DISABLE_ALL") < fused()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"session.no_such_entry": "1"}, "session.no_such_entry"),
        ({"config": {"enable_mem_pattern": "perhaps"}}, "enable_mem_pattern"),
        ({"graph_optimization_level": "most"}, "ORT_ENABLE_ALL"),
        ({"inter_op_num_threads": "two"}, "inter_op_num_threads"),
        ({"config": "session.set_denormal_as_zero"}, "KEY=VALUE"),
    ],
)
def test_what_it_would_ignore_is_refused(model: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        compare(model, run_mode="ort_opt", **options)
    assert said in str(caught.value)
