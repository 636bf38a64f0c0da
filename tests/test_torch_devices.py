"""Where a model goes: another device for the baseline, parameters that lie on several, and where a pair is compared.

There is one real device here; "meta" stands for another where no numbers are needed. tests/gpu/torch_two_cards.py has
the same with two GPUs.
"""

# ruff: noqa: E402

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
from approval import raises_approved

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch_models
from precision_debug_torch import make
from precision_debug_torch.backend import on_device
from precision_debug_torch.model import from_module
from precision_debug_torch.modes import recipe
from precision_debug_torch.on_device import choose_device
from precision_debug_torch.workbench import TorchWorkbench

import precision_debug
from precision_debug.cli.engine_options import add_engine_options, engine_options
from precision_debug.errors import BackendUnavailable, UsageError
from precision_debug.explain.workbench import HostWorkbench
from precision_debug.records import ModelFiles, RunSpec
from precision_debug.run.plan import make_plan

MODELS = Path(torch_models.__file__)


def options(*words: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    add_engine_options(parser, reserved=())
    return engine_options(parser.parse_args(words))


def test_the_baseline_has_a_device_of_its_own() -> None:
    given = options("--device", "cuda:0", "--baseline_device", "cuda:1")
    assert given == {"device": "cuda:0", "baseline.device": "cuda:1"}
    spec = RunSpec(model=ModelFiles(model_file=f"{MODELS}:encoder"), run_mode="torch_bf16", options=given)
    plan = make_plan(spec, check_machine=False)
    assert plan.baseline is not None
    assert plan.baseline.spec.options["device"] == "cuda:1"
    assert plan.target.spec.options["device"] == "cuda:0"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_there_is_one_line() -> None:
    with raises_approved(BackendUnavailable):
        precision_debug.compare(
            f"{MODELS}:encoder", run_mode="torch_bf16", device="cpu", **{"baseline.device": "cuda:1"}
        )
    with pytest.raises(UsageError, match="no device 'gpu'"):
        precision_debug.compare(f"{MODELS}:encoder", run_mode="torch_bf16", device="gpu")


class Sharded(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Its second layer lies on another device."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.second = torch.nn.Linear(4, 4, device="meta")

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x).to("meta")).to("cpu")


def test_parameters_on_several_devices_stay_there(monkeypatch: pytest.MonkeyPatch) -> None:
    # the second device holds no values, which is refused as a model
    monkeypatch.setattr("precision_debug_torch.engine.whole_module.refuse_parts", lambda *_: None)
    model = from_module(Sharded(), {"x": torch.ones(2, 4)})
    for asked in ({}, {"device": "as_built"}):
        built = make.build(model, recipe("torch_bf16"), asked)
        assert built.device == torch.device("cpu"), "its inputs go where its first parameter is"
        found = {name: (str(one.device), one.dtype) for name, one in built.module.named_parameters()}
        assert found == {
            "first.weight": ("cpu", torch.bfloat16), "first.bias": ("cpu", torch.bfloat16),
            "second.weight": ("meta", torch.bfloat16), "second.bias": ("meta", torch.bfloat16),
        }  # fmt: skip
    assert make.choose_placement(model, {"device": "cpu"}) == torch.device("cpu")
    assert make.choose_placement(from_module(torch.nn.Linear(2, 2)), {}) == make.chosen_device({})


def test_as_built_runs_where_the_factory_has_put_it() -> None:
    report = precision_debug.compare(f"{MODELS}:encoder", run_mode="torch_bf16", device="as_built", explain="off")
    plain = precision_debug.compare(f"{MODELS}:encoder", run_mode="torch_bf16", device="cpu", explain="off")
    assert [(row.name, row.comparison) for row in report.rows] == [(row.name, row.comparison) for row in plain.rows]


def test_a_pair_is_compared_where_the_larger_tensor_is() -> None:
    small, large = torch.empty(4, device="meta", dtype=torch.bfloat16), torch.empty(4, device="meta")
    there = torch.empty(4, dtype=torch.float64)
    assert choose_device(small, large) == torch.device("meta")
    assert choose_device(there, small) == torch.device("meta"), "a GPU before the host, however large"


def test_two_gpus_compare_on_one_and_a_gpu_beside_the_host_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    one, two, host = {"device": "cuda"}, {"device": "cuda:1"}, {"device": "cpu"}
    assert make.chosen_device(one) == torch.device("cuda:0")
    assert on_device(one, two) is not None
    assert on_device(one, {**two, "compare_on": "host"}) is None
    assert on_device(host, two) is None
    with raises_approved(UsageError) as raised:
        make.chosen_device({"device": "cuda:7"})
    assert "no device 'cuda:7'" in str(raised.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_not_finite_stays_out_of_a_relative_error(dtype: Any) -> None:
    base = torch.tensor([1.0, float("nan"), 3.0, 1e30, 2.0, float("inf")]).to(dtype)
    target = torch.tensor([1.5, 1.0, float("inf"), 2e30, 2.0, float("inf")]).to(dtype)
    found = TorchWorkbench().squares(base, target, 1e18)
    assert found == HostWorkbench().squares(base.float().numpy(), target.float().numpy(), 1e18)
    assert found == (0.25, 5.0, 2)
