"""Values inside the loops and branches of a legacy Paddle program, beside what numpy computes of the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import paddle_models
import pytest

pytest.importorskip("paddle", reason="paddlepaddle is not installed")

from precision_debug_paddle import modes
from precision_debug_paddle.engine.bodies import with_bodies
from precision_debug_paddle.engine.legacy_program import read_legacy
from precision_debug_paddle.model import read_model

import precision_debug
from precision_debug import Report, Status
from precision_debug.records import ModelFiles

BF16 = pytest.mark.skipif(
    not modes.availability("onednn_bf16").ok, reason=f"onednn_bf16 {modes.availability('onednn_bf16').needs}"
)


def compared(mode: str, folder: Path) -> tuple[Report, dict[str, np.ndarray]]:
    weights: dict[str, np.ndarray] = {}
    path = paddle_models.legacy("loop", folder, change=weights.update)
    report = precision_debug.compare(
        path,
        run_mode=mode,
        baseline="cpu_fp32",
        inputs=paddle_models.feeds("loop"),
        explain="off",
        atol=1e-4,
        rtol=1e-4,
    )
    return report, weights


def expected(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every value of the loop and of the branch that is taken, in float64."""
    w, b = weights["linear_0.w_0"].astype(np.float64), weights["linear_0.b_0"].astype(np.float64)
    state = paddle_models.feeds("loop")["x"].astype(np.float64) @ w + b
    found: dict[str, np.ndarray] = {}
    for turn in range(3):
        found[f"linear_1.tmp_0@{turn}"] = state @ w
        found[f"linear_1.tmp_1@{turn}"] = state @ w + b
        state = found[f"tanh_0.tmp_0@{turn}"] = np.tanh(state @ w + b)
    taken = state.sum() > 0
    return {
        **found,
        **({"tmp_9": state * 2, "relu_0.tmp_0": np.maximum(state * 2, 0)} if taken else {"tmp_10": state - 1}),
    }


@pytest.mark.parametrize("mode", ["cpu_opt", "onednn_fp32", pytest.param("onednn_bf16", marks=BF16)])
def test_what_lies_in_a_body_is_compared_once_an_iteration_and_holds_what_numpy_computes(
    mode: str, tmp_path: Path
) -> None:
    report, weights = compared(mode, tmp_path)
    rows = {row.name: row for row in report.rows}
    for name, value in expected(weights).items():
        numbers = rows[name].comparison
        assert numbers is not None, rows[name].reason
        assert rows[name].status is Status.PASS
        for side in (numbers.base, numbers.target):
            np.testing.assert_allclose([side.min, side.max], [value.min(), value.max()], rtol=1e-4)
        assert numbers.max_abs < 1e-4
    order = [row.name for row in report.rows]
    places = [order.index(f"tanh_0.tmp_0@{turn}") for turn in range(3)]
    assert places == sorted(places)
    assert order.index("linear_1.tmp_0@1") > places[0], "one iteration after the other"
    if "linear_0.tmp_1@1" in order:
        assert places[-1] < order.index("linear_0.tmp_1@1"), "before what the loop gives"
    assert rows["linear_1.tmp_1@0"].inputs == ("linear_1.tmp_0@0",)
    assert rows["linear_1.tmp_0@2"].inputs == ("tanh_0.tmp_0@1",), "what the loop carried"
    skipped = "relu_0.tmp_0" if "tmp_10" in expected(weights) else "tmp_10"
    assert rows[skipped].status is Status.NOT_COMPARED
    assert "did not enter" in rows[skipped].reason


def test_every_value_of_a_program_with_bodies_has_a_row(tmp_path: Path) -> None:
    report, _ = compared("cpu_opt", tmp_path)
    names = {row.name.partition("@")[0] for row in report.rows}
    program = read_model(ModelFiles(model_file=str(tmp_path / "loop.pdmodel"))).program
    assert names >= {value.name.partition("@")[0] for value in program.values}


def test_a_copy_that_records_adds_readers_and_changes_nothing_that_was_there(tmp_path: Path) -> None:
    program = read_legacy(paddle_models.legacy("loop", tmp_path))
    recorder = with_bodies(program, tmp_path / "copy.pdmodel")
    assert recorder is not None
    assert recorder.loops == {
        **dict.fromkeys(["linear_1.tmp_0", "linear_1.tmp_1", "tanh_0.tmp_0", "tmp_4", "tmp_5", "tmp_6"], True),
        **dict.fromkeys(["tmp_9", "relu_0.tmp_0", "tmp_10"], False),
    }
    copy = read_legacy(tmp_path / "copy.pdmodel")
    for ours, theirs in zip(program.operators, copy.operators, strict=True):

        def plain(ops: Any) -> list[Any]:
            return [(op.type, [n for n in op.reads if not recorder.owns(n)]) for op in ops]  # type: ignore[union-attr]

        own = [op for op in theirs if not all(recorder.owns(n) for _, names in op.outputs for n in names)]
        assert plain(own) == plain(ours)
    assert with_bodies(read_legacy(paddle_models.legacy("mlp", tmp_path)), tmp_path / "none.pdmodel") is None
