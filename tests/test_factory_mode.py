"""A factory's module runs in the mode, training or evaluation, in which it comes; or the change is an open question."""

from __future__ import annotations

from pathlib import Path

import pytest

import precision_debug

TORCH = """
import torch
from torch import nn
class Drops(nn.Module):
    def forward(self, x): return nn.functional.dropout(x, 0.5, self.training)
KINDS = {"norm": lambda: nn.BatchNorm1d(4), "drop": lambda: nn.Dropout(0.5), "own": Drops,
         "off": lambda: nn.Dropout(0.0),
         "layer": lambda: nn.LayerNorm(4), "attention": lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)}
def made(kind, mode):
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(4, 4), KINDS[kind]())
    m.train(mode == "train")
    if mode == "part":
        m[1].train()
    return m, torch.linspace(-1, 2, 24).reshape(6, 4)
"""
PADDLE = """
import numpy as np, paddle
from paddle import nn
class Drops(nn.Layer):
    def forward(self, x): return nn.functional.dropout(x, 0.5, training=self.training)
KINDS = {"norm": lambda: nn.BatchNorm1D(4), "drop": lambda: nn.Dropout(0.5), "own": Drops,
         "off": lambda: nn.Dropout(0.0),
         "layer": lambda: nn.LayerNorm(4), "attention": lambda: nn.TransformerEncoderLayer(4, 2, 8)}
def made(kind, mode):
    m = nn.Sequential(nn.Linear(4, 4), KINDS[kind]())
    m.train() if mode == "train" else m.eval()
    if mode == "part":
        m[1].train()
    x = np.linspace(-1, 2, 24, dtype="float32").reshape(6, 4)
    return m, paddle.to_tensor(x.reshape(1, 6, 4) if kind == "attention" else x)
"""
MATTERS = {"norm", "drop", "own", "attention"}


def factory(folder: Path, framework: str, kind: str, mode: str) -> str:
    pytest.importorskip(framework, reason=f"needs {framework}")
    text = TORCH if framework == "torch" else PADDLE
    file = folder / f"{framework}_{kind}_{mode}.py"
    file.write_text(f"{text}\ndef f(): return made({kind!r}, {mode!r})\n", encoding="utf-8")
    return f"{file}:f"


def compared(path: str, framework: str, **options: object) -> precision_debug.Report:
    mode = "torch_fp32" if framework == "torch" else "dygraph_fp32"
    return precision_debug.compare(
        path, run_mode=mode, baseline=mode, explain="off", atol=1e-6, rtol=1e-6, **options
    )


@pytest.mark.parametrize("framework", ["torch", "paddle"])
@pytest.mark.parametrize("kind", ["norm", "drop", "own", "off", "layer", "attention"])
def test_a_module_in_training_mode_is_put_out_of_it_in_the_open(framework: str, kind: str, tmp_path: Path) -> None:
    report = compared(factory(tmp_path, framework, kind, "train"), framework)
    said = {doubt.code for doubt in report.doubts}
    assert ("put_in_evaluation" in said) == (kind in MATTERS)
    assert report.exit_status == (1 if kind in MATTERS else 0)


@pytest.mark.filterwarnings("ignore:When training, we now always track")  # Paddle's own, of its batch norm
@pytest.mark.parametrize("framework", ["torch", "paddle"])
@pytest.mark.parametrize("kind", ["norm", "drop", "own"])
def test_what_a_factory_says_is_done(framework: str, kind: str, tmp_path: Path) -> None:
    """Evaluation, one part in training, and all of it where training=1: each runs so, and again the same."""
    outputs = {}
    for mode, options in (("eval", {}), ("part", {}), ("train", {"training": True})):
        report = compared(factory(tmp_path, framework, kind, mode), framework, **options)
        assert {doubt.code for doubt in report.doubts} <= {"draws_numbers"}, "a dropout does"
        row = next(row for row in report.rows if row.is_output)
        assert row.comparison is not None
        outputs[mode] = (row.comparison.target.min, row.comparison.target.max)
    assert outputs["part"] == outputs["train"]
    assert outputs["eval"] != outputs["part"]
