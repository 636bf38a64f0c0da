"""Models that ask for gradients, or step an optimiser, in forward: every run starts from the model's own weights."""

# ruff: noqa: E402

from __future__ import annotations

from typing import Any

import pytest
from approval import holds_approved, raises_approved

torch = pytest.importorskip("torch", reason="torch is not installed")

from precision_debug_torch.live import compare_module
from torch import nn

from precision_debug.errors import BackendError
from precision_debug.numbers.arrays import as_array
from precision_debug.records import Status


class Steps(nn.Module):
    """Some steps of an optimiser on its own weights, then a plain forward: test-time training."""

    def __init__(self, kind: str = "adamw", *, scaled: bool = False, steps: int = 3) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        self.kind, self.scaled, self.steps = kind, scaled, steps

    def forward(self, x: Any) -> Any:
        make: Any = torch.optim.AdamW if self.kind == "adamw" else torch.optim.SGD
        optimiser = make(self.net.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", enabled=self.scaled)
        with torch.enable_grad():
            for _ in range(self.steps):
                optimiser.zero_grad()
                loss = self.net(x).square().mean()
                scaler.scale(loss).backward()
                scaler.step(optimiser)
                scaler.update()
        return self.net(x)


class Gradient(nn.Module):
    """The gradient of its weight is what it returns; nothing sets it to zero."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        with torch.enable_grad():
            self.net(x).square().mean().backward()
        return self.net.weight.grad + 0


class Data(nn.Module):
    """Writes through ``.data``, which no version counts."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        self.net.weight.data.mul_(0.5)
        return self.net(x)


BUILDS = {
    "adamw": Steps, "sgd": lambda: Steps("sgd"), "scaler": lambda: Steps(scaled=True), "gradient": Gradient,
    "data": Data,
}  # fmt: skip


@pytest.mark.parametrize("mode", ["torch_fp32", "torch_fp64", "torch_bf16", "torch_autocast_bf16"])
@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_every_run_starts_from_the_models_own_weights(build: Any, mode: str) -> None:
    torch.manual_seed(0)
    module, x = build().eval(), torch.randn(4, 6)
    before = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
    reports = [compare_module(module, x, run_mode=mode, device="cpu") for _ in range(2)]
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert all(parameter.grad is None for parameter in module.parameters())
    first, second = ([(row.name, row.status, row.relative_l2) for row in report.rows] for report in reports)
    assert first == second
    for report in reports:
        output = report.outputs[0]
        assert output.comparison is not None
        assert output.relative_l2 is not None
        assert output.relative_l2 < 0.05
        if mode == "torch_fp32":
            assert all(row.comparison.identical for row in report.rows if row.comparison is not None)
            assert not [row for row in report.rows if row.status is Status.FAIL]
        assert not any("one after the other" in note for note in report.notes)
        writes = build is not Gradient
        assert any("gets its own copies" in note for note in report.target.notes) == writes


@pytest.mark.parametrize(
    ("build", "backend"),  # each step is several graphs, which inductor compiles for seconds each
    [(lambda: Steps("sgd", steps=1), "aot_eager"), (Gradient, "inductor"), (Data, "inductor")],
    ids=["sgd", "gradient", "data"],
)
def test_a_compiled_run_leaves_the_model_as_it_was(build: Any, backend: str) -> None:
    torch.manual_seed(0)
    module, x = build().eval(), torch.randn(4, 6)
    before = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
    settings = {"compile_backend": backend}
    report = compare_module(module, x, run_mode="torch_compile", device="cpu", settings=settings)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert all(parameter.grad is None for parameter in module.parameters())
    assert all(row.relative_l2 is not None and row.relative_l2 < 1e-5 for row in report.rows if row.comparison)
    assert holds_approved(list(report.target.notes))
    if build is not Gradient:
        assert holds_approved(list(report.target.notes), 2)


def test_what_is_returned_is_what_a_plain_run_returns() -> None:
    from precision_debug_torch.make import build as ready
    from precision_debug_torch.model import from_module
    from precision_debug_torch.modes import recipe
    from precision_debug_torch.session import TorchSession

    torch.manual_seed(0)
    module, x = Steps().eval(), torch.randn(4, 6)
    session = TorchSession(
        ready(from_module(module, x), recipe("torch_fp32"), {"device": "cpu"}), recipe("torch_fp32"), level="op", seed=0
    )
    feeds = {"x": as_array(x)}
    seen: list[str] = []
    runs = [
        session.run(feeds)["output"].copy(),
        session.run(feeds, lambda op_type, name, value: seen.append(name))["output"].copy(),
        session.run(feeds)["output"].copy(),
    ]
    assert seen
    session.close()
    with torch.no_grad():
        plain = as_array(module(x))  # last, for it changes the module
    assert all((run == plain).all() for run in runs)


def test_a_write_that_only_a_later_run_does_is_refused() -> None:
    turns = [0]

    class Later(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(6, 3)

        def forward(self, x: Any) -> Any:
            turns[0] += 1
            if turns[0] > 2:
                self.net.weight.mul_(0.5)
            return self.net(x)

    module = Later()
    before = module.net.weight.detach().clone()
    with pytest.raises(BackendError, match=r"parameter 'net\.weight', which its first"):
        compare_module(module, torch.randn(4, 6), run_mode="torch_fp32", device="cpu")
    assert torch.equal(module.net.weight, before)


def test_a_gradient_without_recording_is_one_line() -> None:
    class Forgets(Gradient):
        def forward(self, x: Any) -> Any:
            self.net(x).mean().backward()
            return self.net.weight.grad

    with raises_approved(BackendError) as raised:
        compare_module(Forgets(), torch.randn(4, 6), run_mode="torch_bf16", device="cpu")
    assert "asks for gradients" in str(raised.value)
