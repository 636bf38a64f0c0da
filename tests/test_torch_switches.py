"""Models that turn what the whole process shares: two runs of them never advance together."""

# ruff: noqa: E402

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from approval import holds_approved

torch = pytest.importorskip("torch", reason="torch is not installed")

from precision_debug_torch.live import compare_module
from torch import nn

import precision_debug
from precision_debug.records import Status

TURNS = """
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(8, 8)

    def attend(self, x):
        q = self.mix(x)
        return torch.nn.functional.scaled_dot_product_attention(q, q, q)

    def forward(self, x):
        x = x.reshape(1, 2, -1, 8)
        for _ in range(4):
            with sdpa_kernel(SDPBackend.MATH):
                x = x + self.attend(x)
            x = x + self.attend(x)
        return x

def build(): return Net().eval(), torch.ones(1, 12, 8)
"""
SWITCHES = ("flash_sdp_enabled", "math_sdp_enabled", "mem_efficient_sdp_enabled")


def switches() -> list[bool]:
    return [getattr(torch.backends.cuda, name)() for name in SWITCHES]


def kernels(report: Any) -> list[str]:
    found = [row for row in report.rows if "_scaled_dot_product" in row.target_op_type]
    return [row.target_op_type for row in found if "[" not in row.name]


@pytest.mark.parametrize("mode", ["torch_fp32", "torch_bf16"])
def test_sdpa_kernel_inside_forward(mode: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(TURNS)
    before = switches()
    more: dict[str, Any] = {"run_mode": mode, "atol": 0.5, "rtol": 0.5, "device": "cpu"}
    reports = [
        precision_debug.compare(f"{tmp_path}/m.py:build", lockstep=lockstep, **more) for lockstep in (False, None, True)
    ]
    assert switches() == before
    for report in reports:
        assert len(kernels(report)) == 4, "every second call only"
        assert {row.status for row in report.rows if row.comparison is not None} == {Status.PASS}
        if mode == "torch_fp32":
            assert all(row.comparison.identical for row in report.compared if row.comparison is not None)
    assert [row.name for row in reports[0].rows] == [row.name for row in reports[1].rows]
    assert not any("one after the other" in note for note in reports[0].notes)
    for report in reports[1:]:
        assert any("one after the other" in note and "sdpa_kernel" in note for note in report.notes)


def test_a_live_module_that_turns_a_switch(tmp_path: Path) -> None:
    scope: dict[str, Any] = {}
    exec(TURNS, scope)
    report = compare_module(*scope["build"](), run_mode="torch_fp32", device="cpu")
    assert any("one after the other" in note for note in report.notes)
    assert all(row.comparison.identical for row in report.compared if row.comparison is not None)


def test_runs_that_share_a_variable_of_the_process_are_told() -> None:
    turns = [0]

    class Shared(nn.Module):
        def forward(self, x: Any) -> Any:
            turns[0] += 1
            return x.relu() if turns[0] < 3 else x.tanh()

    report = compare_module(Shared(), torch.randn(3, 3), run_mode="torch_fp32", device="cpu")
    assert any("did something different" in note for note in report.notes)
    assert {row.name: row.status for row in report.rows} == {"x": "pass", "tanh": "pass", "output": "pass"}


def test_a_factory_is_one_row_whether_or_not_a_hook_holds_its_tensor() -> None:
    """torch hands over another tensor of the same memory where somebody holds the first one."""
    from precision_debug_torch.engine.arithmetic import Arithmetic
    from precision_debug_torch.engine.dispatch import Trace, Watch
    from precision_debug_torch.modes import recipe

    def rows(hold: bool) -> list[tuple[str, tuple[str, ...]]]:
        held: list[Any] = []
        x = torch.ones(4)
        trace = Trace("op", constants=[], feeds={"x": x}, show=lambda _, value: held.append(value) if hold else None)
        rules = Arithmetic(recipe("torch_fp32"), device=torch.device("cpu"), seed=0)
        rules.reset()
        with torch.no_grad(), Watch(rules, trace):
            places = torch.arange(4)
            room = torch.empty(4)
            room.copy_(x * places)
            room + torch.zeros(4).detach() + torch.full((4,), 2.0) + torch.randn(4)
        return [(meta.name, meta.inputs) for meta in trace.metas]

    assert rows(hold=True) == rows(hold=False)
    assert dict(rows(hold=True))["mul"] == ("x", "arange")


def test_others_go_side_by_side() -> None:
    report = compare_module(nn.Linear(3, 3), torch.randn(3, 3), run_mode="torch_bf16", device="cpu")
    assert report.notes == ()


def test_a_dropout_that_is_left_on_is_said(tmp_path: Path) -> None:
    """Both runs draw the same numbers, so that the comparison finds nothing: before, nobody said it."""
    file = tmp_path / "model.py"
    file.write_text(
        "import torch\nfrom torch.nn import functional as F\n\n\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self, on):\n        super().__init__()\n"
        "        self.on, self.a = on, torch.nn.Linear(8, 8)\n\n"
        "    def forward(self, x):\n        return F.dropout(self.a(x), 0.2, training=self.on or self.training)\n\n\n"
        "def left_on():\n    return Net(True), torch.randn(4, 8)\n\n\n"
        "def off():\n    return Net(False), torch.randn(4, 8)\n"
    )
    said = precision_debug.compare(f"{file}:left_on", run_mode="torch_bf16").target.notes
    assert holds_approved([str(note) for note in said])
    quiet = [
        *precision_debug.compare(f"{file}:off", run_mode="torch_bf16").target.notes,
        *precision_debug.compare(f"{file}:left_on", run_mode="torch_bf16", training=True).target.notes,
    ]
    assert not any("drops values at random" in str(note) for note in quiet)
