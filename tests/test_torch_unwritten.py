"""Uninitialised memory is compared with nothing, through whatever view, until it is written."""

# ruff: noqa: E402

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from precision_debug_torch.live import compare_module
from torch import nn

from precision_debug.records import Status


class Slices(nn.Module):
    """Rows of a buffer are read before they are written, as in a mixture of experts."""

    def forward(self, x: Any) -> Any:
        buffer = x.new_empty(4, 3)
        first, rest = buffer[:1], buffer[1:].view(-1)  # both unwritten
        first.copy_(x[:1])
        again = buffer[:1].t()  # written
        rest.clone()  # unwritten
        buffer.index_put_((torch.tensor([1, 2]),), x[1:3])  # the last row is unwritten
        late = buffer[1:3].t()  # written
        buffer[3:].fill_(2)
        return buffer.view(2, 6), again.reshape(-1), late.reshape(-1)


def test_what_is_unwritten_stays_so_through_views_and_ends_where_it_is_written() -> None:
    report = compare_module(Slices(), torch.randn(4, 3), run_mode="torch_fp64", device="cpu")
    unseen = [row.name for row in report.rows if "uninitialised" in str(row.reason)]
    by_name = {row.name: row for row in report.rows}
    assert not any(by_name[name].comparison for name in unseen)
    shown = {row.name for row in report.rows if row.comparison is not None}
    assert {"copy", "t", "t#2", "fill", "output[0]", "output[1]", "output[2]"} <= shown
    assert not [row for row in report.rows if row.status is Status.FAIL]
    assert {"new_empty", "slice", "view", "clone", "index_put"} <= set(unseen)


@pytest.mark.parametrize("way", ["fill_", "copy_", "numpy", "out"])
def test_memory_that_was_written_is_compared(way: str) -> None:
    class Writes(nn.Module):
        def forward(self, x: Any) -> Any:
            buffer = torch.empty_like(x)
            if way == "fill_":
                buffer.fill_(1)
            elif way == "copy_":
                buffer.view(-1).copy_(x.view(-1))
            elif way == "numpy":
                buffer.detach().numpy()[:] = 3
            else:
                torch.mul(x, 2, out=buffer)
            return buffer.t() + 1

    report = compare_module(Writes(), torch.randn(4, 3), run_mode="torch_fp64", device="cpu")
    rows = {row.name: row for row in report.rows}
    assert rows["t"].comparison is not None
    assert rows["output"].status is Status.PASS
