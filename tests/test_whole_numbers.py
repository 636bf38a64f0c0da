"""Which type whole numbers wrapped around in, and decisions that another operator makes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import precision_debug
from precision_debug.explain import whole_numbers
from precision_debug.explain.whole_numbers import find_wrapped_integers


@pytest.mark.parametrize("held", [np.int32, np.uint8, np.int16])
@pytest.mark.parametrize("shown", ["as it is", "in int64"])
def test_the_type_is_that_in_which_all_are_what_the_target_has(
    held: Any, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = np.linspace(0, 3 * np.iinfo(held).max, 200).astype(np.int64)
    wrong = exact.astype(held)
    wrong = wrong.astype(np.int64) if shown == "in int64" else wrong
    alone: Any = SimpleNamespace(exact_of=lambda _: exact, wrong_of=lambda _: wrong)
    monkeypatch.setattr(whole_numbers, "make_exact_evaluator", lambda _: None)
    monkeypatch.setattr(whole_numbers, "_list_integer_constants", lambda *_: {})
    subject: Any = None
    assert find_wrapped_integers(subject, alone, "y")["type"] == np.dtype(held).name


def look_up_nearest() -> Any:
    """A module of PyTorch and its input: an activation out of a table, at the nearest place."""
    return _make_table("round")


def look_up_below() -> Any:
    """The same at the place below."""
    return _make_table("floor")


def _make_table(how: str) -> Any:
    import torch

    class Table(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Linear(8, 12), torch.nn.Linear(12, 4)
            self.register_buffer("table", torch.nn.functional.silu((torch.arange(65) - 32) / 8.0))

        def forward(self, x: Any) -> Any:
            place = self.a(x).clamp(-4, 4) * 8 + 32
            return self.b(self.table[getattr(place, how)().long()])

    torch.manual_seed(0)
    return Table().eval(), {"x": torch.randn(4, 8)}


def test_another_operator_that_decides_is_named_where_both_sides_are_wide() -> None:
    pytest.importorskip("torch")
    modes: Any = {"run_mode": "torch_fp32", "baseline": "torch_fp32"}
    below, nearest = f"{__file__}:look_up_below", f"{__file__}:look_up_nearest"
    report = precision_debug.compare(below, baseline_model=nearest, **modes)
    assert report.explanation is not None
    culprit, *_ = report.explanation.culprits
    assert culprit.cause in ("other_arithmetic", "files_differ")
    assert {"aten.floor", "aten.round"} <= {*map(str, culprit.evidence.values())}
