"""``precision_debug.watch``: somebody's own Paddle predictors, as the command line shows a run mode."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import paddle_models
import pytest
from approval import raises_approved

pytest.importorskip("paddle", reason="paddlepaddle is not installed")

from precision_debug_paddle.engine.framework import import_inference

import precision_debug
from precision_debug import AssertClose, SaveBaseline, Status
from precision_debug.errors import UsageError
from precision_debug.observe.hooks import PrecisionWarning


def config_of(path: Path, *, optimised: bool, onednn: bool = False) -> Any:
    """As a user writes it."""
    config = import_inference().Config(str(path), str(path.with_suffix(".pdiparams")))
    config.disable_gpu()
    config.disable_glog_info()
    config.switch_ir_optim(optimised)
    if onednn:
        config.enable_onednn()
    else:
        config.disable_onednn()
    if not optimised:
        config.set_optimization_level(0)
    return config


def model_of(kind: str, name: str, folder: Path) -> Path:
    return paddle_models.pir(name) if kind == "pir" else paddle_models.legacy(name, folder)


@pytest.mark.parametrize("onednn", [False, True])
@pytest.mark.parametrize("kind", ["legacy", "pir"])
def test_watched_predictors_are_seen_as_the_command_line_sees_them(kind: str, onednn: bool, tmp_path: Path) -> None:
    path = model_of(kind, "conv_norm", tmp_path)
    feeds = paddle_models.feeds("conv_norm")
    base = SaveBaseline()
    with precision_debug.watch(config_of(path, optimised=False)) as plain:
        plain.run(feeds, base)
    check = AssertClose(base, atol=1e-3, rtol=1e-3)
    with precision_debug.watch(config_of(path, optimised=True, onednn=onednn)) as optimised:
        outputs = optimised.run(feeds, check)
    report = check.report()
    assert not [row.name for row in report.rows if row.status is Status.FAIL]
    ours = precision_debug.compare(
        path, run_mode="onednn_fp32" if onednn else "cpu_opt", baseline="cpu_fp32", inputs=feeds, atol=1e-3, rtol=1e-3
    )
    assert {row.name: row.status for row in report.rows} == {row.name: row.status for row in ours.rows}
    assert report.outputs, "the model's outputs are known"
    predictor = import_inference().create_predictor(config_of(path, optimised=True, onednn=onednn))
    predictor.get_input_handle("x").copy_from_cpu(feeds["x"])
    predictor.run()
    plain_output = predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()
    np.testing.assert_array_equal(next(iter(outputs.values())), plain_output)


def test_raw_hooks_of_blocked_layouts_warn(tmp_path: Path) -> None:
    path = paddle_models.legacy("cnn", tmp_path)
    predictor = import_inference().create_predictor(config_of(path, optimised=True, onednn=True))
    base = SaveBaseline()
    predictor.register_output_hook(base)
    predictor.get_input_handle("x").copy_from_cpu(paddle_models.feeds("cnn")["x"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        predictor.run()
    assert any(issubclass(item.category, PrecisionWarning) and "watch" in str(item.message) for item in caught)


def test_raw_hooks_of_a_folded_batch_norm_are_told_in_the_report(tmp_path: Path) -> None:
    path = paddle_models.legacy("resnet18", tmp_path)
    base = SaveBaseline()
    check = AssertClose(base)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for optimised, hook in ((False, base), (True, check)):
            predictor = import_inference().create_predictor(config_of(path, optimised=optimised))
            predictor.register_output_hook(hook)
            predictor.get_input_handle("x").copy_from_cpu(paddle_models.feeds("resnet18")["x"])
            predictor.run()
    assert any("batch norms" in note and "watch" in note for note in check.report().notes)


def test_what_cannot_be_watched_is_refused(tmp_path: Path) -> None:
    path = paddle_models.legacy("mlp", tmp_path)
    with pytest.raises(UsageError, match="Config"):
        precision_debug.watch(object())
    with pytest.raises(UsageError, match="Config"):
        precision_debug.watch(import_inference().create_predictor(config_of(path, optimised=False)))


def test_where_the_inputs_are_given_each_operator_is_run_alone(tmp_path: Path) -> None:
    path = model_of("pir", "conv_norm", tmp_path)
    feeds = paddle_models.feeds("conv_norm")
    base = SaveBaseline()
    with (
        precision_debug.watch(config_of(path, optimised=False)) as plain,
        precision_debug.watch(config_of(path, optimised=True)) as optimised,
    ):
        plain.run(feeds, base)
        check = AssertClose(base, atol=1e-3, rtol=1e-3)
        optimised.run(feeds, check)
        without, report = check.report(), check.report(feeds=feeds, baseline=plain, target=optimised)
    assert all(row.introduced is None for row in without.rows)
    assert without.explanation is None
    assert report.explanation is not None
    assert report.explanation.state == "healthy", report.explanation.reason
    found = [row.introduced for row in report.rows if row.introduced is not None]
    assert found
    assert all(item.rel_l2 is None or np.isfinite(item.rel_l2) for item in found)
    assert {row.name: row.status for row in report.rows} == {row.name: row.status for row in without.rows}


def demo_run(predictor: Any, img: list[Any]) -> list[Any]:
    """The function ``run`` of Paddle-Inference-Demo's tensorrt_precision_debug, as it stands there."""
    input_names = predictor.get_input_names()
    for i, name in enumerate(input_names):
        input_tensor = predictor.get_input_handle(name)
        input_tensor.reshape(img[i].shape)
        input_tensor.copy_from_cpu(img[i])
    predictor.run()
    results = []
    output_names = predictor.get_output_names()
    for _, name in enumerate(output_names):
        output_tensor = predictor.get_output_handle(name)
        results.append(output_tensor.copy_to_cpu())
    return results


@pytest.mark.parametrize("onednn", [False, True])
@pytest.mark.parametrize("kind", ["legacy", "pir"])
def test_a_script_of_the_demo_goes_on_with_it(kind: str, onednn: bool, tmp_path: Path) -> None:
    path = model_of(kind, "branches", tmp_path)
    image = [*paddle_models.feeds("branches").values()]
    config = config_of(path, optimised=True, onednn=onednn)
    plain = import_inference().create_predictor(config)
    wanted = demo_run(plain, image)
    seen: dict[str, np.ndarray] = {}

    def hook(op_type: str, tensor_name: str, tensor: Any) -> None:
        seen[tensor_name] = np.array(tensor)
        assert np.array_equal(tensor.numpy(), seen[tensor_name], equal_nan=True)

    predictor = precision_debug.watch(config)
    predictor.register_output_hook(hook)
    assert predictor.get_input_names() == plain.get_input_names()
    assert predictor.get_output_names() == plain.get_output_names()
    for _ in range(2):
        found = demo_run(predictor, image)
        assert [array.tobytes() for array in found] == [array.tobytes() for array in wanted]
        assert seen
    assert {meta.name for meta in predictor.tensors if not meta.unseen} == set(seen)
    seen.clear()
    other = predictor.clone()
    assert [array.tobytes() for array in other.run(image)] == [array.tobytes() for array in wanted]
    assert not seen, "a clone has no hooks"
    other.close()
    predictor.close()


def test_what_a_handle_lacks_is_said(tmp_path: Path) -> None:
    path = paddle_models.legacy("mlp", tmp_path)
    with precision_debug.watch(config_of(path, optimised=False)) as predictor:
        with raises_approved(UsageError):
            predictor.run()
        with raises_approved(UsageError, 3) as raised:
            predictor.get_input_handle("y")
        assert "it has x" in str(raised.value)
        with pytest.raises(UsageError, match="has no value yet"):
            predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()
        predictor.get_input_handle("x").reshape([2, 16])
        with raises_approved(UsageError, 2):
            predictor.get_input_handle("x").copy_from_cpu(np.zeros((1, 16), np.float32))
