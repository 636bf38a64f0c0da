"""Under autocast, what one line of a model's own forward calls is kept in float32."""

# ruff: noqa: E402

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from precision_debug_torch.engine.keep_float32 import is_line as line_in_torch
from precision_debug_torch.engine.keep_float32 import keep_in_float32

import precision_debug
from precision_debug import Report
from precision_debug.cli import main
from precision_debug.errors import UsageError
from precision_debug.protocols import is_line

pytestmark = pytest.mark.engine("torch")

MODEL = """
import torch
from torch import nn

class Between(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 16)

    def forward(self, x):
        h = self.up(x)
        scores = h @ h.transpose(-1, -2) + 256.0
        mixed = torch.bmm(scores - 256.0, h)
        return self.down(mixed)

def make():
    torch.manual_seed(0)
    return Between().eval(), torch.randn(2, 8, 32)
"""
LINE = "between.py:12"


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "between.py").write_text(MODEL)
    return f"{tmp_path / 'between.py'}:make"


def error(net: str, **options: Any) -> float:
    report = precision_debug.compare(net, run_mode="torch_autocast_bf16", explain="off", device="cpu", **options)
    found = report.outputs[0].relative_l2
    assert found is not None
    return found


def test_a_line_is_kept_and_nothing_else(net: str) -> None:
    report = precision_debug.compare(
        net, run_mode="torch_autocast_bf16", explain="off", device="cpu", keep_modules=LINE
    )
    types = {row.name: row.comparison.target.dtype for row in report.compared if row.comparison is not None}
    assert types["up/addmm"] == "bfloat16"
    assert types["add"] == "float32"
    assert error(net, keep_modules=LINE) < error(net) / 4


def test_what_was_kept_with_the_whole_model_is_kept_by_its_line(net: str) -> None:
    report = precision_debug.compare(net, run_mode="torch_autocast_bf16", device="cpu")
    kept = report.to_keep
    assert kept is not None
    assert (kept.keys, kept.state) == ((LINE,), "mended")
    assert kept.option == f"""--option 'keep_modules=["{LINE}"]'"""
    assert kept.after is not None
    assert error(net, keep_modules=LINE) == pytest.approx(kept.after)


def test_a_search_hands_over_the_line_and_a_file_that_does_it(net: str, tmp_path: Path) -> None:
    output = tmp_path / "o.json"
    assert main(["search", "--model_file", net, "--run_mode", "torch_autocast_bf16", "--device", "cpu", "--limit",
                 "0.01", "--quiet", "--output", str(output)]) == 0  # fmt: skip
    fix = Report.load(output).fix
    assert fix is not None
    assert [unit.key for unit in fix.kept] == [LINE]
    lines = next(item.text for item in fix.artefacts if item.kind == "config")
    assert "enabled=False" in lines
    assert "    scores = h @ h.transpose(-1, -2) + 256.0" in lines
    assert [item.verified for item in fix.artefacts if item.kind != "config"] == [True, True]


def test_lines_are_refused_where_the_weights_are_narrow(net: str) -> None:
    with pytest.raises(UsageError, match="under autocast alone"):
        precision_debug.compare(net, run_mode="torch_bf16", explain="off", device="cpu", keep_modules=LINE)


def test_a_line_that_writes_into_a_tensor_still_writes(tmp_path: Path) -> None:
    path = tmp_path / "writes.py"
    path.write_text("import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
                    "        y = x.bfloat16()\n        y += x; y[0] = 3.0; y.mul_(2)\n        return y\n")  # fmt: skip
    module = runpy.run_path(str(path))["Net"]()
    plain = module(torch.ones(4))
    keep_in_float32(module, ["writes.py:5"])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        kept = module(torch.ones(4))
    assert kept.dtype == torch.bfloat16
    assert torch.equal(kept, plain)
    assert torch.overrides._get_current_function_mode() is None


def test_the_mode_ends_with_a_run_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "fails.py"
    path.write_text("import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x @ x\n")
    module = runpy.run_path(str(path))["Net"]()
    keep_in_float32(module, ["fails.py:4"])
    with pytest.raises(RuntimeError, match="multipl"):
        module(torch.ones(2, 3))
    assert torch.overrides._get_current_function_mode() is None


@pytest.mark.parametrize("name", ["model.py:57", "up", "a.b", "(model)", "(between)", "model.py", "a/model.py:5"])
def test_both_homes_of_the_rule_agree(name: str) -> None:
    """One of them is copied to users, who have nothing but torch."""
    assert is_line(name) is line_in_torch(name) is (name == "model.py:57")


def test_what_lies_between_modules_is_refused_under_autocast(net: str) -> None:
    """It would be read by nobody: autocast casts call by call, and a line of source names one."""
    with pytest.raises(UsageError) as told:
        error(net, keep_modules="['(between)']")
    assert told.value.where == "--option keep_modules"
    assert "model.py:57" in str(told.value.hint)
