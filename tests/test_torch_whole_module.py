"""Modules whose weights are not all here, or that torch.compile is around; and two runs that take other branches."""

# ruff: noqa: E402

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from approval import holds_approved, raises_approved

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch_architectures
from precision_debug_torch.live import compare_module
from torch import nn

from precision_debug.errors import ModelError
from precision_debug.records import Status, Tolerance
from precision_debug.report.lead import lead_sentences

X = torch.linspace(-1, 1, 16).reshape(2, 8)


def net() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()


@pytest.fixture
def one_rank() -> Iterator[None]:
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    distributed.init_process_group("gloo", rank=0, world_size=1, init_method=f"tcp://127.0.0.1:{port}")
    yield
    distributed.destroy_process_group()


def test_weights_without_values_are_named() -> None:
    module = net()
    module[2] = nn.Linear(16, 4, device="meta")
    with pytest.raises(ModelError, match=r"2 of 4 weights .*2\.weight, 2\.bias.*assign=True"):
        compare_module(module, X, run_mode="torch_bf16", device="cpu")
    with raises_approved(ModelError):
        compare_module(net(), X.to("meta"), run_mode="torch_bf16", device="cpu")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("how", ["fsdp2", "tensor_parallel", "fsdp1"])
def test_parts_of_several_ranks_are_refused_with_what_to_do(how: str) -> None:
    module = net()
    if how == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        fully_shard(module)
    elif how == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel

        module = FullyShardedDataParallel(module, device_id=torch.device("cpu"))
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

        parallelize_module(module, init_device_mesh("cpu", (1,)), {"0": ColwiseParallel()})
    with pytest.raises(ModelError, match=r"several ranks|sharded by FSDP") as caught:
        compare_module(module, X, run_mode="torch_bf16", device="cpu")
    assert "full_state_dict=True" in str(caught.value)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what torch.compile imports
@pytest.mark.parametrize("which", ["whole", "part", "in_place"])
def test_what_was_compiled_runs_eagerly_and_it_is_said(which: str) -> None:
    module = net()
    plain = compare_module(net(), X, run_mode="torch_bf16", device="cpu")
    if which == "part":
        module[0] = torch.compile(module[0])
    elif which == "in_place":
        module.compile()
    else:
        module = torch.compile(module)
    children = list(module.modules())
    report = compare_module(module, X, run_mode="torch_bf16", device="cpu")
    assert [(row.name, row.relative_l2) for row in report.rows] == [(row.name, row.relative_l2) for row in plain.rows]
    assert holds_approved([str(n) for n in report.target.notes])
    assert list(module.modules()) == children, "the user's own is as it was"


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        y = self.first(x)
        if bool(y.double().sum() == self.exact):
            return torch.tanh(self.second(y))
        return torch.relu(self.first(y))

    exact: Any = 0.0


def test_two_runs_that_take_other_branches_are_told() -> None:
    torch.manual_seed(0)
    module = Branches().eval()
    with torch.no_grad():
        module.exact = float(module.first(X).double().sum())
    report = compare_module(module, X, run_mode="torch_bf16", device="cpu")
    (said,) = [str(note) for note in report.notes if "took different paths" in str(note)]
    assert "torch.tanh(self.second(y)); only the target" in said
    assert "torch.relu(self.first(y))" in said


class ClampsInHalf(nn.Module):
    """As T5 does: lines that float16 alone runs; what they make is empty in one place, as a cache begins."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        y = self.linear(torch.cat([torch.empty(0, 8, dtype=x.dtype) * 2, x]))
        if y.dtype == torch.float16:
            y = torch.clamp(
                y,
                min=-60000, max=60000)
        return y


def test_lines_that_one_run_alone_takes_and_tensors_without_an_element() -> None:
    own = Tolerance(given=False)
    report = compare_module(
        ClampsInHalf().eval(), X, run_mode="torch_fp16", device="cpu", tolerance=own, explain="fast"
    )  # fmt: skip
    (said,) = [note for note in report.notes if "took different paths" in str(note)]
    assert "only the target ran " in str(said)
    assert "nothing" not in str(said)
    assert "only the baseline" not in str(said)
    assert ",," not in str(said)
    empty = [row for row in report.compared if not row.comparison.base.elements]
    assert empty
    full = len(report.compared) - len(empty)
    first = lead_sentences(report)[0]
    assert first.en.startswith(f"Nothing to do: all {full} compared tensors agree")
    assert f"比较的 {full} 个张量全部一致" in first.zh


class MaskOfItsOwnType(nn.Module):
    """As transformers makes one: the least number of the type that it runs in."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.value = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        q = self.query(x)
        mask = torch.full((2, 2), torch.finfo(q.dtype).min, dtype=q.dtype).triu(1)
        return torch.softmax(q @ q.T + mask, -1) @ self.value(x)


@pytest.mark.parametrize("mode", ["torch_fp64", "torch_fp16"])
def test_a_mask_at_the_end_of_the_type_that_runs_is_no_error(mode: str) -> None:
    """float64's is 1.8e308, whose square no float64 holds."""
    torch.manual_seed(0)
    own = Tolerance(given=False)
    report = compare_module(
        MaskOfItsOwnType().eval(), X, run_mode=mode, device="cpu", tolerance=own, explain="fast"
    )  # fmt: skip
    assert report.explanation is not None
    assert report.explanation.state == "healthy", report.explanation.reason
    assert {row.status for row in report.compared} == {Status.PASS}


class MaskOfTokens(nn.Module):
    """As BERT's: 1 - mask says where, and float32's least number is put there."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.value = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Any, mask: Any) -> Any:
        q = self.query(x)
        inverted = torch.tensor(1.0, dtype=q.dtype) - mask.expand(6, 6).to(q.dtype)
        low = inverted.masked_fill(inverted.to(torch.bool), torch.finfo(q.dtype).min)
        return torch.softmax(q @ q.T + low, -1) @ self.value(x)


@pytest.mark.parametrize("mode", ["torch_fp64", "torch_fp16"])
def test_a_mask_of_zeros_and_ones_is_exact_and_its_low_number_is_not_taken_away(mode: str) -> None:
    """Neither does rounding it at random let through what is masked, nor does the error of the low number."""
    torch.manual_seed(0)
    x, mask = torch.randn(6, 8), torch.tensor([1, 1, 0, 1, 0, 1])
    report = compare_module(
        MaskOfTokens().eval(), (x, mask), run_mode=mode, device="cpu", tolerance=Tolerance(given=False), explain="full"
    )
    told = report.explanation
    assert told is not None
    assert told.expected is not None
    assert told.expected < 100 * told.unit
    assert told.budget.get("masked_fill", 0.0) < 0.01
    assert {row.status for row in report.compared} == {Status.PASS}


@pytest.mark.parametrize("mode", ["torch_fp64", "torch_bf16", "torch_autocast_bf16"])
@pytest.mark.parametrize("factory", ["detr", "efficientnet", "einsum_attention", "lstm", "speech", "torch_transformer"])
def test_a_model_without_branches_takes_none(factory: str, mode: str) -> None:
    report = compare_module(*torch_architectures.FACTORIES[factory](), run_mode=mode, device="cpu")
    assert not [note for note in report.notes if "took different paths" in str(note)]


class OneHalf(nn.Module):
    """Casts to float16 in one place; far behind it a result beyond float32."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        h = torch.tanh(self.first(x.half().to(self.first.weight.dtype)))
        large = (h * 1e3).square().square().square().square()
        return self.last(torch.log1p(large))


def test_a_float16_tensor_does_not_make_others_float16s() -> None:
    torch.manual_seed(0)
    report = compare_module(
        OneHalf().eval(), X, run_mode="torch_fp32", baseline="torch_fp64", device="cpu",
        tolerance=Tolerance(given=False), explain="fast",
    )  # fmt: skip
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert first.cause == "overflow"
    assert first.evidence["limit"] == pytest.approx(3.4e38, rel=0.01)
    assert report.first_non_finite is not None
    assert report.first_non_finite.name == first.name
    row = next(row for row in report.rows if row.name == first.name)
    assert row.comparison is not None
    assert first.evidence["count"] == row.comparison.target.inf
