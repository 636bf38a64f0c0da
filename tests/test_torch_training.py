"""Training steps: what a run with hooks computes is what a plain loop computes, and every operator of it is a row."""

# ruff: noqa: E402

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from approval import holds_approved, raises_approved

torch = pytest.importorskip("torch", reason="torch is not installed")

from precision_debug_torch import session
from precision_debug_torch.backend import open_model
from precision_debug_torch.live import compare_module
from precision_debug_torch.model import Model, example_feeds, from_module
from precision_debug_torch.workbench import TorchWorkbench
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import precision_debug
from precision_debug.errors import PrecisionDebugError
from precision_debug.explain.workbench import HostWorkbench
from precision_debug.protocols.session import progress_to
from precision_debug.records import Status

MODES = ("torch_fp32", "torch_fp64", "torch_autocast_bf16", "torch_autocast_fp16", "torch_bf16")


class Block(nn.Module):
    """Attention and a feed-forward part, optionally computed again in the backward pass."""

    def __init__(self, width: int, again: bool) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down, self.again = nn.Linear(width, 2 * width), nn.Linear(2 * width, width), again

    def forward(self, x: Any) -> Any:
        if self.again:
            return checkpoint(self.inside, x, use_reentrant=False)
        return self.inside(x)

    def inside(self, x: Any) -> Any:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.out(F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0])
        return x + self.down(F.gelu(self.up(x)))


class Net(nn.Module):
    def __init__(self, again: bool = False) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 16), nn.Linear(16, 20)
        self.blocks = nn.Sequential(Block(16, again), Block(16, again))

    def forward(self, ids: Any) -> Any:
        return self.head(self.blocks(self.embed(ids)))


IDS = torch.randint(0, 20, (2, 7), generator=torch.Generator().manual_seed(1))


def loss_of(returned: Any) -> Any:
    return F.cross_entropy(returned.flatten(0, 1), IDS.roll(1, 1).flatten())


def model_of(optimiser: Any = None, *, again: bool = False) -> Model:
    torch.manual_seed(0)
    return dataclasses.replace(from_module(Net(again), (IDS,)), loss=loss_of, optimiser=optimiser)


def opened(model: Model, mode: str, step: str, **options: Any) -> Any:
    return open_model(model, mode, {"step": step, "device": "cpu", **options}, [example_feeds(model)])


def outputs_of(model: Model, mode: str, step: str, *, hook: Any = None, **options: Any) -> Mapping[str, Any]:
    session = opened(model, mode, step, **options)
    try:
        found = session.run(example_feeds(model), hook)
        return {name: np.array(found[name]) for name in found}
    finally:
        session.close()


def adamw(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=0.01)


@pytest.mark.parametrize("mode", MODES)
def test_a_step_gives_the_same_bits_with_hooks_and_without(mode: str) -> None:
    seen: list[str] = []
    plain = outputs_of(model_of(adamw), mode, "optimiser")
    watched = outputs_of(model_of(adamw), mode, "optimiser", hook=lambda _op, name, _value: seen.append(name))
    gradients = [name for name in plain if name.startswith("gradient/")]
    assert len(gradients) == 23
    assert plain.keys() == watched.keys()
    assert [name for name in plain if plain[name].tobytes() != watched[name].tobytes()] == []
    assert sum(name.startswith("backward/") for name in seen) > 100
    assert sum(name.startswith("optimiser/") for name in seen) > 200


def test_the_backward_pass_stays_in_its_run_s_thread() -> None:
    """A device's nodes would otherwise go to one thread of the process, where two runs in lockstep wait for good."""
    threads: dict[str, set[int]] = {"backward": set(), "other": set()}
    here, elsewhere = list[str](), list[str]()

    def hook(_op: str, name: str, _value: Any) -> None:
        phase = name.partition("/")[0]
        threads["backward" if phase == "backward" else "other"].add(threading.get_ident())
        if torch._C._current_autograd_node() is not None:
            (elsewhere if torch._C._is_multithreading_enabled() else here).append(name)

    outputs_of(model_of(adamw), "torch_autocast_bf16", "optimiser", hook=hook)
    assert threads["backward"] == threads["other"] == {threading.get_ident()}
    assert len(here) > 100
    assert elsewhere == []
    assert torch._C._is_multithreading_enabled()


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_adam_leaves_its_gradients_alone_so_that_no_copy_is_needed(
    kind: Any, foreach: bool, weight_decay: float, amsgrad: bool
) -> None:
    def made(parameters: Any) -> Any:
        return kind(parameters, lr=0.01, weight_decay=weight_decay, amsgrad=amsgrad, foreach=foreach)

    rows: list[str] = []
    full = outputs_of(model_of(made), "torch_fp32", "optimiser", hook=lambda _op, name, _value: rows.append(name))
    alone = outputs_of(model_of(made), "torch_fp32", "backward")
    gradients = [name for name in alone if name.startswith("gradient/")]
    assert len(gradients) == 23
    assert [name for name in gradients if full[name].tobytes() != alone[name].tobytes()] == []
    copies = [name for name in rows if name.startswith("optimiser/head.bias/clone")]
    assert len(copies) == 1  # the parameter as it was before


@pytest.mark.parametrize("scale", [1.0, 1024.0])
@pytest.mark.parametrize("low", ["", "bfloat16", "float16"])
def test_a_step_is_what_a_plain_loop_does(low: str, scale: float) -> None:
    torch.manual_seed(0)
    net, scaler = Net(), torch.amp.GradScaler("cpu", init_scale=scale, enabled=scale != 1)
    optimiser = adamw(net.parameters())
    before = {name: one.detach().clone() for name, one in net.named_parameters()}
    with torch.autocast("cpu", dtype=getattr(torch, low or "bfloat16"), enabled=bool(low)):
        loss = loss_of(net(IDS))
    scaler.scale(loss).backward()
    scaler.unscale_(optimiser)
    gradients = {name: one.grad.clone() for name, one in net.named_parameters()}
    scaler.step(optimiser)
    mode = f"torch_autocast_{ {'bfloat16': 'bf16', 'float16': 'fp16'}[low]}" if low else "torch_fp32"
    found = outputs_of(model_of(adamw), mode, "optimiser", loss_scale=scale)
    assert found["loss"].tobytes() == loss.detach().numpy().tobytes()
    for name, one in net.named_parameters():
        assert found[f"gradient/{name}"].tobytes() == gradients[name].numpy().tobytes()
        assert found[f"update/{name}"].tobytes() == (one.detach() - before[name]).numpy().tobytes()
        assert found[f"state/{name}/exp_avg"].tobytes() == optimiser.state[one]["exp_avg"].numpy().tobytes()


def test_parameters_are_as_before_after_a_step() -> None:
    model = model_of(adamw)
    before = {name: one.detach().clone() for name, one in model.module.named_parameters()}
    first = outputs_of(model, "torch_fp32", "optimiser")
    again = outputs_of(model, "torch_fp32", "optimiser")
    assert all(torch.equal(one, before[name]) for name, one in model.module.named_parameters())
    assert all(first[name].tobytes() == again[name].tobytes() for name in first)


def test_an_optimiser_s_own_state_is_as_before_after_a_step() -> None:
    """Somebody's optimiser in the middle of its training: each run does the same next step, and it does none."""
    model = model_of()
    optimiser = adamw(model.module.parameters())
    loss_of(model.module(IDS)).backward()
    optimiser.step()
    held = [{key: value.clone() for key, value in one.items()} for one in optimiser.state.values()]
    model = dataclasses.replace(model, optimiser=optimiser)
    session = opened(model, "torch_fp32", "optimiser")
    try:
        runs = [session.run(example_feeds(model)) for _ in range(2)]
        first, again = ({name: np.array(run[name]) for name in run} for run in runs)
    finally:
        session.close()
    assert all(first[name].tobytes() == again[name].tobytes() for name in first)
    now = [{**one} for one in optimiser.state.values()]
    assert all(torch.equal(one[key], was[key]) for one, was in zip(now, held, strict=True) for key in was)


def compared(mode: str, model: Model | None = None, **settings: Any) -> Any:
    model = model or model_of(adamw)
    given = {name: value for name, value in settings.items() if name != "explain"}
    return compare_module(
        model.module, (IDS,), run_mode=mode, device="cpu", loss=model.loss, optimiser=model.optimiser, settings=given,
        explain=settings.get("explain", "off"),
    )  # fmt: skip


def factory() -> Any:
    return Net(), (IDS,), loss_of, adamw


def test_a_step_s_outputs_stay_on_their_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they do on a card: copied to the host, they took half of a step's comparison."""
    copied: list[str] = []
    there = session.as_array
    monkeypatch.setattr(session, "as_array", lambda value, name="": copied.append(name) or there(value, name=name))
    report = precision_debug.compare(
        f"{__file__}:factory", run_mode="torch_autocast_bf16", step="optimiser", device="cpu", compare_on="device",
        explain="off",
    )  # fmt: skip
    assert sum(row.name.startswith("update/") for row in report.outputs) > 10
    assert not copied


@pytest.mark.parametrize("where", ["host", "device"])
def test_a_sign_that_turns_in_adams_first_update_is_nobodys_fault(where: str) -> None:
    """One of 512 elements: whether a draw of the rounding turns one too is chance."""
    report = precision_debug.compare(
        f"{__file__}:factory", run_mode="torch_autocast_bf16", step="optimiser", device="cpu", compare_on=where
    )
    assert report.explanation is not None
    assert not report.explanation.culprits
    assert str(report.verdict) == "as expected"


class TwoScales(nn.Module):
    """One gradient leaves FP16 at GradScaler's first scale, the other does not."""

    def __init__(self) -> None:
        super().__init__()
        self.small, self.large = nn.Linear(8, 4, bias=False), nn.Linear(8, 4, bias=False)

    def forward(self, x: Any) -> Any:
        return (1e-3 * self.small(x).float() + 10 * self.large(x).float()).sum()


def two_scales() -> Any:
    return TwoScales(), (torch.ones(3, 8),), None, adamw


def test_a_step_that_is_left_out_loses_no_update() -> None:
    report = precision_debug.compare(
        f"{__file__}:two_scales", run_mode="torch_autocast_fp16", step="optimiser", device="cpu"
    )
    assert report.explanation is not None
    causes = {one.cause for one in report.explanation.culprits}
    assert "gradient_overflow" in causes
    assert "update_lost" not in causes
    left_out = {row.name for row in report.rows if row.reason.code == "step_left_out"}
    assert {"state/small.weight/exp_avg", "optimiser/small.weight/addcdiv"} <= left_out
    assert all(row.status is not Status.FUSED_AWAY for row in report.rows if row.name.startswith("optimiser/"))
    assert holds_approved(notes_of(report.target))
    assert "autocast covers" not in notes_of(report.baseline)


def test_updates_that_are_lost_are_counted_alike_on_a_device() -> None:
    moves = np.array([0.0, 1e-3, -1e-3, 1e-3], np.float32)
    for got, share in (
        ([0.0, 0.0, 0.0, 1.0], 2 / 3), ([1.0, 0.0, 0.0, 0.0], 1.0), ([0.0, 0.0, np.nan, 0.0], None), ([0.0], None),
    ):  # fmt: skip
        theirs = np.array(got, np.float32)
        assert HostWorkbench().unmoved(moves, theirs) == share
        assert TorchWorkbench().unmoved(torch.from_numpy(moves), torch.from_numpy(theirs)) == share
    assert HostWorkbench().unmoved(0 * moves, moves) is TorchWorkbench().unmoved(torch.zeros(4), torch.ones(4)) is None


def notes_of(side: Any) -> str:
    return "; ".join(map(str, side.notes))


@pytest.mark.parametrize("mode", ["torch_autocast_bf16", "torch_autocast_fp16", "torch_bf16", "torch_fp64"])
@pytest.mark.parametrize("again", [False, True], ids=["plain", "checkpointed"])
def test_every_operator_of_the_baseline_is_paired(mode: str, again: bool) -> None:
    report = compared(mode, model_of(adamw, again=again), step="optimiser")
    assert report.failure == ""
    missing = [row.name for row in report.rows if row.status is Status.FUSED_AWAY]
    assert missing == []
    rows = [row.name for row in report.compared]
    assert sum(name.startswith("backward/") for name in rows) > 100
    assert {row.name for row in report.outputs} >= {"loss", "gradient/blocks.1.qkv.weight", "update/head.bias"}
    casts = [row.name for row in report.rows if row.name.startswith("backward/") and row.name.endswith(":to[float]")]
    assert bool(casts) == mode.startswith("torch_autocast")  # casts are rows in the backward pass, too


WAYS = ({"foreach": True}, {"fused": True}, {"foreach": False})


@pytest.mark.parametrize("ways", WAYS, ids=["foreach", "fused", "for"])
def test_an_optimisers_rows_are_by_parameter(ways: dict[str, bool]) -> None:
    model = model_of(lambda parameters: torch.optim.AdamW(parameters, lr=0.01, **ways))
    session = opened(model, "torch_fp32", "optimiser")
    written: dict[str, list[str]] = {}
    for meta in session.tensors:
        if meta.name.startswith("optimiser/") and meta.shape:
            written.setdefault(meta.name.split("/")[1], []).append(meta.op_type)
    session.close()
    for name, _ in model.module.named_parameters():
        wanted = "aten._fused_adamw_" if "fused" in ways else "addcdiv_"
        assert any(wanted in kind for kind in written[name]), name


@pytest.mark.parametrize("ways", WAYS, ids=["foreach", "fused", "for"])
def test_what_an_optimiser_wrote_can_be_replaced(ways: dict[str, bool]) -> None:
    model = model_of(lambda parameters: torch.optim.AdamW(parameters, lr=0.01, **ways))
    session = opened(model, "torch_fp32", "optimiser")
    plain = outputs_of(model, "torch_fp32", "optimiser")
    rows = [meta for meta in session.tensors if meta.name.startswith("optimiser/head.weight/") and meta.shape]
    writes = [meta.name for meta in rows if "addcdiv" in meta.op_type or "_fused_adamw" in meta.op_type]
    last = writes[0 if "fused" in ways else -1]  # the fused one writes the parameter first, then the states
    found = session.run_replacing(
        example_feeds(model), lambda _op, name, value: value + 1 if name == last else None, frozenset({last})
    )
    np.testing.assert_allclose(found["update/head.weight"], plain["update/head.weight"] + 1, rtol=1e-5)
    assert found["update/head.bias"].tobytes() == plain["update/head.bias"].tobytes()
    session.close()


def test_what_the_backward_pass_made_can_be_replaced() -> None:
    model = model_of(adamw)
    session = opened(model, "torch_fp32", "backward")
    plain = outputs_of(model, "torch_fp32", "backward")
    name = "backward/log_softmax/_log_softmax_backward_data"
    found = session.run_replacing(example_feeds(model), lambda _op, _name, value: value * 2, frozenset({name}))
    for one in plain:
        expected = plain[one] * (1 if one == "loss" else 2)
        np.testing.assert_allclose(found[one], expected, rtol=1e-5, atol=1e-9)
    session.close()


def test_a_module_may_give_its_loss_itself() -> None:
    class Losing(nn.Module):
        def __init__(self, kind: str) -> None:
            super().__init__()
            self.inner, self.kind = nn.Linear(4, 1), kind

        def forward(self, x: Any) -> Any:
            loss = self.inner(x).square().mean()
            return {"number": loss, "tuple": (loss, x), "dict": {"loss": loss, "logits": x}}[self.kind]

    found = []
    for kind in ("number", "tuple", "dict"):
        torch.manual_seed(0)
        found.append(outputs_of(from_module(Losing(kind), (torch.ones(2, 4),)), "torch_fp32", "backward"))
    assert found[0].keys() == {"loss", "gradient/inner.weight", "gradient/inner.bias"}
    assert all(one[name].tobytes() == found[0][name].tobytes() for one in found for name in one)


def test_a_forward_alone_says_what_was_not_looked_at() -> None:
    said = "only the forward pass was compared"
    for step, there in (("forward", True), ("backward", False)):
        report = compared("torch_autocast_bf16", step=step)
        assert [said in notes_of(side) for side in (report.baseline, report.target)] == [there] * 2


def test_the_scale_is_grad_scalers_where_the_target_needs_one() -> None:
    for mode, there in (("torch_autocast_fp16", True), ("torch_autocast_bf16", False)):
        report = compared(mode, step="backward")
        said = ["multiplied by 65536" in notes_of(side) for side in (report.baseline, report.target)]
        assert said == [there] * 2


def test_a_step_that_grad_scaler_leaves_out_is_said() -> None:
    report = compared("torch_autocast_fp16", step="optimiser", loss_scale=2.0**30)
    said = ["skipped the optimiser's step" in notes_of(side) for side in (report.baseline, report.target)]
    assert said == [False, True]
    assert report.exit_status == 1


def test_a_factory_returns_a_step_by_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(_FILE.format(tests=str(Path(__file__).parent)))
    report = precision_debug.compare(f"{path}:make", run_mode="torch_autocast_bf16", device="cpu", step="backward")
    assert {row.name for row in report.outputs} > {"loss", "gradient/head.weight"}
    assert report.exit_status == 0
    with pytest.raises(PrecisionDebugError, match="loss cannot be called"):
        precision_debug.compare(f"{path}:wrong", run_mode="torch_autocast_bf16", device="cpu", step="backward")


_FILE = """
import sys
sys.path.insert(0, {tests!r})
from test_torch_training import IDS, Net, adamw, loss_of

def make():
    return Net(), (IDS,), loss_of, adamw

def wrong():
    return Net(), (IDS,), 3
"""


@pytest.mark.parametrize(
    ("loss", "optimiser", "settings", "said"),
    [
        (None, None, {"step": "backward"}, "the loss is one number"),
        (loss_of, None, {"step": "optimiser"}, "no optimiser was given"),
        (lambda _: torch.ones(()), None, {"step": "backward"}, "depends on no parameter"),
        (loss_of, None, {"step": "backward", "level": "module"}, "seen by its operators"),
        (loss_of, None, {"step": "sideways"}, "is not one of forward, backward, optimiser"),
        (loss_of, lambda _: None, {"step": "optimiser"}, "the factory's optimiser gives NoneType, which has no step"),
        (loss_of, lambda _: 1 // 0, {"step": "optimiser"}, "the factory's optimiser fails: ZeroDivisionError"),
    ],
)
def test_what_is_no_step_is_said_in_a_line(loss: Any, optimiser: Any, settings: Any, said: str) -> None:
    model = dataclasses.replace(model_of(optimiser), loss=loss)
    with pytest.raises(PrecisionDebugError, match=said) as caught:
        opened(model, "torch_autocast_bf16", **settings).run(example_feeds(model))
    assert caught.value.exit_status == 2  # the user's step is wrong: no backend failed


def test_a_step_needs_something_to_learn() -> None:
    model = model_of()
    model.module.requires_grad_(False)
    with raises_approved(PrecisionDebugError):
        opened(model, "torch_fp32", "backward").run(example_feeds(model))


def test_modes_for_inference_refuse_a_step() -> None:
    with raises_approved(PrecisionDebugError):
        opened(model_of(), "torch_int8", "backward")


def test_the_memory_of_a_step_is_said_beforehand() -> None:
    said: list[str] = []
    model = model_of(adamw)
    learned = sum(one.nbytes for one in model.module.parameters())
    with progress_to(lambda text: said.append(str(text))):
        opened(model, "torch_fp32", "backward").close()
        opened(model, "torch_fp32", "optimiser").close()
    found = [one for one in said if "take about" in one]
    assert [f"{learned * times / 1e9:.3g} GB" in one for times, one in zip((1, 6), found, strict=True)] == [True, True]
