"""A program that is kept (TorchScript, .pt2) beside its module: what belongs together by what it is computed of."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="needs torch")

import precision_debug  # noqa: E402
from precision_debug.records import Status  # noqa: E402
from precision_debug.report.model import Report  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

SOURCE = """\
import torch


class Block(torch.nn.Module):
    def __init__(self, epsilon, scale):
        super().__init__()
        self.n = torch.nn.LayerNorm(16, eps=epsilon)
        self.q, self.k, self.v, self.o = (torch.nn.Linear(16, 16) for _ in range(4))
        self.scale = scale

    def forward(self, x):
        h = self.n(x * self.scale)
        q, k, v = (one(h).unflatten(-1, (2, 8)).transpose(1, 2) for one in (self.q, self.k, self.v))
        share = (q @ k.transpose(-1, -2) * 8**-0.5).softmax(-1)
        return x + self.o((share @ v).transpose(1, 2).flatten(2))


def model(epsilon=1e-5):
    torch.manual_seed(0)
    return torch.nn.Sequential(Block(epsilon, 0.02), Block(1e-5, 1.0)).eval(), (torch.randn(2, 6, 16),)


def other():
    return model(1e-3)
"""


def traced(net: Any, x: Any, path: Path) -> Path:
    torch.jit.save(torch.jit.trace(net, x), str(path.with_suffix(".ts")))
    return path.with_suffix(".ts")


def taken_apart(net: Any, x: Any, path: Path) -> Path:
    held = io.BytesIO()
    torch.export.save(torch.export.export(net, (x,)).run_decompositions(), held)
    path.with_suffix(".pt2").write_bytes(held.getvalue())
    return path.with_suffix(".pt2")


def beside(folder: Path, keep: Callable[[Any, Any, Path], Path], factory: str) -> Report:
    """A kept program of one factory's model, beside the module of ``model``."""
    (folder / "net.py").write_text(SOURCE)
    known: dict[str, Any] = {}
    exec(SOURCE, known)
    net, (x,) = known[factory]()
    kept = keep(net, x, folder / "kept")
    return precision_debug.compare(
        kept, run_mode="torch_fp32", baseline="torch_fp32", baseline_model=f"{folder / 'net.py'}:model",
        inputs={"input": x.numpy()},
    )  # fmt: skip


def share_of(report: Report) -> float:
    """Of the rows, those that were compared; a kernel's own bookkeeping is none."""
    rows = [row for row in report.rows if "[" not in row.name]
    return sum(row.status in (Status.PASS, Status.FAIL) for row in rows) / len(rows)


@pytest.mark.parametrize("keep", [traced, taken_apart])
def test_a_program_without_calls_is_compared_operator_by_operator(
    keep: Callable[[Any, Any, Path], Path], tmp_path: Path
) -> None:
    """23 and 31 % were: one has no modules, the other no linear and no matmul."""
    report = beside(tmp_path, keep, "model")
    assert report.exit_status == 0
    assert share_of(report) > 0.95


def test_an_attribute_that_a_traced_program_holds_is_named(tmp_path: Path) -> None:
    """It was "the target computes something else", of a stretch of two operators."""
    report = beside(tmp_path, traced, "other")
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (first.name, first.cause, first.evidence["name"]) == ("0.n/layer_norm", "files_differ", "eps")
    assert (first.evidence["base"], first.evidence["target"]) == ("1e-05", "0.001")
    assert first.evidence["left"] == pytest.approx(0, abs=1e-3)
