"""What a command asks for, resolved: both sides, their settings, and what is refused before anything runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from precision_debug.errors import BackendUnavailable, ModelError, UsageError
from precision_debug.records import ModelFiles, RunSpec
from precision_debug.run.plan import make_plan, make_stage_spec


def spec_of(model: str, mode: str = "fake_off", **settings: Any) -> RunSpec:
    return RunSpec(model=ModelFiles(model_file=model), run_mode=mode, **settings)


def test_the_default_baseline_is_the_modes_own(fake: str) -> None:
    plan = make_plan(spec_of(fake))
    assert plan.baseline is not None
    assert (plan.baseline.label, plan.target.label) == ("fake_fp32", "fake_off")
    assert plan.baseline.backend is plan.target.backend


def test_each_side_gets_the_settings_that_it_reads_in_their_types(fake: str) -> None:
    options = {"pause": "2", "keep": "x", "baseline.pause": 1, "offset": "a,b"}
    plan = make_plan(spec_of(fake, options=options, seed=7, memory_budget=1 << 30))
    assert plan.baseline is not None
    assert plan.baseline.spec.options == {"pause": 1, "side": "baseline", "seed": 7, "target_mode": "fake_off"}
    assert plan.target.spec.options == {
        "pause": 2, "keep": "x", "offset": ("a", "b"), "side": "target", "seed": 7, "target_mode": "fake_off",
    }  # fmt: skip


def test_options_are_plain_values(fake: str, root: Path) -> None:
    """They travel to a child process and into the report; what is alive has fields and arguments of its own."""
    digits = str(root / "examples" / "digits" / "digits.onnx")
    for spec in (
        spec_of(fake, options={"offset": ["a"]}),
        spec_of(digits, "ort_fp16", options={"op_block_list": "Conv"}),
    ):
        plan = make_plan(spec, check_machine=False)
        for side in (plan.baseline, plan.target):
            assert side is not None
            json.dumps(dict(side.spec.options))


def test_each_side_works_in_a_folder_of_its_own(fake: str, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    plan = make_plan(spec_of(fake), work_dir=str(tmp_path / "work"))
    assert plan.baseline is not None
    folders = [Path(side.spec.work_dir) for side in (plan.baseline, plan.target)]
    assert folders == [tmp_path / "work" / "baseline", tmp_path / "work" / "target"]
    assert all(folder.is_dir() for folder in folders)


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ({"mode": "fake_absent"}, BackendUnavailable, "run mode fake_absent cannot run here: needs a unicorn"),
        ({"options": {"paus": 1}}, UsageError, r"neither the baseline fake_fp32 nor .* takes this setting.*pause"),
        ({"options": {"pause": "many"}}, UsageError, "'many' is not a whole number"),
        ({"options": {"baseline.keep": "x"}}, UsageError, "it is for the target only"),
        ({"seed": -1}, UsageError, "expects a whole number, 0 or greater"),
        ({"model": "nowhere.fake"}, ModelError, "nowhere.fake: no such model"),
        ({"record": "folder", "top1": True}, UsageError, "--top1: needs a comparison, and --record without --baseline"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    fake: str, change: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        make_plan(spec_of(**{"model": fake, **change}))


def test_a_machine_is_not_asked_where_that_would_cost(fake: str) -> None:
    assert make_plan(spec_of(fake, "fake_absent"), check_machine=False).target.label == "fake_absent"


def test_a_run_that_is_only_recorded_has_no_baseline(fake: str) -> None:
    assert make_plan(spec_of(fake, record="folder")).baseline is None


def test_a_stage_keeps_what_its_mode_reads(fake: str) -> None:
    spec = spec_of(fake, options={"offset": "a", "pause": 1, "target.keep": "x"})
    stage = make_stage_spec(spec, "fake_fp32", {"pause": 2})
    assert stage.run_mode == "fake_fp32"
    assert stage.options == {"pause": 1, "target.keep": "x", "target.pause": 2}


@pytest.mark.parametrize(
    ("target", "mode", "other", "baseline"),
    [
        ("a.py:make", "torch_fp16", "b.py:make", "torch_fp32"),
        ("a.py:make", "torch_compile", "b.py", "torch_fp32"),
        ("m.onnx", "ov_int8", "n.onnx", "ov_fp32"),
        ("m.onnx", "ort_int8", "n.onnx", "ort_fp32"),
        ("m.onnx", "trt_fp16", "n.onnx", "ort_fp32"),
        ("m.engine", "trt_engine", "n.onnx", "ort_fp32"),
        ("m.onnx", "ort_fp32", "b.py:make", "torch_fp32"),
        ("m.onnx", "ort_fp32", "p.py:make", "dygraph_fp32"),
        ("p.py:make", "dygraph_bf16", "q.py:make", "dygraph_fp32"),
    ],
)
def test_the_baseline_of_another_model_is_the_targets_own_engine(
    tmp_path: Path, target: str, mode: str, other: str, baseline: str
) -> None:
    for name, text in (("a.py", "import torch"), ("b.py", "x = 1\nfrom torch import nn"), ("p.py", "import paddle"),
                       ("q.py", ""), ("m.onnx", ""), ("n.onnx", ""), ("m.engine", "")):  # fmt: skip
        (tmp_path / name).write_text(text)
    spec = spec_of(str(tmp_path / target), mode, baseline_model=ModelFiles(model_file=str(tmp_path / other)))
    plan = make_plan(spec, check_machine=False)
    assert plan.baseline is not None
    assert plan.baseline.label == baseline


def test_which_engine_a_file_is_of_is_asked_where_nothing_tells(tmp_path: Path) -> None:
    for name in ("q.py", "m.onnx"):
        (tmp_path / name).write_text("")
    spec = spec_of(str(tmp_path / "m.onnx"), "ort_fp32", baseline_model=ModelFiles(model_file=str(tmp_path / "q.py")))
    with pytest.raises(UsageError, match="--baseline torch_fp32"):
        make_plan(spec, check_machine=False)
