"""Values inside the loops and branches of a PIR program, beside what numpy computes of the weights."""

# ruff: noqa: E402

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from approval import is_approved

paddle = pytest.importorskip("paddle", reason="paddlepaddle is not installed")
if not hasattr(paddle, "pir"):
    pytest.skip("this Paddle has no PIR", allow_module_level=True)

from precision_debug_paddle import modes
from precision_debug_paddle.engine.pir_blocks import Call, Reader
from precision_debug_paddle.engine.pir_program import read_pir

import precision_debug
from precision_debug import Report, Status

ONEDNN = pytest.mark.skipif(not modes.availability("onednn_fp32").ok, reason="this Paddle has no oneDNN")
BF16 = pytest.mark.skipif(
    not modes.availability("onednn_bf16").ok, reason=f"onednn_bf16 {modes.availability('onednn_bf16').needs}"
)
X = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)


class Decoder(paddle.nn.Layer):  # type: ignore[misc, name-defined, unused-ignore]
    """Greedy: the token that a step finds is what the next one reads; a branch behind the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.first = paddle.nn.Embedding(11, 8), paddle.nn.Linear(8, 8)
        self.cell, self.last = paddle.nn.Linear(16, 8), paddle.nn.Linear(8, 11)

    def forward(self, x: Any) -> Any:
        state = paddle.tanh(self.first(x))
        token = paddle.zeros([x.shape[0]], dtype="int64")
        step = paddle.zeros([1], dtype="int64")
        logits = paddle.zeros([x.shape[0], 11])
        while step < 4:
            state = paddle.tanh(self.cell(paddle.concat([self.table(token), state], axis=-1)))
            logits = self.last(state)
            token = paddle.argmax(logits, axis=-1)
            step = step + 1
        if logits.mean() > 0:  # noqa: SIM108
            found = logits * 2
        else:
            found = logits - 1
        return paddle.nn.functional.softmax(found), token


class Nested(paddle.nn.Layer):  # type: ignore[misc, name-defined, unused-ignore]
    """A loop in a loop, and a branch in it that every other iteration takes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = paddle.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        outer = paddle.zeros([1], dtype="int64")
        while outer < 3:
            step = paddle.zeros([1], dtype="int64")
            while step < 2:
                x = paddle.tanh(self.inner(x))
                step = step + 1
            if outer % 2 == 0:  # noqa: SIM108
                x = x * 3
            else:
                x = x - 0.5
            outer = outer + 1
        return x + 1


def saved(layer: Any, folder: Path) -> str:
    random = np.random.default_rng(1)
    for parameter in layer.parameters():
        parameter.set_value(random.normal(scale=0.5, size=parameter.shape).astype(np.float32))
    layer.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec = [paddle.static.InputSpec([2, 8], "float32", name="x")]
        paddle.jit.save(layer, str(folder / "net"), input_spec=spec)
    return str(folder / "net.json")


def weights(layer: Any) -> list[np.ndarray]:
    return [parameter.numpy().astype(np.float64) for parameter in layer.parameters()]


def decoded(layer: Any) -> dict[str, np.ndarray]:
    """Every value of the loop, in float64."""
    table, w, b, cell, cell_b, last, last_b = weights(layer)
    found: dict[str, np.ndarray] = {}
    state, token = np.tanh(X @ w + b), np.zeros(2, np.int64)
    for turn in range(4):
        found[f"embedding_0@{turn}"] = table[token]
        both = found[f"concat_0@{turn}"] = np.concatenate([table[token], state], -1)
        found[f"matmul_1@{turn}"] = both @ cell
        found[f"add_1@{turn}"] = both @ cell + cell_b
        state = found[f"tanh_1@{turn}"] = np.tanh(both @ cell + cell_b)
        found[f"matmul_2@{turn}"] = state @ last
        logits = found[f"add_2@{turn}"] = state @ last + last_b
        token = found[f"argmax_0@{turn}"] = logits.argmax(-1)
    return found


def compared(path: str, mode: str, tolerance: float = 1e-4, **options: str) -> Report:
    return precision_debug.compare(
        path, run_mode=mode, baseline="cpu_fp32", inputs={"x": X}, explain="off", atol=tolerance, rtol=tolerance,
        **options,
    )  # fmt: skip


def bare(name: str) -> str:
    """Without the layer's path, which the name of a value has between its number and its iteration."""
    head, _, tail = name.partition("@")
    return f"{head}@{tail.rpartition('@')[2]}" if tail.rpartition("@")[2].isdigit() else head


@pytest.mark.parametrize(
    ("mode", "fused"),
    [
        ("cpu_fp32", frozenset[str]()),
        ("cpu_opt", frozenset[str]()),
        pytest.param("onednn_fp32", frozenset({"matmul_1", "add_1", "matmul_2"}), marks=ONEDNN),
        pytest.param("onednn_bf16", frozenset({"matmul_1", "add_1", "matmul_2"}), marks=BF16),
    ],
)
def test_a_decoder_is_compared_in_every_iteration(mode: str, fused: frozenset[str], tmp_path: Path) -> None:
    layer = Decoder()
    path = saved(layer, tmp_path)
    report = compared(path, mode, 0.1 if mode == "onednn_bf16" else 1e-4)
    rows = {bare(row.name): row for row in report.rows}
    wrong = []
    for name, value in decoded(layer).items():
        row, numbers = rows[name], rows[name].comparison
        if name.partition("@")[0] in fused:
            assert row.status is Status.FUSED_AWAY, (name, row.status, row.reason)
            continue
        assert numbers is not None, (name, row.reason)
        sides = (numbers.base, numbers.target) if mode != "onednn_bf16" else (numbers.base,)
        for side in sides:
            if not np.allclose([side.min, side.max], [value.min(), value.max()], rtol=1e-4, atol=1e-5):
                wrong.append((name, side.min, side.max, value.min(), value.max()))
    assert not wrong
    assert all(row.comparison is not None for row in report.outputs)
    order = [bare(row.name) for row in report.rows if row.comparison is not None]
    assert order.index("tanh_1@0") < order.index("embedding_0@1") < order.index("tanh_1@1") < order.index("if_0")


@pytest.mark.parametrize("mode", ["cpu_fp32", "cpu_opt"])
def test_loops_in_loops_and_branches_in_them(mode: str, tmp_path: Path) -> None:
    layer = Nested()
    rows = {bare(row.name): row for row in compared(saved(layer, tmp_path), mode).rows}
    w, b = weights(layer)
    state = X.astype(np.float64)
    for outer in range(3):
        for step in range(2):
            state = np.tanh(state @ w + b)
            name = f"tanh_0@{2 * outer + step}"
            numbers = rows[name].comparison
            assert numbers is not None, (name, rows[name].reason)
            np.testing.assert_allclose([numbers.target.min, numbers.target.max], [state.min(), state.max()], rtol=1e-4)
        state = state * 3 if outer % 2 == 0 else state - 0.5
        taken = [row for key, row in rows.items() if key.startswith("scale_") and key.endswith(f"@{outer}")
                 and row.comparison is not None and row.comparison.base.shape == state.shape]  # fmt: skip
        assert len(taken) == 1
        assert taken[0].comparison is not None
        np.testing.assert_allclose(taken[0].comparison.target.max, state.max(), rtol=1e-4)


def test_an_iteration_that_is_wrong_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are the target's own numbers: those of one iteration are changed on their way."""
    from precision_debug_paddle.engine import pir_bodies

    true = pir_bodies.PirBodies.run

    def run(self: Any, feeds: Any) -> Iterator[tuple[str, str, Any]]:
        for name, full, array in true(self, feeds):
            wrong = full == "tanh_1@2" and self._changed
            yield name, full, array + np.float32(0.5) if wrong else array

    monkeypatch.setattr(pir_bodies.PirBodies, "run", run)
    report = compared(saved(Decoder(), tmp_path), "cpu_opt")
    assert [row.name for row in report.rows if row.status is Status.FAIL] == ["tanh_1@2"]


def test_more_values_than_are_allowed_are_not_called_a_misfit(tmp_path: Path) -> None:
    path = saved(Decoder(), tmp_path)
    report = compared(path, "cpu_opt", fetch_bytes="1000")
    inside = [row for row in report.rows if row.reason is not None and "control-flow" in str(row.reason)]
    assert inside
    assert all("takes over 1000 bytes" in str(row.reason) for row in inside)
    assert not [row for row in compared(path, "cpu_opt").rows if "fetch_bytes" in str(row.reason)]


def test_what_does_not_fit_the_program_is_said(tmp_path: Path) -> None:
    root = read_pir(Path(saved(Decoder(), tmp_path))).blocks()
    reader = Reader(root)
    calls = [Call(op_type="pd_op.tanh:0", variable="a_inner_var_1", array=np.zeros(2, np.float32))]
    assert list(reader.items(calls)) == []
    assert is_approved(reader.problem)
