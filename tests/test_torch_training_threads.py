"""The training steps of examples/training, rebuilt from public reports: who is named, and what was tried."""

# ruff: noqa: E402

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from precision_debug.cli import main
from precision_debug.records import Tolerance
from precision_debug.report.lead import lead_sentences

CASES = {
    "infinite_gradient": ("backward/mul/mul", "gradient_overflow", "a loss scale of 2\\^13 .* as expected"),
    "grown_attention": ("blocks.1/add#3", "overflow", r"keeping 1 of 17 modules \(`blocks.1`\) .* as expected"),
    "lost_floor": ("backward/mul#2/mul", "gradient_overflow", "a loss scale of 2\\^6 .* as expected"),
    "distilled_in_half": (
        "log_softmax", "cancellation",
        r"`steps.py:127` calls .* only by giving up most of FP16: keeping 1 of 7 modules \(`head`\) .* as expected",
    ),
}


@pytest.mark.parametrize("step", ["backward", "optimiser"])
@pytest.mark.parametrize("name", CASES)
def test_the_operator_of_a_public_report_is_named(
    root: Path, tmp_path: Path, name: str, step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With an optimiser, too, whose step GradScaler leaves out where a gradient is NaN or Inf."""
    out = tmp_path / "out.json"
    words = ["--run_mode", "torch_autocast_fp16", "--step", step, "--output", str(out), "--lang", "en"]
    assert main(["--model_file", f"{root}/examples/training/steps.py:{name}", *words]) == 1
    report = json.loads(out.read_text(encoding="utf-8"))
    who, cause, tried = CASES[name]
    first = report["explanation"]["culprits"][0]
    said = capsys.readouterr().out
    lead = " ".join(said.partition("OUT OF TOLERANCE")[0].split())
    assert (first["cause"], f"`{who}`" in lead) == (cause, True), lead
    assert "was not measured" not in said
    if step == "backward":
        assert re.search(tried, " ".join(said.split())), said


OPTIMISERS = {
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3, foreach=False),
    "foreach": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-4),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-3),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_epsilon_below_the_type_is_named(name: str) -> None:
    """Before the gradients' own rounding, which is there too: their loss is small."""
    from precision_debug_torch.live import compare_module

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(24, 48), torch.nn.GELU(), torch.nn.Linear(48, 5))
    report = compare_module(
        net, (torch.randn(12, 24),), run_mode="torch_fp16", device="cpu", optimiser=OPTIMISERS[name],
        loss=lambda out: torch.nn.functional.cross_entropy(out.float(), torch.arange(12) % 5) * 1e-3,
        settings={"step": "optimiser"}, explain="fast", tolerance=Tolerance(given=False),
    )  # fmt: skip
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (first.cause, first.name.partition("/")[0]) == ("epsilon_lost", "optimiser")
    assert first.evidence["parameters"] == 4
    said = lead_sentences(report)[0]
    assert "divides the update of `" in said.en
    assert "除以 0" in said.zh
