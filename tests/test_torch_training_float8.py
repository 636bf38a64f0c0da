"""Training steps in float8 by torchao, emulated on a CPU: rows pair, faults are named and mended, nobody else is."""

# ruff: noqa: E402

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from approval import begins_approved, raises_approved

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torchao", reason="torchao is not installed")

from precision_debug_torch.backend import open_model
from precision_debug_torch.engine.torchao import what_is_missing
from precision_debug_torch.keep import TorchKeep
from precision_debug_torch.live import compare_module
from precision_debug_torch.model import example_feeds, from_module
from precision_debug_torch.modes import availability, recipe
from torch import nn
from torch.nn import functional as F

from precision_debug.errors import BackendUnavailable, ModelError
from precision_debug.explain import casts
from precision_debug.records import ModelFiles, SessionSpec, Tolerance
from precision_debug.report.lead import lead_sentences

_MISSING = what_is_missing("convert_to_float8_training", "Float8LinearConfig", training=True)
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=f"torchao cannot train in float8: {_MISSING}")

W = 32
IDS = torch.randint(0, 20, (4, 8), generator=torch.Generator().manual_seed(1))


class Net(nn.Module):
    """One layer with a bias, one without, and a head whose 20 outputs are no multiple of 16."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(20, W), nn.LayerNorm(W)
        self.up, self.down, self.head = nn.Linear(W, 2 * W), nn.Linear(2 * W, W, bias=False), nn.Linear(W, 20)

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        return self.head(x + self.down(F.gelu(self.up(self.norm(x)))))


class Masked(nn.Module):
    """The gradient of the first token is huge where ``up`` gets it, and reaches nothing: it is multiplied with 0."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, W)
        self.up, self.down, self.head = nn.Linear(W, 2 * W, bias=False), nn.Linear(2 * W, W), nn.Linear(W, 20)
        self.register_buffer("mask", torch.ones(4, 8, 1))
        self.register_buffer("huge", torch.ones(4, 8, 1))
        self.mask[:, 0], self.huge[:, 0] = 0, 1e12

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        return self.head(x + self.down(F.gelu(self.up(x * self.mask) * self.huge)))


class Outlier(nn.Module):
    """One channel of what ``up`` reads is huge, and its weights are 0."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, W)
        self.up, self.down, self.head = nn.Linear(W, 2 * W, bias=False), nn.Linear(2 * W, W), nn.Linear(W, 20)
        self.register_buffer("shift", torch.zeros(W))
        self.shift[3] = 1e7
        with torch.no_grad():
            self.up.weight[:, 3] = 0

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        return self.head(x + self.down(F.gelu(self.up(x + self.shift))))


def loss_of(returned: Any) -> Any:
    return F.cross_entropy(returned.flatten(0, 1), IDS.roll(1, 1).flatten())


def compared(net: Any, step: str = "backward", **settings: Any) -> Any:
    torch.manual_seed(0)
    return compare_module(
        net(), (IDS,), run_mode="torch_fp8", device="cpu", explain="fast", loss=loss_of,
        tolerance=Tolerance(given=False), optimiser=lambda some: torch.optim.AdamW(some, lr=0.05),
        settings={"step": step, **settings},
    )  # fmt: skip


@pytest.mark.parametrize("step", ["backward", "optimiser"])
def test_a_healthy_step_blames_nobody_and_says_what_ran(step: str) -> None:
    report = compared(Net, step)
    said = [str(note) for note in report.target.notes]
    assert any(one.startswith("2 of 3 linear layers") and "emulated" in one for one in said), said
    assert report.explanation.culprits == (), lead_sentences(report)[0].en
    assert report.exit_status == 0


def test_the_products_of_the_backward_pass_pair() -> None:
    report = compared(Net)
    rows = {row.name: row for row in report.rows if row.comparison is not None}
    wanted = {"up/view#2", "down/view#2"} | {
        f"backward/{one}" for one in ("up/addmm/mm", "up/addmm/mm#2", "down/mm/mm", "down/mm/mm#2")
    }
    assert wanted <= rows.keys()
    for name in wanted:  # rounding of float8, and no more: the right tensors met
        assert 0.01 < (rows[name].relative_l2 or 0) < 0.15, name
    alone = [row for row in report.rows if row.comparison is None and row.name.startswith("backward/up/float8/")]
    assert any(row.name.endswith("abs") for row in alone)


@pytest.mark.parametrize(
    ("net", "where", "dtype", "culprit"),
    [
        (Masked, "backward/mul#2/mul", "float8_e5m2", "backward/up/mm/mm"),
        (Outlier, "add", "float8_e4m3fn", "up/mm"),
    ],
)
def test_an_operand_that_an_outlier_flushes_is_told_and_mended(net: Any, where: str, dtype: str, culprit: str) -> None:
    report = compared(net)
    first = report.explanation.culprits[0]
    assert (first.name, first.cause) == (culprit, "operand_flushed")
    assert (first.evidence["where"], first.evidence["dtype"]) == (where, dtype)
    assert first.evidence["share"] > 0.8
    assert first.evidence["largest"] > 1e5 * first.evidence["typical"]
    assert "becomes 0 in float8" in lead_sentences(report)[0].en
    assert "变为 0" in lead_sentences(report)[0].zh
    assert report.exit_status == 1
    assert (report.to_keep.state, report.to_keep.keys) == ("mended", ("up",))
    assert 0 < report.to_keep.still.low < report.to_keep.was.low
    kept = compared(net, keep_modules=("up",))
    assert (kept.exit_status, kept.explanation.culprits) == (0, ())
    said = [str(note) for note in kept.target.notes]
    assert begins_approved(list(said))
    assert any("stays in bfloat16: up" in one for one in said), said


def test_operands_are_looked_at_once_where_a_product_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that isolates operators would otherwise bring every cast weight and gradient to the host."""
    found: list[dict[str, str]] = []
    plain = casts.narrow_casts

    def noted(subject: Any) -> Any:
        found.append(dict(plain(subject)))
        return found[-1]

    monkeypatch.setattr(casts, "narrow_casts", noted)
    report = compared(Masked)
    assert report.explanation.culprits[0].cause == "operand_flushed"
    assert found
    assert all(one == {} for one in found)


def test_gradients_are_torchaos_own_with_hooks_and_without() -> None:
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    torch.manual_seed(0)
    net = Net()
    model = dataclasses.replace(from_module(net, (IDS,)), loss=loss_of)
    found = []
    for hook in (None, lambda *_: None):
        session = open_model(model, "torch_fp8", {"step": "backward", "device": "cpu"}, [example_feeds(model)])
        outputs = session.run(example_feeds(model), hook)
        found.append({name: np.array(outputs[name]).tobytes() for name in outputs if name.startswith("gradient/")})
        session.close()
    assert found[0] == found[1]
    own = convert_to_float8_training(
        net.bfloat16(), config=Float8LinearConfig(emulate=True), module_filter_fn=lambda _part, name: name != "head"
    )
    loss_of(own(IDS)).backward()
    for name, one in own.named_parameters():
        assert one.grad.view(torch.int16).numpy().tobytes() == found[0][f"gradient/{name}"], name


def test_what_is_handed_over_leaves_the_kept_modules_out(tmp_path: Any) -> None:
    spec = SessionSpec(
        model=ModelFiles(model_file="net.py:make"),
        mode="torch_fp8",
        options={"step": "backward"},
        work_dir=str(tmp_path),
    )
    keep = TorchKeep(spec=spec, recipe=recipe("torch_fp8"))
    lines = next(one.text for one in keep.hand_over(["up"], (), tmp_path) if one.kind == "config")
    model = Net()
    exec(lines, {"model": model})
    assert [name for name, one in model.named_modules() if type(one).__name__ == "Float8Linear"] == ["down"]


def test_what_cannot_run_is_said() -> None:
    assert availability("torch_fp8").ok
    assert availability("torch_fp8", step=False).ok == (
        torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 9)
    )
    model = from_module(nn.Sequential(nn.Linear(4, 4)), (torch.ones(2, 4),))
    model = dataclasses.replace(model, loss=lambda returned: returned.sum())
    with raises_approved(ModelError):
        open_model(model, "torch_fp8", {"step": "backward", "device": "cpu"}, [example_feeds(model)])


def test_a_forward_pass_on_a_cpu_is_refused() -> None:
    if availability("torch_fp8", step=False).ok:
        pytest.skip("this card multiplies float8")
    with raises_approved(BackendUnavailable) as raised:
        compare_module(Net(), (IDS,), run_mode="torch_fp8", device="cpu")
    assert "compute capability 8.9" in str(raised.value)
