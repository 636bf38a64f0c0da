"""A torch run that goes on with other values than it computed: views and in-place operators see them, the model's own
tensors are never written."""

# ruff: noqa: E402

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from planted import torch_faults, torch_further
from planted.run import judged, quick_ones, report_of
from precision_debug_torch import session, workbench
from precision_debug_torch.backend import open_model
from precision_debug_torch.model import example_feeds, from_module
from precision_debug_torch.workbench import TorchWorkbench

import precision_debug
from precision_debug.explain.workbench import HostWorkbench

FAULTS = torch_faults.CASES


@pytest.mark.parametrize("one", FAULTS, ids=[one.name for one in FAULTS])
def test_the_culprit_comes_first_with_its_cause_and_clean_models_accuse_nobody(one: Any, tmp_path: Path) -> None:
    if one.factory in ("clean_gpt2", "clean_llama", "clean_bert"):
        pytest.importorskip("transformers", reason="transformers is not installed")
    who, why, said = judged(one, report_of(one, tmp_path))
    assert who, said
    assert why, said


@pytest.mark.parametrize("one", quick_ones(torch_further.CASES))
def test_so_it_is_of_kinds_that_the_rules_were_not_calibrated_on(one: Any, tmp_path: Path) -> None:
    if one.factory in ("clean_whisper", "clean_vision", "one_gate", "one_embedding", "one_of_the_head_module"):
        pytest.importorskip("transformers", reason="transformers is not installed")
    who, why, said = judged(one, report_of(one, tmp_path))
    assert who, said
    assert why, said


ON_DEVICE = (
    "shift_and_back_bf16",
    "mask_times_zero_fp16",
    "exp_underflow_fp16",
    "long_cumsum_bf16",
    "clean_encoder_fp16",
)


@pytest.mark.parametrize("name", ON_DEVICE)
def test_where_the_tensors_stay_on_their_device_the_same_is_found(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a CPU's tensors, by the very code that runs on CUDA."""
    compared = []
    there = TorchWorkbench.compare
    monkeypatch.setattr(TorchWorkbench, "compare", lambda self, b, t: compared.append(type(b)) or there(self, b, t))
    one = next(case for case in FAULTS if case.name == name)
    model, _, feeds = one.make(tmp_path)
    reports = [
        precision_debug.compare(model, run_mode=one.mode, inputs=feeds, compare_on=where, **one.options)
        for where in ("host", "device")
    ]
    assert set(compared) == {torch.Tensor}
    who, why, said = judged(one, reports[1])
    assert who, said
    assert why, said
    first, second = ([row.introduced for row in report.rows if row.introduced is not None] for report in reports)
    assert [item.name for item in first] == [item.name for item in second]
    for ours, theirs in zip(first, second, strict=True):
        assert (theirs.born_nan, theirs.born_inf, theirs.flips) == (ours.born_nan, ours.born_inf, ours.flips)
        assert (theirs.rel_l2 or 0.0) == pytest.approx(ours.rel_l2 or 0.0, rel=1e-3, abs=1e-9), ours.name
    ours, theirs = (report.explanation for report in reports)
    assert ours is not None
    assert theirs is not None
    assert ours.expected is not None
    assert ours.expected > 0 or name == "mask_times_zero_fp16"
    assert theirs.expected == pytest.approx(ours.expected, rel=1e-2)
    assert theirs.budget == pytest.approx(ours.budget, rel=2e-2, abs=2e-3)


@pytest.mark.parametrize("free", [None, 0], ids=["all on the device", "none of it fits"])
def test_inherited_errors_are_those_of_the_host_and_stay_on_the_device(
    free: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = next(case for case in FAULTS if case.name == "long_cumsum_bf16")
    model, _, feeds = one.make(tmp_path)
    copied: list[str] = []
    there = session.as_array
    monkeypatch.setattr(session, "as_array", lambda value, name="": copied.append(name) or there(value, name=name))
    monkeypatch.setattr(workbench, "_half_of_free_memory", lambda: free)

    def told(where: str) -> dict[str, float | None]:
        copied.clear()
        report = precision_debug.compare(
            model, run_mode=one.mode, inputs=feeds, compare_on=where, explain="full", **one.options
        )
        return {row.name: row.introduced.inherited for row in report.rows if row.introduced is not None}

    host = told("host")
    assert copied
    device = told("device")
    assert set(copied) <= {"output"}
    assert sum(value is not None for value in host.values()) > 2
    assert device.keys() == host.keys()
    for name, value in host.items():
        assert (device[name] is None) == (value is None), name
        assert (device[name] or 0.0) == pytest.approx(value or 0.0, rel=1e-3, abs=1e-9), name


class Views(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(4) * 2)
        self.register_buffer("shift", torch.ones(4))
        self.kept = torch.full((4,), 3.0)

    def forward(self, x: Any) -> Any:
        y = x @ self.weight.t()
        part = y[:, 1:3]
        part.add_(1.0)
        wide = y.unsqueeze(0).expand(3, -1, -1)
        self.shift.add_(1.0)
        return wide.sum(0) + self.shift + self.kept.view(2, 2).view(4)


def opened(module: Any, inputs: Any, mode: str = "torch_fp32", **options: Any) -> tuple[Any, Any]:
    model = from_module(module, inputs)
    feeds = example_feeds(model)
    return open_model(model, mode, {"device": "cpu", **options}, [feeds]), feeds


@pytest.mark.parametrize("mode", ["torch_fp32", "torch_bf16", "torch_autocast_bf16"])
def test_readers_views_and_in_place_operators_see_what_was_put(mode: str) -> None:
    session, feeds = opened(Views(), torch.ones(2, 4), mode)
    assert session.replacer is not None
    assert session.replaces
    plain = session.run(feeds)["output"].astype(np.float32)
    assert np.array_equal(plain, np.tile([11.0, 14, 14, 11], (2, 1)))
    changed = session.run_replacing(
        feeds, lambda _op, name, value: np.full(value.shape, 7.0, np.float32) if name == "mm" else None
    )["output"].astype(np.float32)
    assert np.array_equal(changed, np.tile([26.0, 29, 29, 26], (2, 1)))
    in_place = session.run_replacing(
        feeds, lambda _op, name, value: np.full(value.shape, 10.0, np.float32) if name == "add" else None
    )["output"].astype(np.float32)
    assert np.array_equal(in_place, np.tile([11.0, 35, 35, 11], (2, 1)))
    again = session.run(feeds)["output"].astype(np.float32)
    assert np.array_equal(again, plain)


class Odd(torch.nn.Module):
    """Views, an operator in place, a number as a result, several results, a weight that is only moved about."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(12.0).view(3, 4))

    def forward(self, x: Any) -> Any:
        first, second = (x @ self.weight.t()).split([1, 2], dim=1)
        wide = first.expand(-1, 2).clone().add_(second.to(torch.bfloat16).float())
        return wide.topk(1).values * wide.sum().item()


def test_a_run_that_is_asked_for_some_names_shows_of_them_what_another_shows_of_all() -> None:
    """In every mode of looking: the first run, which lists, another one, and one that is asked for a few."""
    session, feeds = opened(Odd().eval(), torch.linspace(-1, 1, 8).view(2, 4))
    looks: list[dict[str, Any]] = []
    for _ in range(2):
        looks.append({})
        session.run_replacing(feeds, lambda op, name, value: looks[-1].setdefault(name, (op, np.array(value))) and None)
    listed = tuple(session.tensors)
    assert set(looks[0]) == {meta.name for meta in listed if not meta.unseen}
    assert any("item" in name or "scalar" in name for name in looks[0])
    for names in ([*looks[0]][::2], [*looks[0]][1::2], [*looks[0]], ["no such name"]):
        seen: dict[str, Any] = {}
        outputs = session.run_replacing(
            feeds, lambda op, name, value, seen=seen: seen.setdefault(name, (op, np.array(value))) and None, names
        )
        assert [*seen] == [name for name in looks[0] if name in names]
        for name, (op, value) in seen.items():
            for look in looks:
                assert look[name][0] == op
                np.testing.assert_array_equal(look[name][1], value)
        np.testing.assert_array_equal(outputs["output"], looks[0]["output"][1])
        assert tuple(session.tensors) == listed
    operator = session.operator("mm")
    assert operator is not None
    np.testing.assert_array_equal(operator.parameters["weight"], np.arange(12.0).reshape(3, 4))


@pytest.mark.parametrize("level", ["op", "module"])
def test_the_models_own_tensors_and_the_feeds_are_never_written(level: str) -> None:
    module = Views()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    session, feeds = opened(module, torch.ones(2, 4), level=level)
    fed = {name: array.copy() for name, array in feeds.items()}
    session.run_replacing(feeds, lambda _op, _name, value: np.asarray(value) * 0 + 99)
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    assert torch.equal(module.kept, torch.full((4,), 3.0))
    assert all(np.array_equal(fed[name], array) for name, array in feeds.items())


def test_what_is_held_saturates_and_is_rounded() -> None:
    session, feeds = opened(torch.nn.Linear(4, 4), torch.ones(2, 4), "torch_fp16")
    session.run(feeds, lambda *_: None)
    value = np.array([1e6, -1e6, 1.0001, np.inf], np.float32)
    assert np.array_equal(session.held("addmm", value), np.array([65504.0, -65504.0, 1.0, np.inf], np.float32))
    assert session.held("nothing", value) is None
    put: dict[str, Any] = {}

    def replace(_op: str, name: str, tensor: Any) -> Any:
        put[name] = np.array(tensor)
        return np.full(tensor.shape, 1e6, np.float32) if name == "addmm" else None

    session.run_replacing(feeds, replace)
    assert float(put["output"].max()) == 65504.0


def test_an_operator_tells_what_it_reads_under_the_models_names_and_values() -> None:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = torch.nn.Linear(4, 4)
            self.norm = torch.nn.LayerNorm(4, eps=1e-3)

        def forward(self, x: Any) -> Any:
            return self.norm(self.up(x)) + 1e-9

    module = Block()
    session, feeds = opened(module, torch.ones(2, 4), "torch_fp16")
    session.run_replacing(feeds, lambda *_: None)
    up, norm, add = (session.operator(name) for name in ("up/addmm", "norm/layer_norm", "add"))
    assert list(up.parameters) == ["up.bias", "up.weight"]
    assert np.array_equal(up.parameters["up.weight"], module.up.weight.detach().numpy())
    assert norm.attributes["eps"] == 1e-3
    assert add.op_type == "aten.add"
    assert float(add.parameters["other"]) == 1e-9
    assert session.operator("output") is None


def test_modules_are_operators_at_level_module() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4, eps=1e-3))
    session, feeds = opened(module, torch.ones(2, 4), level="module")
    outputs = session.run_replacing(
        feeds, lambda _op, name, value: np.tile(np.arange(4, dtype=np.float32), (2, 1)) if name == "0" else None
    )
    wanted = module[1](torch.arange(4.0).repeat(2, 1)).detach().numpy()
    assert np.array_equal(outputs["output"], wanted)
    session.operator("1")
    assert session.operator("1").attributes["eps"] == 1e-3
    assert list(session.operator("0").parameters) == ["0.weight", "0.bias"]


@pytest.mark.parametrize("kind", ["exported", "script"])
def test_exported_programs_and_torchscript_are_explained(kind: str, tmp_path: Path) -> None:
    module, inputs = torch_faults.linear_overflow()
    plain = torch.nn.Sequential(*(getattr(module, name) for name in ("first", "up", "down"))).eval()
    path = tmp_path / ("m.pt2" if kind == "exported" else "m.pt")
    if kind == "exported":
        torch.export.save(torch.export.export(plain, (inputs,)), path)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.jit.save(torch.jit.trace(plain, inputs), path)
    report = precision_debug.compare(
        path, run_mode="torch_autocast_fp16" if kind == "exported" else "torch_fp32", device="cpu",
        baseline="torch_fp32", inputs="" if kind == "exported" else {"input": inputs.numpy()},
    )  # fmt: skip
    explanation = report.explanation
    assert explanation.state == ("culprits" if kind == "exported" else "healthy"), explanation.reason
    assert all(culprit.name.startswith("1") for culprit in explanation.culprits)


def test_one_run_after_the_other_finds_the_same(tmp_path: Path) -> None:
    one = next(case for case in FAULTS if case.name == "linear_overflow_fp16")
    model, _, _ = one.make(tmp_path)
    beside = precision_debug.compare(model, run_mode=one.mode, device="cpu")
    after = precision_debug.compare(model, run_mode=one.mode, device="cpu", lockstep=False)
    assert [c.name for c in beside.explanation.culprits] == [c.name for c in after.explanation.culprits]
    assert [row.introduced and row.introduced.rel_l2 for row in beside.rows] == [
        row.introduced and row.introduced.rel_l2 for row in after.rows
    ]


@pytest.mark.slow
def test_a_compiled_target_is_replayed_in_the_baseline(tmp_path: Path) -> None:
    one = next(case for case in FAULTS if case.name == "clean_cnn_bf16")
    model, _, _ = one.make(tmp_path)
    report = precision_debug.compare(model, run_mode="torch_compile", device="cpu")
    assert report.explanation.method == "replayed"
    assert report.explanation.state == "healthy"


def test_what_rounding_everywhere_predicts_does_not_add_up_along_a_residual_stream() -> None:
    path = f"{Path(torch_faults.__file__)}:residual_stream"
    explanation = precision_debug.compare(path, run_mode="torch_bf16", device="cpu").explanation
    assert explanation.state == "healthy"
    assert explanation.actual < explanation.expected < 4 * explanation.actual


@pytest.mark.parametrize("outlier", [False, True])
def test_dynamic_int8_is_judged_by_the_unit_of_int8(outlier: bool, tmp_path: Path) -> None:
    pytest.importorskip("torchao", reason="torchao is not installed")
    path = tmp_path / "m.py"
    spoiled = "    m[0].weight.data[5] *= 3000\n    m[2].weight.data[:, 5] *= 1e-3\n" if outlier else ""
    path.write_text(
        "import torch\nfrom torch import nn\ndef build():\n    torch.manual_seed(0)\n"
        "    m = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64), nn.LayerNorm(64)).eval()\n"
        f"{spoiled}    return m, torch.randn(16, 64)\n"
    )
    told = precision_debug.compare(f"{path}:build", run_mode="torch_int8", device="cpu").explanation
    assert told is not None
    assert told.unit == pytest.approx(0.01)
    assert told.state == ("culprits" if outlier else "healthy")
    assert [c.cause for c in told.culprits][:1] == (["outlier_channel"] if outlier else [])


_TIED = """
import torch

class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(16384, 64)

    def forward(self, ids):
        return torch.nn.functional.linear(torch.tanh(self.table(ids)), self.table.weight)

def build():
    return Tied().eval()

def other():
    model = build()
    model.table.weight.data *= 1.25
    return model
"""


@pytest.mark.parametrize(("mode", "factory"), [("torch_bf16", "build"), ("torch_fp32", "other")])
def test_nothing_is_made_for_a_view_of_a_parameter_which_nothing_can_replace(
    mode: str, factory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transposed view of a table is as large as the model's largest weight, and a run goes on with it whatever
    is put."""
    made = list[tuple[int, ...]]()
    for name in ("with_error", "shaken", "kept"):
        there = getattr(HostWorkbench, name)

        def noted(self: Any, value: Any, *others: Any, there: Any = there) -> Any:
            made.append(tuple(value.shape))
            return there(self, value, *others)

        monkeypatch.setattr(HostWorkbench, name, noted)
    file = tmp_path / "tied.py"
    file.write_text(_TIED, encoding="utf-8")
    report = precision_debug.compare(
        f"{file}:{factory}", run_mode=mode, baseline="torch_fp32", baseline_model=f"{file}:build",
        inputs={"ids": np.arange(8)[None]}, explain="full",
    )  # fmt: skip
    shapes = [row.comparison.base.shape for row in report.rows if row.comparison is not None]
    assert (64, 16384) in shapes
    assert made
    assert (64, 16384) not in made
