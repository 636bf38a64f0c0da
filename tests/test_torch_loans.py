"""A baseline's tensors are lent while its run goes on: what is written afterwards is never seen too late."""

# ruff: noqa: E402

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch_models
from precision_debug_torch import TorchBackend
from precision_debug_torch.engine import loans
from precision_debug_torch.live import compare_module

from precision_debug.records import ModelFiles, SessionSpec

MODELS = Path(torch_models.__file__)


class Borrowing:
    """Keeps what is lent, and looks at it when it is asked back."""

    borrows = True

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}
        self.lent = self.most = 0

    def __call__(self, op_type: str, name: str, tensor: Any, /) -> None:
        self.seen[name] = np.array(tensor)

    def borrow(self, op_type: str, name: str, tensor: Any, /) -> Callable[[], None]:
        self.lent += 1
        self.most = max(self.most, self.lent)

        def give_back() -> None:
            self.lent -= 1
            self.seen[name] = np.array(tensor)

        return give_back


def seen(factory: str, hook: Any) -> tuple[dict[str, Any], list[str]]:
    backend = TorchBackend()
    spec = SessionSpec(
        model=ModelFiles(model_file=f"{MODELS}:{factory}"), mode="torch_fp32", options={"device": "cpu"}
    )  # fmt: skip
    feeds = backend.examples(spec)
    session = backend.open(spec, [feeds])
    session.run(feeds, hook)
    order = [meta.name for meta in session.tensors]
    session.close()
    return hook.seen, order


class Copying:
    borrows = True

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}

    def __call__(self, op_type: str, name: str, tensor: Any, /) -> None:
        self.seen[name] = np.array(tensor)


@pytest.mark.parametrize("factory", ["resnet", "encoder", "decoder", "odd"])
def test_what_is_lent_is_what_a_hook_is_shown(factory: str) -> None:
    borrowing = Borrowing()
    lent, shown = seen(factory, borrowing)[0], seen(factory, Copying())[0]
    assert list(lent) == list(shown)
    assert borrowing.most > 5
    assert borrowing.lent == 0
    for name, value in shown.items():
        np.testing.assert_array_equal(lent[name], value, err_msg=name)


class Writes(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Its memory is written by numpy, which no operator tells."""

    def forward(self, x: Any) -> Any:
        first = x * 2
        memory = first.numpy()
        second = first + 1
        memory[...] = -5
        third = second + first
        memory[...] = 7
        return third * 3


def test_memory_that_the_model_hands_out_is_not_lent_any_more() -> None:
    report = compare_module(Writes(), {"x": torch.ones(4)}, run_mode="torch_fp32", device="cpu", compare_on="host")
    ranges = {row.name: (row.comparison.base.min, row.comparison.base.max) for row in report.rows if row.comparison}
    assert ranges == {"x": (1, 1), "mul": (2, 2), "detach": (2, 2), "add": (3, 3), "add#2": (-2, -2), "mul#2": (-6, -6),
                      "output": (-6, -6)}  # fmt: skip


def test_loans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loans, "_ON_HOST", 4096)
    held: list[int] = []

    class Watched(loans.Loans):
        def lend(self, op_type: str, name: str, tensor: Any, shown: Any) -> None:
            super().lend(op_type, name, tensor, shown)
            held.append(self.lent.bytes)

    monkeypatch.setattr("precision_debug_torch.session.Loans", Watched)
    report = compare_module(*torch_models.decoder(), run_mode="torch_bf16", device="cpu", compare_on="host")
    assert len(held) > 20
    assert 0 < max(held) <= 4096
    assert any(row.comparison for row in report.rows)
