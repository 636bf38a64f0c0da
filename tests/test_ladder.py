"""The ladder: its search without any framework, and Paddle's on planted faults."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import paddle_models
import pytest

import precision_debug
from precision_debug.cli import main
from precision_debug.errors import UsageError
from precision_debug.explain.ladder import Step, climb, explain
from precision_debug.protocols import Rung


class Parts:
    name = "parts"

    def __init__(self, count: int) -> None:
        self.items = [f"p{i}" for i in range(count)]

    def options(self, off: Collection[str]) -> Mapping[str, Any]:
        return {"off": list(off)}

    def snippet(self, off: Collection[str]) -> str:
        return " ".join(off)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_smallest_set_is_found_wherever_it_lies(size: int) -> None:
    for guilty in itertools.combinations(range(9), size):
        names = {f"p{i}" for i in guilty}
        found = explain(Parts(9), lambda options, names=names: names <= set(options["off"]))
        assert found.found
        assert found.minimal
        assert set(found.off) == names
        assert found.snippet == " ".join(found.off)


@pytest.mark.parametrize("count", [1, 30, 200])
def test_one_guilty_part_takes_few_runs(count: int) -> None:
    found = explain(Parts(count), lambda options: f"p{count // 2}" in options["off"], budget=40)
    assert found.off == (f"p{count // 2}",)
    assert found.runs <= int(np.ceil(np.log2(count))) + 3


@pytest.mark.parametrize("names", [("p3", "p77"), ("p0", "p1"), ("p98", "p99"), ("p2", "p40", "p41")])
def test_each_of_several_guilty_parts_takes_few_runs(names: tuple[str, ...]) -> None:
    found = explain(Parts(100), lambda options: {*names} <= {*options["off"]})
    assert set(found.off) == {*names}
    assert found.runs <= len(names) * (int(np.ceil(np.log2(100))) + 3)


def test_parts_that_explain_nothing_take_one_run() -> None:
    found = explain(Parts(9), lambda options: False)
    assert (found.found, found.off, found.runs, found.snippet) == (False, (), 1, "")


def test_either_of_two_parts_is_enough() -> None:
    found = explain(Parts(12), lambda options: bool({"p3", "p9"} & set(options["off"])))
    assert found.off in {("p3",), ("p9",)}


def test_a_budget_ends_the_search_with_what_it_has() -> None:
    names = {f"p{i}" for i in range(0, 40, 3)}
    found = explain(Parts(40), lambda options: names <= set(options["off"]), budget=12)
    assert found.found
    assert not found.minimal
    assert names <= set(found.off)
    assert found.runs <= 12


def test_nothing_is_asked_twice_and_a_known_answer_not_at_all() -> None:
    asked: list[frozenset[str]] = []

    def passes(options: Mapping[str, Any]) -> bool:
        asked.append(frozenset(options["off"]))
        return {"p1", "p6"} <= set(options["off"])

    found = explain(Parts(8), passes, all_off_passes=True)
    assert set(found.off) == {"p1", "p6"}
    assert len(asked) == len(set(asked)) == found.runs
    assert frozenset(Parts(8).items) not in asked


def test_the_climb_ends_at_the_first_stage_that_fails() -> None:
    ran = []

    def run(rung: Rung, options: Mapping[str, Any]) -> Step:
        ran.append(rung.name)
        return Step(passes=rung.name != "b")

    rungs = [Rung(name=n, mode=n, needs="a GPU" if n == "x" else "") for n in ("a", "x", "b", "c")]
    found = climb(rungs, run)
    assert ran == ["a", "b"]
    assert found.failing is rungs[2]
    assert [(rung.name, step.passes) for rung, step in found.steps] == [("a", True), ("x", None), ("b", False)]
    assert climb(rungs[:2], run).failing is None


@pytest.mark.parametrize(
    ("mode", "status", "said"),
    [
        ("fake_off", 1, "FAIL     on (fake_off)"),
        ("fake_off --atol 100", 1, "unknown  on (fake_off): inconclusive: The final output t7 passes only"),
        ("fake_fp32", 0, "no stage exceeds the tolerance"),
        ("fake_absent", 2, "nothing is known of fake_absent: it could not run (needs a unicorn)"),
        ("fake_abort_open", 3, "nothing is known of fake_abort_open: it could not run"),
        ("fake_raise", 3, "nothing is known of fake_raise: it could not run"),
    ],
)
def test_a_target_that_could_not_run_is_no_pass(
    mode: str, status: int, said: str, fake: str, root: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root / "tests" / "fake"), os.environ["PYTHONPATH"]]))
    found = main(["ladder", "--model_file", fake, "--run_mode", *mode.split()])
    told = capsys.readouterr()
    assert found == status, told.err
    assert said in told.out
    assert ("no stage" in told.out) is (status == 0)


# -- Paddle's

NEEDS_PADDLE = pytest.mark.skipif(importlib.util.find_spec("paddle") is None, reason="paddlepaddle is not installed")


def _ladder(*arguments: str) -> tuple[int, dict[str, Any]]:
    from precision_debug.products.tools import ladder

    status = ladder.run([*arguments, "--output", "ladder.json"])
    return status, json.loads(Path("ladder.json").read_text())


@pytest.mark.slow
@NEEDS_PADDLE
def test_a_bad_pass_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Inputs and the batch norm's mean share an offset of 1e4: folding the mean into the weights rounds elsewhere."""

    def plant(weights: dict[str, Any]) -> None:
        weights["batch_norm2d_0.w_1"][:] = 1e4 * weights["conv2d_0.w_0"].sum((1, 2, 3))
        weights["batch_norm2d_0.w_2"][:] = 1

    path = paddle_models.legacy("conv_norm", tmp_path, change=plant)
    np.savez("x.npz", x=(paddle_models.feeds("conv_norm")["x"] + 1e4).astype(np.float32))
    status, found = _ladder(
        "--model_file", str(path), "--run_mode", "onednn_fp32", "--inputs", "x.npz", "--atol", "1e-5", "--rtol", "1e-5"
    )  # fmt: skip
    assert status == 1
    assert [stage["name"] for stage in found["stages"]] == ["everything off", "memory optimisation", "passes"]
    assert [stage["passes"] for stage in found["stages"]] == [True, True, False]
    (explained,) = found["explanations"]
    assert explained["off"] == ["conv_bn_fuse_pass"]
    assert explained["minimal"]
    assert 'config.delete_pass("conv_bn_fuse_pass")' in capsys.readouterr().out


@pytest.mark.slow
@NEEDS_PADDLE
def test_bad_operators_are_found(tmp_path: Path) -> None:
    """An offset of 300 is added and taken away: in bfloat16 nothing is left of what it was added to."""
    modes = pytest.importorskip("precision_debug_paddle.modes")
    if not modes.availability("onednn_bf16").ok:
        pytest.skip(f"onednn_bf16 {modes.availability('onednn_bf16').needs}")

    def plant(weights: dict[str, Any]) -> None:
        weights["offset_0.w_0"] += 300

    path = paddle_models.legacy("offset", tmp_path, change=plant)
    status, found = _ladder("--model_file", str(path), "--run_mode", "onednn_bf16", "--atol", "0.05", "--rtol", "0.05")
    assert status == 1
    assert found["failing"] == "oneDNN"
    (explained,) = found["explanations"]
    assert explained["found"]
    assert "elementwise_add" in explained["off"]
    assert len(explained["off"]) <= 2
    assert "config.set_bfloat16_op(" in explained["snippet"]


@pytest.mark.slow
@NEEDS_PADDLE
def test_a_healthy_model_passes_every_stage(tmp_path: Path) -> None:
    status, found = _ladder("--model_file", str(paddle_models.pir("mlp")), "--run_mode", "onednn_fp32")
    assert status == 0
    assert found["explanations"] == []
    assert [stage["passes"] for stage in found["stages"]] == [True, None, True, True]
    assert "PIR" in found["stages"][1]["text"]


def test_the_stages_of_a_gpu_mode_come_in_paddles_order(tmp_path: Path) -> None:
    pytest.importorskip("paddle", reason="paddlepaddle is not installed")
    from precision_debug_paddle import PaddleBackend

    from precision_debug.records import ModelFiles, SessionSpec

    backend = PaddleBackend()
    assert backend.capabilities.ladder is backend
    files = ModelFiles(model_file=str(paddle_models.legacy("mlp", tmp_path)))

    def stages(mode: str) -> list[str]:
        return [rung.mode for rung in backend.rungs(SessionSpec(model=files, mode=mode))]

    assert stages("trt_fp16") == ["gpu_fp32", "gpu_fp32", "gpu_opt", "gpu_fp16", "trt_fp32", "trt_fp16"]
    assert stages("gpu_fp16") == ["gpu_fp32", "gpu_fp32", "gpu_opt", "gpu_fp16"]
    assert stages("onednn_bf16") == ["cpu_fp32", "cpu_fp32", "cpu_opt", "onednn_fp32", "onednn_bf16"]
    assert stages("cpu_opt") == ["cpu_fp32", "cpu_fp32", "cpu_opt"]


DIGITS = Path(__file__).parent.parent / "examples" / "digits" / "digits.onnx"


def test_onnx_runtime_has_stages_too(capsys: pytest.CaptureFixture[str]) -> None:
    from precision_debug.products.tools import ladder

    alone = precision_debug.compare(DIGITS, run_mode="ort_fp16", explain="off")  # 1 where nothing ran in FP16
    capsys.readouterr()
    assert ladder.run(["--model_file", str(DIGITS), "--run_mode", "ort_fp16"]) == alone.exit_status
    printed = capsys.readouterr().out
    last = "unknown" if alone.exit_status else "pass"
    assert [line.split()[0] for line in printed.splitlines()[:3]] == ["pass", "pass", last]
    assert ["(ort_fp32)" in printed, "(ort_opt)" in printed, "(ort_fp16)" in printed] == [True] * 3
    assert ladder.run(["--model_file", str(DIGITS), "--run_mode", "ort_opt", "--lang", "zh"]) == 0
    chinese = capsys.readouterr().out
    assert chinese.startswith("通过     全部关闭 (ort_fp32): ")
    assert "没有阶段超出容差" in chinese
    assert "elements" not in chinese


@pytest.mark.parametrize(
    ("backend", "mode", "stages"),
    [
        ("onnxruntime", "ort_cuda_fp16", ["ort_fp32", "ort_opt", "ort_cuda_fp32", "ort_cuda_fp32", "ort_cuda_fp16"]),
        ("onnxruntime", "ort_fp16_sim", ["ort_fp32", "ort_fp16_sim"]),
        ("tensorrt", "trt_fp16", ["trt_fp32", "trt_tf32", "trt_fp16"]),
        ("tensorrt", "trt_fp32", ["trt_fp32"]),
        ("torch", "torch_bf16", ["torch_fp32", "torch_tf32", "torch_autocast_bf16", "torch_bf16"]),
    ],
)
def test_the_last_stage_is_the_mode_itself(backend: str, mode: str, stages: list[str]) -> None:
    from precision_debug import registry
    from precision_debug.records import ModelFiles, SessionSpec

    found = next(one for one in registry.backends() if one.name == backend).capabilities.ladder
    assert found is not None
    spec = SessionSpec(model=ModelFiles(model_file="m.onnx"), mode=mode)
    assert [rung.mode for rung in found.rungs(spec)] == stages
    if backend == "onnxruntime":  # its switches are those of a file
        return
    switches = found.switches(spec, found.rungs(spec)[-1], ())
    told = [bool(one.needs) != bool(one.items) for one in switches]  # TensorRT's where there is a builder, else why not
    assert told == ([True] if backend == "tensorrt" else [])


def test_a_backend_without_stages_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from precision_debug import registry
    from precision_debug.products.tools import ladder
    from precision_debug.protocols import Capabilities

    backend = next(one for one in registry.backends() if one.name == "onnxruntime")
    monkeypatch.setattr(type(backend), "capabilities", property(lambda _: Capabilities()))
    with pytest.raises(UsageError, match="no optimisation stages"):
        ladder.run(["--model_file", str(DIGITS), "--run_mode", "ort_fp16"])


def test_openvinos_transformations_are_switched_off_by_properties(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    from precision_debug_openvino import OpenVinoBackend

    from precision_debug import compare
    from precision_debug.records import ModelFiles, SessionSpec

    spec = SessionSpec(model=ModelFiles(model_file=str(DIGITS)), mode="ov_opt_fp32")
    found = OpenVinoBackend().capabilities.ladder
    assert found is not None
    assert [rung.mode for rung in found.rungs(spec)] == ["ov_fp32", "ov_opt_fp32"]
    (switch,) = found.switches(spec, found.rungs(spec)[-1], ())
    assert "SNIPPETS_MODE" in switch.items
    assert switch.snippet(["SNIPPETS_MODE"]) == "core.compile_model(model, \"CPU\", {'SNIPPETS_MODE': 'DISABLE'})"
    report = compare(str(DIGITS), run_mode="ov_opt_fp32", **switch.options(switch.items))
    assert report.exit_status == 0
    assert not found.switches(spec, found.rungs(spec)[0], ())
