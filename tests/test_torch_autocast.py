"""A watched run under autocast computes what a plain one does, to the bit, also where a whole layer is one operator."""

# ruff: noqa: E402

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.functional as F
from precision_debug_torch.backend import open_model
from precision_debug_torch.live import compare_module
from precision_debug_torch.model import example_feeds, from_module
from torch import nn

from precision_debug.numbers.arrays import as_array


def layer() -> Any:
    return nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)


class Calls(nn.Module):
    """A function of one tensor."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


class Switches(nn.Module):
    """The same layer with autocast on, off, and on again."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.first = layer(), nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        on = self.layer(x)
        with torch.autocast("cpu", enabled=False):
            off = self.layer(x)
        return on, off, self.layer(self.first(x)), self.layer(self.first(x).float())


CASES = {
    "layer": layer,
    "encoder": lambda: nn.TransformerEncoder(layer(), 2, enable_nested_tensor=False),
    "switches": Switches,
    "bilinear": lambda: Calls(lambda x: F.bilinear(x, x, torch.ones(3, 16, 16))),
    "pinv": lambda: Calls(torch.linalg.pinv),
    "sparse": lambda: Calls(lambda x: torch.sparse.mm(x[0].to_sparse(), x[0].mT.contiguous())),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("case", CASES)
def test_outputs_are_a_plain_runs(case: str, dtype: str) -> None:
    torch.manual_seed(0)
    module, x = CASES[case]().eval(), torch.randn(2, 5, 16)
    with torch.no_grad(), torch.autocast("cpu", dtype=getattr(torch, dtype)):
        plain = module(x)
    wanted = [as_array(tensor) for tensor in (plain if isinstance(plain, tuple) else (plain,))]
    model = from_module(module, x)
    feeds = example_feeds(model)
    mode = {"bfloat16": "torch_autocast_bf16", "float16": "torch_autocast_fp16"}[dtype]
    session = open_model(model, mode, {"device": "cpu"}, [feeds])
    for hook in (None, lambda kind, name, tensor: None):
        found = [np.asarray(array) for array in session.run(feeds, hook).values()]
        assert [array.dtype for array in found] == [array.dtype for array in wanted]
        assert [array.tobytes() for array in found] == [array.tobytes() for array in wanted]
    session.close()


def test_the_error_that_is_judged_is_the_runs_own() -> None:
    torch.manual_seed(0)
    module, x = layer().eval(), torch.randn(2, 5, 16)
    with torch.no_grad():
        exact = module(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            cast = module(x)
    error = float((cast.float() - exact).norm() / exact.norm())
    report = compare_module(module, x, run_mode="torch_autocast_bf16", device="cpu")
    assert report.outputs[0].relative_l2 == pytest.approx(error, rel=1e-3)


class Angles(nn.Module):
    """Angles of positions, made by an operator that autocast runs low, on views; what else it does is harmless."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.scale, self.last = kind, nn.Buffer(0.01 * torch.eye(8)), nn.Linear(8, 8)

    def forward(self, x: Any, positions: Any) -> Any:
        p, scale = positions.float()[:, :, None].expand(-1, -1, 8), self.scale
        calls = {
            "matmul": lambda: p @ scale,
            "outer": lambda: (scale.sum(0)[None, :, None].expand(2, -1, 1) @ p[:, None, :, 0]).transpose(1, 2),
            "bmm": lambda: torch.bmm(p, scale.expand(2, 8, 8)),
            "baddbmm": lambda: torch.baddbmm(torch.zeros(1), p, scale.expand(2, 8, 8)),
            "linear": lambda: F.linear(p, scale),
            "addmm": lambda: torch.addmm(torch.zeros(8), p.reshape(-1, 8), scale).view(2, 64, 8),
            "convolution": lambda: F.conv1d(p.permute(0, 2, 1), scale[:, :, None]).mT,
            "einsum": lambda: torch.einsum("btc,cd->btd", p, scale),
        }
        return self.last(x) * torch.cos(calls[self.kind]())


PRODUCTS = {"matmul": "mm", "outer": "bmm", "linear": "mm", "einsum": "bmm"}
"""The operator of ATen that each of these calls computes by."""


@pytest.mark.parametrize("kind", ["matmul", "outer", "bmm", "baddbmm", "linear", "addmm", "convolution", "einsum"])
def test_casts_are_charged_to_the_operator_that_autocast_runs_low(kind: str) -> None:
    """64 positions beyond 2^14 are one number in bfloat16: the product's doing, not that of a view behind the cast."""
    torch.manual_seed(0)
    feeds = (torch.randn(2, 64, 8), torch.arange(16384, 16448)[None].expand(2, -1))
    report = compare_module(Angles(kind), feeds, run_mode="torch_autocast_bf16", explain="full")
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (first.name, first.op_types) == (PRODUCTS.get(kind, kind), (f"aten.{PRODUCTS.get(kind, kind)}",))
    assert (first.cause, first.evidence["before"], first.evidence["after"]) == ("coarse", 64, 1)


class Called(nn.Module):
    """Positions that one call reads which autocast runs low inside; a recurrent cell subtracts the first of them."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.last = kind, nn.Linear(8, 8)
        made = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN, "gru_cell": nn.GRUCell, "lstm_cell": nn.LSTMCell}
        given = {} if kind.endswith("cell") else {"batch_first": True}
        self.cell = made[kind](8, 8, **given) if kind in made else nn.Identity()
        with torch.no_grad():
            for name, one in self.cell.named_parameters():
                if name.startswith("weight_ih"):
                    one.copy_(one.sign() / 32)
                    one[:, 4:].copy_(-one[:, :4])

    def forward(self, x: Any, positions: Any) -> Any:
        p = positions.float()[:, :, None].expand(-1, -1, 4)
        p = torch.cat([p, torch.full_like(p, 16384.0)], -1)
        if self.kind == "attention":
            y = F.scaled_dot_product_attention(x, x, p)
        elif self.kind == "attention_of_heads":
            y = F.scaled_dot_product_attention(x[:, None], x[:, None], p[:, None])[:, 0]
        else:
            y = self.cell(p.flatten(0, 1)) if self.kind.endswith("cell") else self.cell(p)[0]
            y = (y[0] if isinstance(y, tuple) else y).view(2, 16, 8)
        return self.last(x) * torch.cos(y)


@pytest.mark.parametrize("kind", ["attention", "attention_of_heads", "gru", "lstm", "rnn", "gru_cell", "lstm_cell"])
def test_attention_and_recurrent_cells_are_told_by_the_numbers_that_become_one(kind: str) -> None:
    torch.manual_seed(0)
    feeds = (torch.randn(2, 16, 8), torch.arange(16384, 16400)[None].expand(2, -1))
    report = compare_module(Called(kind), feeds, run_mode="torch_autocast_bf16", explain="full")
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert first.name.startswith("scaled" if "attention" in kind else kind.partition("_")[0]) or "cell" in first.name
    assert (first.cause, first.evidence["before"], first.evidence["after"]) == ("coarse", 16, 1)


def test_numbers_that_a_cast_only_rounds_become_no_other_cause() -> None:
    torch.manual_seed(0)
    feeds = (torch.randn(2, 64, 8), torch.arange(64)[None].expand(2, -1))  # exact in bfloat16
    report = compare_module(Angles("outer"), feeds, run_mode="torch_autocast_bf16", explain="full")
    assert report.explanation is not None
    assert not any("before" in culprit.evidence for culprit in report.explanation.culprits)
