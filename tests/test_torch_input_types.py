"""Inputs go in with the type that a torch module takes, drawn or given, whoever draws or gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from precision_debug import compare

torch = pytest.importorskip("torch", reason="torch is not installed")

MODELS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 8)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))

class CastsItself(Net):
    def forward(self, x):
        return super().forward(x.to(self.first.weight.dtype)).float()

class WithTime(Net):
    def forward(self, x, time):  # 1000.3 in bfloat16 is another time
        return super().forward(x) + torch.sin(time.float() * 1000).to(x.dtype)

class WithPlaces(Net):
    def forward(self, x, places):
        return super().forward(x) + places

class Counts(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * self.calls

class Writes(Net):
    def forward(self, x):
        self.first.weight.data.mul_(2)
        return super().forward(x)

def made(kind, dtype):
    torch.manual_seed(0)
    return kind().eval().to(dtype)

def bf16(): return made(Net, torch.bfloat16)
def fp16(): return made(Net, torch.float16)
def double(): return made(Net, torch.float64)
def single(): return made(Net, torch.float32)
def casts(): return made(CastsItself, torch.bfloat16)
def time(): return made(WithTime, torch.bfloat16)
def places(): return made(WithPlaces, torch.bfloat16)
def counts(): return made(Counts, torch.bfloat16)
def writes(): return made(Writes, torch.bfloat16)
def example(): return bf16(), (torch.rand(4, 16).bfloat16(),)
def two_types(): return made(Net, torch.bfloat16), torch.rand(4, 16)
def conv(): torch.manual_seed(0); return nn.Sequential(nn.Conv1d(4, 4, 3), nn.Linear(14, 2)).half()
def normed(): torch.manual_seed(0); return nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 2)).bfloat16()
def recurrent(): torch.manual_seed(0); return nn.LSTM(16, 4).bfloat16()
def scaled():
    torch.manual_seed(0)
    return nn.Sequential(nn.RMSNorm(16), nn.Linear(16, 2)).bfloat16()
"""
X = np.random.default_rng(0).random((4, 16), np.float32)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("types") / "models.py"
    file.write_text(MODELS)
    np.savez(file.with_name("x.npz"), x=X)
    return file


def ran(model: Any, mode: str = "torch_fp32", **options: Any) -> Any:
    return compare(model, run_mode=mode, device="cpu", explain="off", **options)


def fed(report: Any) -> dict[str, tuple[str, str]]:
    """Types of each input, in the baseline and in the target."""
    found = {row.name: row.comparison for row in report.rows if row.op_type == "Input" and row.comparison}
    return {name: (one.base.dtype, one.target.dtype) for name, one in found.items()}


@pytest.mark.parametrize(
    ("factory", "taken"),
    [
        ("bf16", "bfloat16"), ("fp16", "float16"), ("double", "float64"), ("single", "float32"), ("casts", "float32"),
        ("conv", "float16"), ("normed", "bfloat16"), ("scaled", "bfloat16"), ("counts", "bfloat16"),
        ("writes", "bfloat16"), ("example", "bfloat16"), ("recurrent", "bfloat16"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("given", ["drawn", "file", "arrays"])
def test_the_type_that_the_module_takes(models: Path, factory: str, taken: str, given: str) -> None:
    name = "x" if factory not in ("conv", "normed", "scaled", "recurrent") else "input"
    if given == "file" and name != "x":
        pytest.skip("one file is enough of the names")
    how: dict[str, Any] = {"inputs": {name: X}} if given == "arrays" else {"inputs": str(models.with_name("x.npz"))}
    if given == "drawn":
        how = {} if factory == "example" else {"input_shapes": {name: (4, 16)}}
    report = ran(f"{models}:{factory}", **how)
    assert report.exit_status == 0
    assert set(fed(report).values()) <= {(taken, taken)}
    casts = [note for note in report.target.notes if note.code == "torch.types_taken"]
    assert bool(casts) == (factory not in ("single", "casts", "example"))


@pytest.mark.parametrize(("factory", "taken"), [("single", "float32"), ("double", "float64"), ("bf16", "bfloat16")])
def test_numpy_draws_in_float64(models: Path, factory: str, taken: str) -> None:
    report = ran(f"{models}:{factory}", inputs={"x": np.random.default_rng(0).random((4, 16))})
    assert (report.exit_status, fed(report)) == (0, {"x": (taken, taken)})


@pytest.mark.parametrize("mode", ["torch_fp16", "torch_bf16", "torch_autocast_bf16", "torch_compile"])
@pytest.mark.parametrize("baseline", ["torch_fp32", "torch_fp64"])
def test_both_sides_see_the_same_rounded_numbers(models: Path, mode: str, baseline: str) -> None:
    report = ran(f"{models}:bf16", mode, baseline=baseline, inputs={"x": X})
    assert report.exit_status in (0, 1)
    row = next((row for row in report.rows if row.name == "x" and row.comparison), None)
    assert row is None or row.comparison.max_abs < (1e-3 if mode == "torch_fp16" else 1e-9)


def test_only_what_cannot_go_in_as_it_is(models: Path) -> None:
    """A time that the module casts itself keeps its digits; integers stay what they are."""
    shapes = {"x": (4, 16), "time": (4, 1)}
    report = ran(f"{models}:time", input_shapes=shapes)
    note = next(note for note in report.target.notes if note.code == "torch.types_taken")
    assert (report.exit_status, note.args["names"]) == (0, "x")
    given = {"x": X, "places": np.arange(8)}
    report = ran(f"{models}:places", inputs=given)
    assert report.exit_status == 0


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kind", ["script", "traced", "exported"])
@pytest.mark.parametrize("given", ["drawn", "arrays"])
def test_programs(models: Path, kind: str, given: str, tmp_path: Path) -> None:
    held: dict[str, Any] = {}
    exec(MODELS, held)
    net, example = torch.nn.Sequential(*held["bf16"]().children()), torch.rand(4, 16).bfloat16()
    if kind == "exported":
        path = tmp_path / "net.pt2"
        torch.export.save(torch.export.export(net, (example,)), path)
    else:
        path = tmp_path / "net.ts"
        made = torch.jit.script(net) if kind == "script" else torch.jit.trace(net, (example,))
        made.save(path)
    report = ran(path, **({"inputs": {"input": X}} if given == "arrays" else {"input_shapes": {"input": (4, 16)}}))
    assert report.exit_status == 0


def test_numbers_that_the_type_cannot_hold_are_refused(models: Path) -> None:
    from precision_debug.errors import InputError

    text = models.read_text() + "\ndef small(): return fp16(), (torch.rand(4, 16).half(),)\n"
    file = models.with_name("small.py")
    file.write_text(text)
    with pytest.raises(InputError, match="float16"):
        ran(f"{file}:small", inputs={"x": X * 1e6})


def test_a_step_takes_it_too(models: Path) -> None:
    file = models.with_name("step.py")
    file.write_text(models.read_text() + "\ndef step(): return bf16(), None, lambda out: out.float().square().sum()\n")
    report = ran(f"{file}:step", "torch_autocast_bf16", step="backward", inputs={"x": X})
    assert report.exit_status in (0, 1)


def test_quantised_as_it_is_given(models: Path) -> None:
    pytest.importorskip("torchao", reason="torchao is not installed")
    (models.with_name("wide.py")).write_text(
        models.read_text() + "\ndef wide(): return nn.Sequential(nn.Linear(32, 8), nn.ReLU()).bfloat16()\n"
    )
    report = ran(f"{models.with_name('wide.py')}:wide", "torch_int8", input_shapes={"input": (4, 32)})
    types = {row.comparison.target.dtype for row in report.rows if row.comparison and row.is_output}
    assert (report.exit_status, types) == (0, {"bfloat16"})
