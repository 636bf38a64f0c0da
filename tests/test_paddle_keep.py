"""Operator types that stay in FP32 in Paddle: the options that a kept set becomes, and a search on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import paddle_models
import pytest

from precision_debug import Report
from precision_debug.cli import main
from precision_debug.errors import UsageError
from precision_debug.protocols import InRegions
from precision_debug.records import ModelFiles, SessionSpec, TensorMeta

pytest.importorskip("paddle", reason="paddlepaddle is not installed")

pytestmark = pytest.mark.engine("paddle")


def planted(folder: Path) -> str:
    """An offset of 300 is added and taken away: in bfloat16 nothing is left of what it was added to."""

    def plant(weights: dict[str, Any]) -> None:
        weights["offset_0.w_0"] += 300

    return str(paddle_models.legacy("offset", folder, change=plant))


def keep(mode: str, folder: Path, **options: Any) -> Any:
    from precision_debug_paddle import PaddleBackend

    return PaddleBackend().keep(
        SessionSpec(model=ModelFiles(model_file=planted(folder)), mode=mode, options=options)
    )  # fmt: skip


def test_what_is_kept_is_left_out_of_those_that_may_run_in_bfloat16(tmp_path: Path) -> None:
    found = keep("onednn_bf16", tmp_path)
    assert found.unit == "operator type"
    assert not found.options(())
    left = found.options(["elementwise_add"])["bfloat16_ops"]
    assert "elementwise_add" not in left
    assert "matmul_v2" in left
    assert {"fc", "fused_matmul", "fused_conv2d"} <= set(left)  # what Paddle's pass sees in the program's place
    assert "batch_norm" not in left  # it has no such kernel: named, it makes Paddle fail
    assert not {"matmul_v2", "fc", "fused_matmul"} & set(found.options(["matmul_v2"])["bfloat16_ops"])
    (setting, config) = found.hand_over(["elementwise_add"], (), tmp_path)
    assert setting.mode == "onednn_bf16"
    assert f"elementwise_add: all {found.types['elementwise_add']} of them" in setting.note
    assert "set_bfloat16_op" in config.text


def test_on_a_gpu_types_are_kept_and_in_tensorrt_outputs(tmp_path: Path) -> None:
    mixed = keep("gpu_fp16", tmp_path, disable_mixed_precision_ops=("relu",))
    assert mixed.options(["elementwise_add"]) == {"disable_mixed_precision_ops": ("relu", "elementwise_add")}
    assert "exp_disable_mixed_precision_ops" in mixed.hand_over(["elementwise_add"], (), tmp_path)[1].text
    engine = keep("trt_fp16", tmp_path)
    meta = TensorMeta(name="elementwise_add_0", op_type="elementwise_add")
    assert (engine.unit, engine.key_of(meta)) == ("operator", "elementwise_add_0")
    assert engine.options(["elementwise_add_0"]) == {"disable_tensorrt_half_ops": ("elementwise_add_0",)}
    assert "disable_tensorrt_half_ops(config" in engine.hand_over(["elementwise_add_0"], (), tmp_path)[1].text
    assert isinstance(engine, InRegions)  # each set is a build: sets grow along the data
    assert not isinstance(mixed, InRegions)
    assert keep("onednn_fp32", tmp_path) is None


def test_a_search_on_the_cpu_leaves_the_rest_in_bfloat16(tmp_path: Path) -> None:
    """Two scales add and take away 3000. The list without them that Paddle gets has its fused names too."""
    import numpy as np
    from precision_debug_paddle import modes

    available = modes.availability("onednn_bf16")
    if not available.ok:
        pytest.skip(f"onednn_bf16 {available.needs}")
    model, output = str(paddle_models.legacy("shift_and_back", tmp_path)), tmp_path / "o.json"
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).normal(size=(4, 3, 8, 8)).astype(np.float32))
    assert main(["search", "--model_file", model, "--run_mode", "onednn_bf16", "--atol", "0.05", "--rtol", "0.05",
                 "--inputs", str(tmp_path / "x.npz"), "--quiet", "--output", str(output)]) == 0  # fmt: skip
    fix = Report.load(output).fix
    assert fix is not None
    assert (fix.state, [unit.key for unit in fix.kept]) == ("found", ["scale"])
    assert fix.evaluations <= 1 + 5
    assert fix.artefacts[0].verified is True
    assert fix.still is not None
    assert fix.was is not None
    assert 0 < fix.still.low < fix.was.low


def in_pir(folder: Path) -> tuple[str, Any]:
    """A PIR program (.json): a large mean before a norm, behind four layers."""
    from planted.fourth_paddle import CASES

    case = next(one for one in CASES if one.name == "large_mean_before_a_norm")
    model, _, feeds = case.make(folder)
    if model.suffix != ".json":
        pytest.skip("this Paddle exports no PIR programs")
    return str(model), feeds


@pytest.fixture
def bfloat16() -> None:
    from precision_debug_paddle import modes

    available = modes.availability("onednn_bf16")
    if not available.ok:
        pytest.skip(f"onednn_bf16 {available.needs}")


@pytest.mark.usefixtures("bfloat16")
def test_single_operators_of_a_pir_program_stay_in_float32(tmp_path: Path) -> None:
    """Paddle's passes ask nobody; the program is written so that they leave them alone, and its values keep names."""
    import precision_debug

    model, feeds = in_pir(tmp_path)
    common = {"run_mode": "onednn_bf16", "inputs": feeds, "explain": "off"}
    before = precision_debug.compare(model, **common)
    after = precision_debug.compare(model, **common, keep_operators=["multiply_0", "layer_norm_0@LayerNorm"])
    one, other = before.outputs[0].relative_l2, after.outputs[0].relative_l2
    assert one is not None
    assert other is not None
    assert one > 0.05
    assert other < 0.01, "and 0.0056 is what BF16 costs the other layers"
    assert [row.name for row in before.rows] == [row.name for row in after.rows]
    with pytest.raises(UsageError, match="no value 'multiply_1'"):
        precision_debug.compare(model, **common, keep_operators=["multiply_1"])


@pytest.mark.usefixtures("bfloat16")
def test_an_addition_of_a_pir_program_stays_in_float32(tmp_path: Path) -> None:
    """It is written as a subtraction of what is negated, which oneDNN has no bfloat16 kernel for."""
    from planted.paddle_faults import CASES

    import precision_debug

    model, _, feeds = next(one for one in CASES if one.name == "shift_and_back_onednn_bf16").make(tmp_path)
    common = {"run_mode": "onednn_bf16", "inputs": feeds, "explain": "off"}
    before = precision_debug.compare(model, **common)
    after = precision_debug.compare(model, **common, keep_operators=["add_2"])
    assert before.outputs[0].relative_l2 == pytest.approx(1.0, abs=0.05)
    assert after.outputs[0].relative_l2 is not None
    assert 1e-4 < after.outputs[0].relative_l2 < 0.01
    assert {row.name: row.op_type for row in after.rows} == {row.name: row.op_type for row in before.rows}


@pytest.mark.usefixtures("bfloat16")
def test_a_report_on_a_pir_program_ends_with_a_fix_that_was_run(tmp_path: Path) -> None:
    import precision_debug

    model, feeds = in_pir(tmp_path)
    kept = precision_debug.compare(model, run_mode="onednn_bf16", inputs=feeds).to_keep
    assert kept is not None
    assert kept.option.startswith("--option 'keep_operators=[")
    assert kept.state == "mended"
    assert kept.still is not None
    assert kept.was is not None
    assert 0.5 * kept.was.low < kept.still.low < kept.was.low


@pytest.mark.usefixtures("bfloat16")
def test_a_search_hands_over_a_program_that_paddle_runs_as_it_is(tmp_path: Path) -> None:
    import numpy as np
    import paddle

    model, feeds = in_pir(tmp_path)
    np.savez(tmp_path / "x.npz", **feeds)
    output = tmp_path / "o.json"
    assert main(["search", "--model_file", model, "--run_mode", "onednn_bf16", "--limit", "0.02", "--inputs",
                 str(tmp_path / "x.npz"), "--quiet", "--output", str(output)]) == 0  # fmt: skip
    fix = Report.load(output).fix
    assert fix is not None
    assert fix.state == "found"
    assert all(item.verified is True for item in fix.artefacts)
    path = next(Path(item.path) for item in fix.artefacts if item.kind == "model")

    def run(file: Path, *, low: bool) -> Any:
        config = paddle.inference.Config(str(file), str(file.with_suffix(".pdiparams")))
        config.disable_gpu()
        config.disable_glog_info()
        if low:
            config.enable_mkldnn()
            config.enable_mkldnn_bfloat16()
        predictor = paddle.inference.create_predictor(config)
        for name, value in feeds.items():
            predictor.get_input_handle(name).copy_from_cpu(value)
        predictor.run()
        return predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()

    exact, alone, mixed = run(Path(model), low=False), run(Path(model), low=True), run(path, low=True)

    def error(got: Any) -> float:
        return float(np.linalg.norm(got - exact) / np.linalg.norm(exact))

    assert error(mixed) <= 0.02 < error(alone)
    assert error(mixed) > 1e-4, "the rest is in BF16"


def test_a_session_that_only_gives_outputs_builds_few_predictors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can be fetched takes many of them to find out, and nobody asks that of a set that is tried."""
    from precision_debug_paddle import PaddleBackend, opening

    made: list[str] = []

    class Counted(opening.Runner):
        def __init__(self, *args: Any, **more: Any) -> None:
            made.append("")
            super().__init__(*args, **more)

    monkeypatch.setattr(opening, "Runner", Counted)
    path = paddle_models.legacy("offset", tmp_path)
    spec = SessionSpec(model=ModelFiles(model_file=str(path)), mode="onednn_fp32", work_dir=str(tmp_path))
    feeds = dict(paddle_models.feeds("offset"))
    session = PaddleBackend().open(spec, [feeds])
    outputs = session.run(feeds)
    assert len(made) == 2
    assert [meta.name for meta in session.tensors if not meta.unseen]
    assert len(made) > 3
    again = session.run(feeds)
    assert all((outputs[name] == again[name]).all() for name in outputs)
    session.close()
