"""Modules that stay in float32: by the option, by the search, and in the wrapper that a user takes away."""

from __future__ import annotations

import itertools
import runpy
from pathlib import Path

import pytest

import precision_debug
from precision_debug import Report
from precision_debug.cli import main
from precision_debug.errors import UsageError

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.engine("torch")

NET = """
import torch


class Shift(torch.nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, x):
        return x + self.by


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.up, self.down = torch.nn.Linear(16, 16), Shift(3000.0), Shift(-3000.0)
        self.last = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16))

    def forward(self, x):
        return self.last(self.down(self.up(self.first(x))))


def make():
    torch.manual_seed(0)
    return Net(), torch.randn(4, 16)
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(NET)
    return f"{tmp_path / 'net.py'}:make"


def error(net: str, mode: str, **options: str) -> float:
    report = precision_debug.compare(net, run_mode=mode, explain="off", device="cpu", **options)
    found = report.outputs[0].relative_l2
    assert found is not None
    return found


@pytest.mark.parametrize("mode", ["torch_bf16", "torch_fp16", "torch_autocast_bf16"])
def test_the_edge_between_two_kept_modules_is_float32(net: str, mode: str) -> None:
    assert error(net, mode) > 0.1
    assert error(net, mode, keep_modules="up,down") < 0.02
    assert error(net, mode, keep_modules="['(model)']") < 0.02


def test_a_kept_linear_has_its_exact_weights(net: str) -> None:
    everything = error(net, "torch_bf16", keep_modules="first,up,down,last")
    assert everything < 5e-3  # the input is rounded, nothing else


def test_a_module_that_is_not_there_is_an_error(net: str) -> None:
    with pytest.raises(UsageError, match="no module 'nowhere'"):
        error(net, "torch_bf16", keep_modules="nowhere")


@pytest.mark.parametrize("mode", ["torch_bf16", "torch_autocast_bf16"])
def test_a_search_hands_over_a_wrapper_that_holds(net: str, mode: str, tmp_path: Path) -> None:
    output = tmp_path / "o.json"
    assert main(["search", "--model_file", net, "--run_mode", mode, "--device", "cpu", "--quiet",
                 "--output", str(output)]) == 0  # fmt: skip
    fix = Report.load(output).fix
    assert fix is not None
    assert fix.state == "found"
    assert {unit.key for unit in fix.kept} <= {"up", "down"}
    assert fix.evaluations <= len(fix.kept) + 5
    assert [item.verified for item in fix.artefacts if item.kind != "config"] == [True, True]
    wrapper = fix.artefacts[-1]
    namespace: dict[str, object] = {}
    exec(compile(Path(wrapper.path).read_text(), wrapper.path, "exec"), namespace)
    module, inputs = namespace["model"]()  # type: ignore[operator]
    assert module(inputs).shape == (4, 16)


def test_excluded_linears_stay_in_float32(net: str) -> None:
    pytest.importorskip("torchao", reason="torch_int8 needs it")
    assert error(net, "torch_int8", keep_modules="last") < error(net, "torch_int8")


def test_a_search_in_int8_names_the_layer_and_its_file_runs_again(tmp_path: Path) -> None:
    """torchao on the CPU: two channels of one layer that are 300 times the others, and cancel in the layer behind."""
    pytest.importorskip("torchao", reason="torch_int8 needs it")
    (tmp_path / "wide.py").write_text(WIDE)
    output = tmp_path / "o.json"
    assert main(["search", "--model_file", f"{tmp_path / 'wide.py'}:make", "--run_mode", "torch_int8", "--device",
                 "cpu", "--limit", "20%", "--quiet", "--output", str(output)]) == 0  # fmt: skip
    fix = Report.load(output).fix
    assert fix is not None
    assert (fix.state, [unit.key for unit in fix.kept]) == ("found", ["blocks.1.down"])
    assert fix.units == 7, "linear layers alone can be kept, since nothing else is quantised"
    assert fix.before is not None
    assert fix.after is not None
    assert fix.after <= 0.2 * fix.before
    assert [(item.kind, item.verified) for item in fix.artefacts] == [
        ("setting", True), ("config", None), ("wrapper", True)
    ]  # fmt: skip
    wrapper = fix.artefacts[-1]
    assert wrapper.error == pytest.approx(fix.after, rel=1e-3)
    namespace: dict[str, object] = {}
    exec(compile(Path(wrapper.path).read_text(), wrapper.path, "exec"), namespace)
    module, inputs = namespace["model"]()  # type: ignore[operator]
    kinds = {name: type(part.weight) is torch.nn.Parameter for name, part in module.named_modules()
             if isinstance(part, torch.nn.Linear)}  # fmt: skip
    assert [name for name, plain in kinds.items() if plain] == ["blocks.1.down"]
    assert module(inputs).shape == (16, 10)


WIDE = """
import torch


class Block(torch.nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(64), torch.nn.Linear(64, 128), torch.nn.Linear(128, 64)
        if wide:
            with torch.no_grad():
                self.up.weight[5] *= 300
                self.up.weight[6].copy_(self.up.weight[5])
                self.up.bias[6].copy_(self.up.bias[5])
                self.down.weight[:, 5] *= 3
                self.down.weight[:, 6].copy_(-self.down.weight[:, 5])

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.Sequential(*(Block(n == 1) for n in range(3)))
        self.head = torch.nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.blocks(x))


def make():
    torch.manual_seed(0)
    return Net(), torch.randn(16, 64)
"""


PLANTED = """
import torch
from torch import nn


class Add(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, x):
        return x + self.by


class Mul(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, x):
        return x * self.by


class Rms(nn.Module):
    def forward(self, x):
        return x / x.pow(2).mean(-1, keepdim=True).sqrt()


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.rnn, self.last = Add(2000.0), Add(-2000.0), nn.GRU(16, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.last(self.rnn(self.down(self.up(x)))[0])


def squares():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16), Mul(900.0), Rms(), nn.Linear(16, 8)), torch.randn(4, 16)


def two():
    torch.manual_seed(0)
    first = nn.Linear(16, 16), nn.Tanh(), Mul(3e5), Mul(1 / 3e5)
    return nn.Sequential(*first, nn.Linear(16, 16), Add(3000.0), Add(-3000.0), nn.Linear(16, 8)), torch.randn(4, 16)


def groups():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), Add(3000.0), nn.GroupNorm(2, 8), nn.Conv2d(8, 4, 3))
    return net, torch.randn(1, 3, 8, 8)


def recurrent():
    torch.manual_seed(0)
    return Recurrent(), torch.randn(5, 2, 16)
"""


@pytest.mark.parametrize(
    ("made", "mode"),
    [
        ("squares", "torch_fp16"),
        pytest.param("two", "torch_fp16", marks=pytest.mark.slow),
        pytest.param("two", "torch_autocast_bf16", marks=pytest.mark.slow),
        pytest.param("groups", "torch_bf16", marks=pytest.mark.slow),
        ("recurrent", "torch_bf16"),
    ],
)  # fmt: skip
def test_no_smaller_set_of_modules_holds(made: str, mode: str, tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(PLANTED)
    net, output = f"{tmp_path / 'planted.py'}:{made}", tmp_path / "o.json"
    assert main(["search", "--model_file", net, "--run_mode", mode, "--device", "cpu", "--limit", "0.02", "--quiet",
                 "--output", str(output)]) == 0  # fmt: skip
    fix = Report.load(output).fix
    assert fix is not None
    assert fix.state == "found"
    assert fix.evaluations <= len(fix.kept) + 5
    assert all(item.verified for item in fix.artefacts if item.kind != "config")
    model, _ = runpy.run_path(str(tmp_path / "planted.py"))[made]()
    modules = [name for name, module in model.named_modules() if name and not list(module.children())]
    assert {unit.key for unit in fix.kept} <= set(modules)
    for size in range(len(fix.kept)):
        for kept in itertools.combinations(modules, size):
            options = {"keep_modules": ",".join(kept)} if kept else {}
            report = precision_debug.compare(net, run_mode=mode, explain="off", device="cpu", **options)
            found = report.outputs[0].relative_l2
            assert found is None or not found <= 0.02, kept
