"""Nested tensors: padding that nn.TransformerEncoder leaves out, and jagged ones of a model's own."""

# ruff: noqa: E402

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from approval import raises_approved

torch = pytest.importorskip("torch", reason="torch is not installed")

from precision_debug_torch.backend import open_model
from precision_debug_torch.live import compare_module
from precision_debug_torch.model import example_feeds, from_module
from torch import nn

from precision_debug.errors import InputError
from precision_debug.numbers.arrays import as_array

pytestmark = pytest.mark.filterwarnings("ignore:.*[Nn]ested tensor")


class Padded(nn.Module):
    """The encoder takes its padding out, and works on a nested tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)
        self.out = nn.Linear(16, 4)

    def forward(self, x: Any, padding: Any) -> Any:
        return self.out(self.encoder(x, src_key_padding_mask=padding))


class Jagged(nn.Module):
    """layout: of the nested tensor that it makes; returns: whether it returns one."""

    def __init__(self, layout: Any = torch.jagged, *, returns: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)
        self.layout, self.returns = layout, returns

    def forward(self, x: Any, y: Any) -> Any:
        parts = torch.nested.as_nested_tensor([x, y], layout=self.layout)
        found = self.second(torch.relu(self.first(parts)))
        return found if self.returns else torch.nested.to_padded_tensor(found, 0.0)


def padded() -> tuple[Any, Any]:
    torch.manual_seed(0)
    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[1, 3:] = True
    return Padded().eval(), (torch.randn(2, 5, 16), padding)


def jagged(layout: Any = torch.jagged, *, returns: bool = False) -> tuple[Any, Any]:
    torch.manual_seed(0)
    return Jagged(layout, returns=returns).eval(), (torch.randn(3, 4), torch.randn(2, 4))


CASES = {
    "padded": padded,
    "jagged": jagged,
    "strided": lambda: jagged(torch.strided),
    "jagged_result": lambda: jagged(returns=True),
    "strided_result": lambda: jagged(torch.strided, returns=True),
}


@pytest.mark.parametrize("level", ["op", "module"])
@pytest.mark.parametrize("mode", ["torch_fp32", "torch_fp64", "torch_bf16"])
@pytest.mark.parametrize("case", CASES)
def test_every_tensor_is_compared(case: str, mode: str, level: str) -> None:
    report = compare_module(*CASES[case](), run_mode=mode, device="cpu", level=level)
    assert all(row.comparison is not None for row in report.rows)
    limit = {"torch_fp32": 0.0, "torch_fp64": 1e-5, "torch_bf16": 0.02}[mode]
    assert all(row.relative_l2 is not None and row.relative_l2 <= limit for row in report.rows if row.is_output)
    if case == "padded" and level == "op":
        inside = [row for row in report.rows if row.op_type == "aten._transformer_encoder_layer_fwd"]
        assert [row.view for row in inside] == ["packed"] * 2
        assert all(row.comparison is not None and row.comparison.base.shape == (8, 16) for row in inside)


@pytest.mark.parametrize("case", CASES)
def test_outputs_are_a_plain_runs(case: str) -> None:
    module, inputs = CASES[case]()
    model = from_module(module, inputs)
    feeds = example_feeds(model)
    with torch.no_grad():
        plain = as_array(module(*inputs))
    session = open_model(model, "torch_fp32", {"device": "cpu"}, [feeds])
    for hook in (None, lambda kind, name, tensor: None):
        assert session.run(feeds, hook)["output"].tobytes() == plain.tobytes()
    session.close()


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_one_as_an_input(layout: Any) -> None:
    class Takes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return self.first(x).to_padded_tensor(0.0)

    torch.manual_seed(0)
    parts = torch.nested.nested_tensor([torch.randn(3, 4), torch.randn(2, 4)], layout=layout)
    report = compare_module(Takes().eval(), parts, run_mode="torch_bf16", device="cpu")
    assert all(row.comparison is not None for row in report.rows)
    assert report.rows[0].comparison is not None
    assert report.rows[0].comparison.base.shape == (5, 4)
    session = open_model(from_module(Takes().eval(), parts), "torch_fp32", {"device": "cpu"})
    with raises_approved(InputError) as raised:
        session.run({"x": np.zeros((3, 4), np.float32)})
    assert "(3, 4), (2, 4) in a row" in str(raised.value)
    session.close()


def test_other_values_are_written_into_its_parts() -> None:
    model = from_module(*padded())
    feeds = example_feeds(model)
    session = open_model(model, "torch_fp32", {"device": "cpu"}, [feeds])
    seen: dict[str, Any] = {}
    session.run(feeds, lambda kind, name, tensor: seen.__setitem__(name, np.array(tensor)))
    layer = next(meta.name for meta in session.tensors if meta.op_type == "aten._transformer_encoder_layer_fwd")
    replacer = session.replacer
    assert replacer is not None
    other = replacer.run_replacing(feeds, lambda kind, name, tensor: tensor * 2 if name == layer else None)
    same = replacer.run_replacing(feeds, lambda kind, name, tensor: seen[name])
    assert np.array_equal(same["output"], seen["output"])
    assert not np.allclose(other["output"], seen["output"], atol=0.05)
    session.close()


def test_what_torch_gives_no_values_of_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from precision_debug_torch.engine import call_values

    def fails(tensor: Any) -> Any:
        raise RuntimeError("no such layout")

    monkeypatch.setattr(call_values, "pack_parts", fails)
    report = compare_module(*padded(), run_mode="torch_bf16", device="cpu")
    hidden = [row for row in report.rows if row.comparison is None]
    assert {row.op_type for row in hidden} == {"aten._transformer_encoder_layer_fwd", "aten._nested_tensor_from_mask"}
    assert all("(no such layout)" in str(row.reason) for row in hidden)
    assert report.outputs[0].comparison is not None


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_a_hook_of_ones_own_reads_it(layout: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = torch.nested.nested_tensor([torch.ones(3, 4), torch.zeros(2, 4)], layout=layout)
    assert as_array(parts).tolist() == [[1.0] * 4] * 3 + [[0.0] * 4] * 2
