"""PyTorch: fused layers against separate ones, chunks and padding against the whole; see test_recut for the rules."""

from __future__ import annotations

from pathlib import Path

import pytest

import precision_debug
from precision_debug.records import Status
from precision_debug.report.model import Report

pytest.importorskip("torch", reason="needs PyTorch")
pytestmark = pytest.mark.engine("torch")

MODULE = """
import torch
from torch import nn
from torch.nn import functional as F


def attend(q, k, v):
    return (torch.softmax(q @ k.transpose(2, 3) / 8**0.5, -1) @ v).transpose(1, 2).reshape(2, 6, 32)


class Fused(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x):
        return self.out(attend(*(one.view(2, 6, 4, 8).transpose(1, 2) for one in self.qkv(x).split(32, -1))))


class ByHead(Fused):
    def __init__(self):
        super().__init__()
        order = torch.arange(96).view(3, 4, 8).transpose(0, 1).reshape(-1)
        for one in (self.qkv.weight, self.qkv.bias):
            one.data = one.data[order]

    def forward(self, x):
        return self.out(attend(*self.qkv(x).view(2, 6, 4, 3, 8).transpose(1, 2).unbind(3)))


class Apart(nn.Module):
    def __init__(self):
        super().__init__()
        fused = Fused()
        self.q, self.k, self.v, self.out = (nn.Linear(32, 32) for _ in range(4))
        for number, one in enumerate((self.q, self.k, self.v)):
            one.weight.data = fused.qkv.weight.data[32 * number : 32 * number + 32].clone()
            one.bias.data = fused.qkv.bias.data[32 * number : 32 * number + 32].clone()
        self.out.load_state_dict(fused.out.state_dict())

    def forward(self, x):
        return self.out(attend(*(one(x).view(2, 6, 4, 8).transpose(1, 2) for one in (self.q, self.k, self.v))))


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.gate, self.up, self.down = nn.Linear(32, 40), nn.Linear(32, 40), nn.Linear(40, 32)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class GateUp(nn.Module):
    def __init__(self):
        super().__init__()
        apart = Gate()
        self.gate_up, self.down = nn.Linear(32, 80), apart.down
        self.gate_up.weight.data = torch.cat([apart.gate.weight.data, apart.up.weight.data])
        self.gate_up.bias.data = torch.cat([apart.gate.bias.data, apart.up.bias.data])

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.first, self.norm, self.last = nn.Linear(32, 16), nn.LayerNorm(16), nn.Linear(16, 32)

    def forward(self, x):
        return self.last(self.norm(torch.relu(self.first(x))))


class Along(Layers):
    def forward(self, x):
        return torch.cat([super(Along, self).forward(one) for one in x.split([2, 3, 1], 1)], 1)


class OneNormScaled(Layers):
    def forward(self, x):
        found = []
        for number, one in enumerate(x.chunk(2)):
            one = torch.relu(self.first(one))
            scaled = self.norm.weight * 3 if number else self.norm.weight
            found.append(self.last(F.layer_norm(one, (16,), scaled, self.norm.bias)))
        return torch.cat(found)


class Placed(Layers):
    def __init__(self):
        super().__init__()
        self.places = nn.Parameter(torch.randn(8, 16) * 3)

    def forward(self, x):
        return self.place(x, 0)

    def place(self, x, first):
        at = torch.arange(x.shape[1]) + first
        return self.last(torch.tanh(self.first(x) + self.places[at]))


class PlacedInChunks(Placed):
    step = 2

    def forward(self, x):
        return torch.cat([self.place(one, self.step * at) for at, one in enumerate(x.split(2, 1))], 1)


class PlacedFromNought(PlacedInChunks):
    step = 0


def given():
    torch.manual_seed(1)
    return (torch.randn(2, 6, 32) * 2,)


def fused():
    return Fused(), given()


def by_head():
    return ByHead(), given()


def apart():
    return Apart(), given()


def apart_scaled():
    net = Apart()
    net.k.weight.data *= 1.3
    return net, given()


def fused_other():
    net = Fused()
    net.qkv.weight.data[64:] += 0.2
    return net, given()


def gate():
    return Gate(), given()


def gate_up():
    return GateUp(), given()


def gate_up_scaled():
    net = GateUp()
    net.gate_up.weight.data[40:] *= 1.1
    return net, given()


def layers():
    return Layers(), given()


def along():
    return Along(), given()


def along_scaled():
    net = Along()
    net.last.weight.data[3] *= 1.5
    return net, given()


def placed():
    return Placed(), given()


def placed_in_chunks():
    return PlacedInChunks(), given()


def placed_from_nought():
    return PlacedFromNought(), given()


def one_norm_scaled():
    return OneNormScaled(), given()
"""


def compare(folder: Path, target: str, base: str) -> Report:
    file = folder / "nets.py"
    file.write_text(MODULE)
    return precision_debug.compare(
        f"{file}:{target}", baseline_model=f"{file}:{base}", run_mode="torch_fp32", baseline="torch_fp32"
    )


@pytest.mark.parametrize(
    ("target", "base", "word", "layers"),
    [
        ("apart", "fused", "part", {"q/addmm", "k/addmm", "v/addmm"}),
        ("fused", "apart", "part", {"q/addmm", "k/addmm", "v/addmm"}),
        ("apart", "by_head", "another order", {"q/addmm", "k/addmm", "v/addmm"}),
        ("gate_up", "gate", "part", {"gate/addmm", "up/addmm"}),
        ("along", "layers", "3 chunks along axis 1", {"norm/layer_norm", "relu"}),
        ("placed_in_chunks", "placed", "3 chunks along axis 1", {"add#2", "tanh"}),
        ("along", "layers", "3 chunks along axis 0, of each sample", {"last/view", "last/addmm"}),
    ],
)
def test_the_same_work_cut_differently_is_compared(
    tmp_path: Path, target: str, base: str, word: str, layers: set[str]
) -> None:
    report = compare(tmp_path, target, base)
    assert report.exit_status == 0
    rows = {row.name: row for row in report.rows if word in row.paired_by}
    assert layers <= rows.keys()
    assert {row.status for row in rows.values()} == {Status.PASS}


@pytest.mark.parametrize(
    ("target", "base", "right"),
    [
        ("apart_scaled", "fused", "k/addmm"),
        ("by_head", "apart_scaled", "k/addmm"),
        ("fused_other", "apart", "v/addmm"),
        ("gate_up_scaled", "gate", "up/addmm"),
        ("along_scaled", "layers", "last/addmm"),
        ("layers", "along_scaled", "last/addmm"),
        ("one_norm_scaled", "layers", "norm/layer_norm"),
        ("layers", "one_norm_scaled", "layer_norm"),
        ("placed_from_nought", "placed", "add#2"),
        ("placed", "placed_from_nought", "add#2"),
    ],
)
def test_who_is_wrong_inside_is_named(tmp_path: Path, target: str, base: str, right: str) -> None:
    report = compare(tmp_path, target, base)
    assert report.exit_status == 1
    assert report.explanation is not None
    assert [one.name for one in report.explanation.culprits] == [right]
