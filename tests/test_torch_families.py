"""Calls that torch does with other operators in another type: paired by what they are, never by a name that shifted."""

# ruff: noqa: E402

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from approval import holds_approved, is_approved

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch_models
from precision_debug_torch import session
from precision_debug_torch.backend import open_model
from precision_debug_torch.engine import function_calls
from precision_debug_torch.live import compare_module
from precision_debug_torch.model import example_feeds, from_module
from torch import nn
from torch.overrides import TorchFunctionMode

import precision_debug
from precision_debug.records import Row, Status

MODELS = Path(torch_models.__file__)


def compared(factory: str, mode: str, lockstep: bool = True) -> dict[str, Row]:
    report = precision_debug.compare(
        f"{MODELS}:{factory}", run_mode=mode, device="cpu", compare_on="device", lockstep=lockstep, atol=0.05, rtol=0.05
    )
    assert report.rows[-1].status is Status.PASS
    return {row.name: row for row in report.rows}


def test_attention_by_another_kernel() -> None:
    rows = compared("other_kernels", "torch_bf16", lockstep=False)
    for call in ("scaled_dot_product_attention", "scaled_dot_product_attention#2"):
        inside = [row for name, row in rows.items() if name.startswith(f"{call}/")]
        assert len(inside) > 5
        pairs = [row for row in inside if row.comparison is not None]
        assert [row.target_name for row in pairs] == [call], "its result only"
        assert (pairs[0].paired_by, pairs[0].status) == ("graph metadata", Status.PASS)
        assert pairs[0].target_op_type == "aten._scaled_dot_product_flash_attention_for_cpu"
        assert all(row.extra["Part of"] == call for row in inside)
        assert {row.status for row in inside} <= {Status.PASS, Status.FUSED_AWAY, Status.NOT_COMPARED}
    after = [rows["transpose#2"], rows["mul"], rows["transpose#3"], rows["output"]]
    assert [(row.paired_by, row.status, row.target_name == row.name) for row in after] == [
        ("exact", Status.PASS, True)
    ] * 4


def test_a_recurrent_layer_by_other_operators() -> None:
    rows = compared("recurrent", "torch_fp64")
    inside = [row for row in rows.values() if row.extra.get("Part of") == "rnn/lstm"]
    pairs = {row.name: row.target_name for row in inside if row.comparison is not None}
    assert len(pairs) == 3, "sequence, hidden and cell state; what the roads have in between has no partner"
    assert pairs["rnn/lstm/stack"] == "rnn/lstm/stack#3", "the roads return both states in other orders"
    assert rows["rnn/lstm/stack"].paired_by == "graph metadata"
    assert all(row.status is Status.PASS for row in inside if row.comparison is not None)
    assert is_approved(rows["rnn/lstm/mkldnn_rnn_layer"].reason)
    assert is_approved(rows["rnn/lstm/addmm"].reason, 2)
    assert rows["rnn/lstm/transpose"].status is Status.FUSED_AWAY, "float64's of that name is not a part of one kernel"
    assert (rows["transpose#2"].paired_by, rows["transpose#2"].status) == ("exact", Status.PASS)


def test_the_same_operators_are_paired_by_name() -> None:
    rows = compared("recurrent", "torch_fp32")
    assert {row.paired_by for row in rows.values() if row.comparison is not None} == {"exact"}
    assert all(row.status in (Status.PASS, Status.NOT_COMPARED) for row in rows.values())


def test_torchs_own_fast_path_does_not_notice() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    report = compare_module(layer.eval(), torch.randn(1, 3, 8), run_mode="torch_fp32", device="cpu")
    assert any(row.op_type == "aten._transformer_encoder_layer_fwd" for row in report.rows)


class Scaled(torch.Tensor):
    """A library's own weights: torch's layers must not take their single operator for them."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.linear:
            x, weight, *bias = args
            with torch._C.DisableTorchFunctionSubclass():
                return func(x, 2 * weight, *bias)
        return super().__torch_function__(func, types, args, kwargs or {})


class Listening(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Watched(nn.Module):
    """The same layer with a mode of its owner's active, and without."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, x: Any) -> Any:
        with Listening():
            first = self.layer(x)
        return first, self.layer(x)


def of_a_library() -> Any:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    layer.linear1.weight = nn.Parameter(layer.linear1.weight.detach().as_subclass(Scaled))
    return layer


@pytest.mark.parametrize("build", [Watched, of_a_library])
def test_torchs_own_fast_path_is_taken_where_a_plain_run_takes_it(build: Any) -> None:
    torch.manual_seed(0)
    module, x = build().eval(), torch.randn(2, 5, 16)
    with torch.no_grad():
        plain = module(x)
    wanted = [tensor.numpy() for tensor in (plain if isinstance(plain, tuple) else (plain,))]
    model = from_module(module, x)
    session = open_model(model, "torch_fp32", {"device": "cpu"})
    found = session.run(example_feeds(model), lambda kind, name, tensor: None)
    assert [found[name].tobytes() for name in found] == [array.tobytes() for array in wanted]
    whole = [meta for meta in session.tensors if meta.op_type == "aten._transformer_encoder_layer_fwd"]
    assert len(whole) == (build is Watched)
    session.close()


def test_no_hook_is_called_inside_a_recurrent_call_of_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN's lock is held there; the other run waits for it. The rows are those of a run without the lock."""
    plain = compared("recurrent", "torch_fp64")
    monkeypatch.setattr(function_calls, "_may_use_cudnn", lambda args: True)
    tell, inside = session.Trace._tell, []

    def told(self: Any, *args: Any, **kwargs: Any) -> None:
        show = self._show
        if show is not None and not getattr(show, "watched", False):

            def watched(meta: Any, value: Any) -> None:
                inside.append(self._inside is not None)
                show(meta, value)

            watched.watched = True  # type: ignore[attr-defined]
            self._show = watched
        tell(self, *args, **kwargs)

    monkeypatch.setattr(session.Trace, "_tell", told)
    held = compared("recurrent", "torch_fp64")
    assert len(inside) > 20
    assert not any(inside)
    assert list(held) == list(plain)
    for name, row in held.items():
        same = {"extra": {}, "introduced": None}  # who did it is told in other runs, which this one does not change
        assert dataclasses.replace(row, **same) == dataclasses.replace(plain[name], **same), name


@pytest.mark.parametrize(("factory", "mode"), [("recurrent", "torch_fp64"), ("decoder", "torch_bf16")])
def test_reasons_do_not_depend_on_who_comes_first(factory: str, mode: str) -> None:
    """Side by side and one after the other."""
    together, apart = compared(factory, mode), compared(factory, mode, lockstep=False)
    assert {name: row.reason for name, row in together.items()} == {name: row.reason for name, row in apart.items()}


class Padded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 1)
        self.out = nn.Linear(16, 4)

    def forward(self, x: Any, padding: Any) -> Any:
        with contextlib.nullcontext() if x.dtype is torch.float32 else Listening():
            return self.out(self.encoder(x, src_key_padding_mask=padding))


@pytest.mark.filterwarnings("ignore:.*[Nn]ested tensor")
def test_padding_that_one_run_alone_leaves_out_is_told() -> None:
    torch.manual_seed(0)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    inputs = torch.randn(2, 5, 16), padding
    report = compare_module(Padded().eval(), inputs, run_mode="torch_bf16", device="cpu")
    assert holds_approved([str(note) for note in report.notes])
    plain = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 1).eval()
    both = compare_module(plain, (inputs[0], None, padding), run_mode="torch_bf16", device="cpu")
    assert not any("leaves out" in str(note) for note in both.notes)
