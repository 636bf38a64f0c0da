"""Paddle's runs that go on with other values than they computed, and what a program says of its operators."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import paddle_models as models
import pytest

pytest.importorskip("paddle", reason="paddlepaddle is not installed")

from precision_debug_paddle import PaddleBackend

import precision_debug
from precision_debug.records import ModelFiles, SessionSpec

KINDS = [("pir", "cpu_fp32"), ("pir", "cpu_opt"), ("legacy", "cpu_fp32"), ("legacy", "cpu_opt")]


def opened(path: Path, mode: str, feeds: Mapping[str, Any], folder: Path, **options: Any) -> Any:
    spec = SessionSpec(model=ModelFiles(model_file=str(path)), mode=mode, options=options, work_dir=str(folder))
    return PaddleBackend().open(spec, [feeds])


@pytest.fixture(params=KINDS, ids=["_".join(kind) for kind in KINDS])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    kind, mode = request.param
    path = models.pir("cnn") if kind == "pir" else models.legacy("cnn", tmp_path)
    found = opened(path, mode, models.feeds("cnn"), tmp_path)
    yield found
    found.close()


def seen(session: Any, feeds: Any, put: Mapping[str, Any], names: Collection[str] | None = None) -> dict[str, Any]:
    """What a run shows in which some tensors are replaced; a tensor that is replaced as it was computed."""
    found: dict[str, Any] = {}

    def replace(_op: str, name: str, value: Any) -> Any:
        found[name] = np.array(value)
        return put.get(name)

    outputs = session.run_replacing(feeds, replace, names)
    return {**found, "": outputs}


def test_what_is_put_in_place_of_a_tensor_reaches_all_that_depends_on_it_and_nothing_else(session: Any) -> None:
    assert session.replacer is not None
    assert session.replaces
    feeds = models.feeds("cnn")
    before = feeds["x"].copy()
    plain: dict[str, Any] = {}
    outputs = session.run(feeds, lambda _op, name, tensor: plain.update({name: np.array(tensor)}))
    undisturbed = seen(session, feeds, {})
    assert [name for name in undisturbed if name] == [meta.name for meta in session.tensors if not meta.unseen]
    for name, array in plain.items():
        np.testing.assert_array_equal(array, undisturbed[name])
    for key, array in outputs.items():
        np.testing.assert_array_equal(array, undisturbed[""][key])
    inputs = {value.name: value.inputs for value in session._values.values()}  # of fused operators too
    for name, array in plain.items():
        got = seen(session, feeds, {name: array * 1.5 + 1})
        after = {name}
        for other, given in inputs.items():
            if after & set(given):
                after.add(other)
        changed = {other for other in plain if not np.array_equal(plain[other], got[other])}
        assert changed <= after - {name}
        readers = {other for other in plain if name in inputs[other]}
        assert readers & {other for other in readers if plain[other].size > 40} <= changed, name
        if not readers:
            assert any(not np.array_equal(got[""][key], array) for key, array in outputs.items())
    again = seen(session, feeds, {})
    for name, array in plain.items():
        np.testing.assert_array_equal(array, again[name])
    np.testing.assert_array_equal(feeds["x"], before)


def test_an_operator_computes_from_what_was_put_before_it(session: Any) -> None:
    feeds = models.feeds("cnn")
    plain = seen(session, feeds, {})
    add = next(m for m in session.tensors if m.op_type in ("add", "elementwise_add") and len(m.inputs) == 2)
    rng = np.random.default_rng(1)
    put = {name: rng.standard_normal(plain[name].shape).astype(np.float32) for name in add.inputs}
    got = seen(session, feeds, put, {add.name, *put})
    np.testing.assert_allclose(got[add.name], sum(put.values()), rtol=1e-6)
    assert set(got) == {add.name, *put, ""}


def test_a_program_too_large_to_fetch_at_once_is_replaced_in_one_run(tmp_path: Path) -> None:
    feeds = models.feeds("encoder")
    whole = opened(models.pir("encoder"), "cpu_fp32", feeds, tmp_path)
    parts = opened(models.pir("encoder"), "cpu_fp32", feeds, tmp_path, fetch_bytes="40000")
    assert parts.tensors  # planned when somebody asks
    assert len(parts._runners) > 3
    assert parts.replaces
    names = [meta.name for meta in whole.tensors]
    first, second = seen(whole, feeds, {}), seen(parts, feeds, {})
    assert list(first) == list(second)
    for name in names:
        np.testing.assert_array_equal(first[name], second[name])
    put = {names[3]: first[names[3]] + 1}
    first, second = seen(whole, feeds, put), seen(parts, feeds, put)
    for name in names:
        np.testing.assert_array_equal(first[name], second[name])
    whole.close()
    parts.close()


def test_what_cannot_be_replaced_says_so(tmp_path: Path) -> None:
    feeds = models.feeds("mlp")
    blocked = opened(models.pir("mlp"), "onednn_bf16", feeds, tmp_path)
    assert not blocked.replaces
    blocked.close()


def test_tensors_of_operators_that_the_hook_passes_over_are_shown_too(tmp_path: Path) -> None:
    feeds = models.feeds("branches")
    session = opened(models.pir("branches"), "cpu_fp32", feeds, tmp_path)
    plain = seen(session, feeds, {})
    assert {name for name in plain if name} == {meta.name for meta in session.tensors if not meta.unseen}
    session.close()


def test_an_operator_is_told_with_its_attributes_and_constants(tmp_path: Path) -> None:
    feeds = models.feeds("cnn")
    for path in (models.pir("cnn"), models.legacy("cnn", tmp_path)):
        session = opened(path, "cpu_fp32", feeds, tmp_path)
        name = next(meta.name for meta in session.tensors if meta.op_type == "conv2d")
        conv = session.operator(name)
        assert conv.op_type == "conv2d"
        assert tuple(conv.attributes["paddings"]) == (1, 1)
        assert [value.shape for value in conv.parameters.values()] == [(8, 3, 3, 3)]
        norm = session.operator(next(meta.name for meta in session.tensors if meta.op_type == "batch_norm"))
        assert norm.attributes["epsilon"] == pytest.approx(1e-5)
        assert len(norm.parameters) == 4
        assert session.operator("nothing of that name") is None
        session.close()


def test_numbers_in_the_program_are_constants_that_an_operator_reads(tmp_path: Path) -> None:
    feeds = models.feeds("branches")
    session = opened(models.pir("branches"), "cpu_fp32", feeds, tmp_path)
    scale = session.operator("scale_0")
    assert [value.item() for value in scale.parameters.values()] == [pytest.approx(0.05)]
    assert [*scale.parameters] == ["scale_0, scale"]  # by Paddle's own name for what is read there
    session.close()


def test_whole_numbers_in_the_program_are_told_of_two_programs(tmp_path: Path) -> None:
    """Words are moved on by one, and back by one."""
    import paddle

    class Rolled(paddle.nn.Layer):  # type: ignore[misc]
        def __init__(self, shift: int) -> None:
            super().__init__()
            self.shift, self.scale = shift, self.create_parameter([4])

        def forward(self, x: Any) -> Any:
            return paddle.tanh(paddle.roll(x, self.shift, 1)) * self.scale

    for name, shift in (("base", 1), ("target", -1)):
        paddle.seed(0)
        paddle.jit.save(
            Rolled(shift), str(tmp_path / name), input_spec=[paddle.static.InputSpec([2, 8, 4], "float32", "x")]
        )
    x = np.random.default_rng(0).normal(size=(2, 8, 4)).astype(np.float32)
    report = precision_debug.compare(
        tmp_path / "target.json", baseline_model=str(tmp_path / "base.json"), run_mode="cpu_fp32",
        baseline="cpu_fp32", inputs={"x": x},
    )  # fmt: skip
    assert report.explanation is not None
    told = report.explanation.culprits[0].evidence
    assert [told[key] for key in ("name", "base", "target")] == ["roll_0, shifts", 1, -1]
