"""A target of which nothing computed in the precision that its mode promises proves nothing: one rule, every engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from approval import is_approved

import precision_debug
from precision_debug.report import Verdict
from precision_debug.report.doubts import describe_doubt
from precision_debug.report.lead import lead_sentences

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

MODULE = """
import torch

def norms():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.LayerNorm(16), torch.nn.Tanh())

def products():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
"""


def digits(mode: str, **options: object) -> precision_debug.Report:
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    inputs = np.load(EXAMPLES / "digits" / "test_images.npz")
    feeds = {name: inputs[name][:8] for name in inputs.files}
    return precision_debug.compare(str(EXAMPLES / "digits" / "digits.onnx"), run_mode=mode, inputs=feeds, **options)


@pytest.mark.parametrize("options", [{}, {"explain": "off"}, {"atol": 1e-2, "rtol": 1e-2}], ids=str)
def test_float16_that_the_cpu_computed_in_float32_is_inconclusive_and_that_is_said_first(
    options: dict[str, object],
) -> None:
    report = digits("ort_fp16", **options)
    if not any("0 of 13 floating-point nodes compute in float16" in note for note in report.target.notes):
        pytest.skip("ONNX Runtime has float16 kernels for this processor")
    assert report.verdict is Verdict.INCONCLUSIVE
    first = lead_sentences(report)[0]
    assert first == describe_doubt(report.doubts[0])
    assert is_approved(first.en)
    assert first.zh.startswith("没有任何部分以 FP16 运行：")


@pytest.mark.parametrize("mode", ["ort_int8", "ort_int8_dynamic", "ort_fp16_sim", "ort_opt"])
def test_what_ran_as_asked_stays_as_expected(mode: str) -> None:
    report = digits(mode)
    assert (report.verdict, report.doubts) == (Verdict.EXPECTED, ())


@pytest.mark.parametrize(
    ("factory", "mode", "ran"),
    [
        ("norms", "torch_autocast_bf16", False), ("norms", "torch_bf16", True),
        ("products", "torch_autocast_bf16", True), ("products", "torch_autocast_fp16", True),
    ],
)  # fmt: skip
def test_autocast_that_casts_nothing_is_inconclusive_too(tmp_path: Path, factory: str, mode: str, ran: bool) -> None:
    """Autocast leaves norms and pointwise operators in float32: a module of nothing else ran in that."""
    pytest.importorskip("torch", reason="needs torch")
    (tmp_path / "nets.py").write_text(MODULE, "utf-8")
    feeds = {"input": np.random.default_rng(0).normal(size=(4, 16)).astype(np.float32)}
    report = precision_debug.compare(f"{tmp_path / 'nets.py'}:{factory}", run_mode=mode, inputs=feeds)
    assert (report.verdict is Verdict.INCONCLUSIVE) is not ran, (report.verdict, report.doubts)
    assert [doubt.code for doubt in report.doubts] == ([] if ran else ["precision_unseen"])
