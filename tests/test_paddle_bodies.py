"""Values inside the loops and branches of a legacy Paddle program, beside what numpy computes of the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import paddle_models
import pytest

pytest.importorskip("paddle", reason="paddlepaddle is not installed")

from precision_debug_paddle import modes
from precision_debug_paddle.engine.bodies import (
    _flag,
    _float,
    _int,
    _make_full,
    make_operator,
    make_variable,
    with_bodies,
)
from precision_debug_paddle.engine.legacy_program import fetch_of, read_legacy
from precision_debug_paddle.model import read_model

import precision_debug
from precision_debug import Report, Status
from precision_debug.onnx import wire
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


@pytest.mark.parametrize(
    "mode",
    [
        "cpu_opt",
        pytest.param("onednn_fp32", marks=pytest.mark.slow),
        pytest.param("onednn_bf16", marks=[BF16, pytest.mark.slow]),
    ],
)
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


@pytest.mark.slow
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


def nested(folder: Path) -> Path:
    """y = x before two turns of a loop; in turn i an inner loop adds x to it i + 1 times, and a branch doubles it where
    i is odd. Built of operators, as Paddle 3 no longer writes this format.
    """

    def op(kind: str, inputs: Any, outputs: Any, *attributes: Any) -> Any:
        return make_operator(kind, inputs, outputs, list(attributes))

    def add(one: str, other: str, to: str) -> Any:
        return op("elementwise_add", {"X": [one], "Y": [other]}, {"Out": [to]}, _int("axis", -1))

    def less(one: str, other: str, to: str) -> Any:
        return op("less_than", {"X": [one], "Y": [other]}, {"Out": [to]}, _int("axis", -1))

    def assign(one: str, to: str) -> Any:
        return op("assign", {"X": [one]}, {"Out": [to]})

    def block(number: int, parent: int, fields: list[Any]) -> Any:
        return wire.encode_text(
            1, wire.join_message([wire.encode_number(1, number), wire.encode_number(2, parent % (1 << 64)), *fields])
        )

    def body(number: int) -> Any:
        return wire.encode_text(
            4,
            wire.join_message(
                [wire.encode_text(1, "sub_block"), wire.encode_number(2, 8), wire.encode_number(12, number)]
            ),
        )

    def scopes(name: str) -> Any:
        about = wire.join_message([wire.encode_number(1, 11)])
        return wire.encode_text(
            3, wire.join_message([wire.encode_text(1, name), wire.encode_text(2, about), wire.encode_number(3, 0)])
        )

    def held(name: str, kind: int) -> Any:
        about = wire.join_message([wire.encode_number(1, kind)])
        return wire.encode_text(
            3, wire.join_message([wire.encode_text(1, name), wire.encode_text(2, about), wire.encode_number(3, 1)])
        )

    numbers = ["i", "j", "two", "one", "limit"]
    main = [
        held("feed", 9), held("fetch", 10), *(make_variable(name, 5, [2, 3]) for name in ("x", "y", "out")),
        *(make_variable(name, 2, [1]) for name in numbers), make_variable("go", 0, [1]), scopes("s0"),
        op("feed", {"X": ["feed"]}, {"Out": ["x"]}, _int("col", 0)),
        *(_make_full(name, 2, value) for name, value in (("i", 0), ("two", 2), ("one", 1))),
        assign("x", "y"), less("i", "two", "go"),
        op("while", {"Condition": ["go"], "X": ["x", "y", "i", "one", "two"]},
           {"Out": ["y", "i", "go"], "StepScopes": ["s0"]}, body(1), _flag("is_test", on=True)),
        op("scale", {"X": ["y"]}, {"Out": ["out"]}, _float("scale", 1.0), _float("bias", 0.0)),
        wire.encode_text(4, fetch_of("out", 0)),
    ]  # fmt: skip
    outer = [
        *(make_variable(name, 2, [1]) for name in ("j", "limit", "next")), make_variable("inside", 0, [1]),
        scopes("s1"),
        make_variable("odd", 0, [1]), scopes("s2"), make_variable("more", 0, [1]),
        _make_full("j", 2, 0), add("i", "one", "limit"), less("j", "limit", "inside"),
        op("while", {"Condition": ["inside"], "X": ["x", "y", "j", "one", "limit"]},
           {"Out": ["y", "j", "inside"], "StepScopes": ["s1"]}, body(2), _flag("is_test", on=True)),
        op("equal", {"X": ["i"], "Y": ["one"]}, {"Out": ["odd"]}, _int("axis", -1)),
        op("conditional_block", {"Cond": ["odd"], "Input": ["y"]}, {"Out": ["y"], "Scope": ["s2"]}, body(3),
           _flag("is_scalar_condition", on=True)),
        add("i", "one", "next"), assign("next", "i"), less("i", "two", "more"), assign("more", "go"),
    ]  # fmt: skip
    inner = [
        make_variable("sum", 5, [2, 3]), make_variable("step", 2, [1]), make_variable("again", 0, [1]),
        add("y", "x", "sum"), assign("sum", "y"), add("j", "one", "step"), assign("step", "j"),
        less("j", "limit", "again"), assign("again", "inside"),
    ]  # fmt: skip
    branch = [
        make_variable("doubled", 5, [2, 3]),
        op("scale", {"X": ["y"]}, {"Out": ["doubled"]}, _float("scale", 2.0), _float("bias", 0.0)),
        assign("doubled", "y"),
    ]
    path = folder / "nested.pdmodel"
    path.write_bytes(
        wire.join_message([block(0, -1, main), block(1, 0, outer), block(2, 1, inner), block(3, 1, branch)])
    )
    path.with_suffix(".pdiparams").write_bytes(b"")
    return path


def test_bodies_in_bodies_count_their_own_turns(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3) + 1
    report = precision_debug.compare(
        nested(tmp_path), run_mode="cpu_opt", baseline="cpu_fp32", inputs={"x": x}, explain="off", atol=0, rtol=0
    )
    highest = {row.name: row.comparison.target.max for row in report.rows if row.comparison is not None}
    # y: 1 x; turn 0: 2 x; turn 1: 3 x, 4 x, doubled to 8 x
    expected = {"sum@0": 2, "sum@1": 3, "sum@2": 4, "doubled@0": 8, "out": 8}
    assert {name: highest[name] / 6 for name in expected} == expected
    assert highest["limit@1"] == 2
    assert "sum@3" not in highest
