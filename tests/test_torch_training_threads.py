"""The training steps of examples/training, rebuilt from public reports: who is named, and what was tried."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from precision_debug.cli import main

CASES = {
    "infinite_gradient": ("backward/mul/mul", "gradient_overflow", "a loss scale of 8192 .* as expected"),
    "grown_attention": ("blocks.1/add#3", "overflow", r"keeping 1 of 16 modules \(`blocks.1`\) .* as expected"),
    "lost_floor": ("backward/mul#2/mul", "gradient_overflow", "a loss scale of 64 .* as expected"),
    "distilled_in_half": ("log_softmax", "cancellation", "No fix was found"),
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
