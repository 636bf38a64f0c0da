"""Legacy programs under oneDNN: values are fetched through copies, and are those of the program nobody edited."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import paddle_models
import pytest

pytest.importorskip("paddle", reason="paddlepaddle is not installed")

from precision_debug_paddle import PaddleBackend, modes, naming
from precision_debug_paddle.engine.copied import Copies, with_copies
from precision_debug_paddle.engine.hook_check import Witness, digest
from precision_debug_paddle.engine.legacy_program import read_legacy
from precision_debug_paddle.engine.predictor import Runner
from precision_debug_paddle.make import make_config

from precision_debug.records import ModelFiles, SessionSpec

BF16 = pytest.mark.skipif(
    not modes.availability("onednn_bf16").ok, reason=f"onednn_bf16 {modes.availability('onednn_bf16').needs}"
)


def runner(mode: str, path: Path, params: Path) -> Runner:
    return Runner(make_config(modes.recipe(mode), path, params, {}, device="cpu"), where=str(path), mode=mode)


@BF16
@pytest.mark.parametrize("name", ["mlp", pytest.param("encoder", marks=pytest.mark.slow)])
def test_every_value_that_lives_in_bfloat16_is_shown_and_is_what_the_untouched_program_computes(
    name: str, tmp_path: Path
) -> None:
    path = paddle_models.legacy(name, tmp_path)
    feeds = paddle_models.feeds(name)
    seen: set[tuple[int, int]] = set()
    made = 0

    def look(kind: str, _: str, array: np.ndarray) -> None:
        nonlocal made
        seen.add(digest(array))
        made += not naming.carries(kind)

    untouched = runner("onednn_bf16", path, path.with_suffix(".pdiparams"))
    untouched.run(feeds, look)
    untouched.close()
    spec = SessionSpec(model=ModelFiles(model_file=str(path)), mode="onednn_bf16", work_dir=str(tmp_path))
    session = PaddleBackend().open(spec, [feeds])
    shown: dict[str, np.ndarray] = {}
    session.run(feeds, lambda kind, tensor, array: shown.__setitem__(tensor, np.array(array)))
    session.close()
    assert len(shown) == sum(not meta.unseen for meta in session.tensors)
    assert not [meta.name for meta in session.tensors if meta.unseen], "nothing that lives is refused"
    assert all(digest(array) in seen for array in shown.values())
    assert len(shown) >= 0.8 * made


def test_a_copy_stands_right_behind_what_it_copies_and_comes_back_in_its_shape(tmp_path: Path) -> None:
    path = paddle_models.legacy("cnn", tmp_path)
    program = read_legacy(path)
    feeds = paddle_models.feeds("cnn")
    hooked: dict[str, np.ndarray] = {}
    plain = runner("cpu_fp32", path, path.with_suffix(".pdiparams"))
    plain.run(feeds, lambda kind, name, array: hooked.__setitem__(name, np.array(array)))
    ranks = {name: hooked[name].ndim for name in ("relu_0.tmp_0", "tmp_0", "pool2d_0.tmp_0")}
    copied = with_copies(program, ranks, tmp_path / "copied.pdmodel")
    edited = read_legacy(copied)
    kinds = [op.type for op in edited.operators[0]]
    for place, op in enumerate(edited.operators[0]):
        if op.type == "reshape2" and op.reads[0] in ranks:
            assert op.reads[0] in [name for _, names in edited.operators[0][place - 1].outputs for name in names], kinds
    outputs = runner("cpu_fp32", copied, path.with_suffix(".pdiparams")).run(feeds)
    for name in ranks:
        np.testing.assert_array_equal(outputs[naming.fetch_name(name)], hooked[name])


def test_two_values_with_the_numbers_of_one_are_not_believed(tmp_path: Path) -> None:
    """As where an operator that works in place wrote over one before it was copied."""
    path = paddle_models.legacy("mlp", tmp_path)
    program = read_legacy(path)
    feeds = paddle_models.feeds("mlp")
    saw, forgot = Witness(), Witness()
    plain = runner("cpu_fp32", path, path.with_suffix(".pdiparams"))
    names: list[str] = []

    def look(kind: str, name: str, array: np.ndarray) -> None:
        names.append(name)
        for witness in (saw, forgot):
            witness.saw(kind, name, array)

    plain.run(feeds, look)
    both = [value.name for value in program.values if value.name in names and not value.output]
    ranks = dict.fromkeys(both, 2)

    def start(path: Path) -> Runner:
        return runner("cpu_fp32", path, tmp_path / "mlp.pdiparams")

    copies = Copies(program, start, tmp_path)
    copies.find([tuple(both)], ranks, saw, feeds)
    assert copies.names == frozenset(both)
    assert copies.builds == 1
    doubled = Copies(program, lambda path: _Same(start(path)), tmp_path)  # type: ignore[arg-type, return-value]
    doubled.find([tuple(both)], ranks, forgot, feeds)
    assert not doubled.names


class _Same:
    """A predictor in which one tensor's memory holds another's numbers."""

    def __init__(self, inner: Runner) -> None:
        self._inner = inner
        self.execute, self.close = inner.execute, inner.close

    @property
    def output_names(self) -> list[str]:
        return self._inner.output_names

    def output(self, name: str) -> np.ndarray:
        return self._inner.output(next(one for one in self._inner.output_names if one.startswith(naming.FETCH)))
