"""Exported programs in other types: the same numbers as the module that they were exported from."""

# ruff: noqa: E402

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from approval import holds_approved

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch_architectures
from precision_debug_torch import TorchBackend
from precision_debug_torch.backend import open_model
from precision_debug_torch.model import example_feeds, from_module, read_inputs, read_model
from torch import nn

import precision_debug
from precision_debug.errors import ModelError
from precision_debug.records import ModelFiles, SessionSpec, Status


class Typed(nn.Module):
    """Types that an export writes down: of a constant, of what is created, of casts up and back."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)
        self.scale = torch.tensor([1.5])

    def forward(self, x: Any) -> Any:
        wide = self.norm(self.linear(x)).to(torch.float32)
        y = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
        steps = torch.arange(8, dtype=x.dtype, device=x.device)
        return self.linear(y * self.scale.to(x.dtype) + steps + torch.zeros(8, dtype=x.dtype))


def exported(module: Any, inputs: Any, path: Path) -> str:
    args = inputs if isinstance(inputs, tuple) else () if isinstance(inputs, dict) else (inputs,)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, args, inputs if isinstance(inputs, dict) else {})
        torch.export.save(program, path)
    return str(path)


@pytest.mark.parametrize("mode", ["torch_fp64", "torch_fp16", "torch_bf16"])
@pytest.mark.parametrize("factory", ["resnet", "einsum_attention", "convnext"])
def test_a_program_computes_what_its_module_does(factory: str, mode: str, tmp_path: Path) -> None:
    model = from_module(*torch_architectures.FACTORIES[factory]())
    feeds = example_feeds(model)
    ours = open_model(model, mode, {"device": "cpu"}, [feeds]).run(feeds)["output"]
    path = exported(*torch_architectures.FACTORIES[factory](), tmp_path / "m.pt2")
    spec = SessionSpec(model=ModelFiles(model_file=path), mode=mode, options={"device": "cpu"})
    theirs = TorchBackend().open(spec, [feeds]).run(feeds)["output"]
    assert theirs.dtype == ours.dtype
    assert theirs.astype(np.float64).tobytes() == ours.astype(np.float64).tobytes()


class Mapped(nn.Module):
    """A mask that is made of positions by vmap, as the transformers library makes its causal ones."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        at = torch.arange(x.shape[0])
        seen = torch.vmap(lambda row: torch.vmap(lambda column: row >= column)(at))(at)
        return torch.where(seen, x @ self.linear(x).T, torch.zeros(())) @ x


def test_a_program_that_maps_over_positions_is_refused_for_that(tmp_path: Path) -> None:
    """It was said to run its own code."""
    path = exported(Mapped().eval(), torch.randn(4, 8), tmp_path / "m.pt2")
    with pytest.raises(ModelError, match=r"torch\.vmap .*FILE\.py:FUNCTION"):
        precision_debug.compare(path, run_mode="torch_bf16", device="cpu")


@pytest.mark.parametrize("mode", ["torch_fp64", "torch_fp16", "torch_bf16", "torch_autocast_bf16"])
def test_written_types_follow_and_are_told(mode: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = exported(Typed().eval(), torch.randn(2, 8), tmp_path / "m.pt2")
    report = precision_debug.compare(path, run_mode=mode, device="cpu", atol=0.1, rtol=0.1)
    left = {row.name: row.reason for row in report.rows if row.status not in (Status.PASS, Status.UNMATCHED)}
    assert all("bookkeeping" in reason for reason in left.values()), left
    assert report.outputs[0].comparison is not None
    wanted = {"torch_fp64": "float64", "torch_fp16": "float16", "torch_bf16": "bfloat16"}.get(mode)
    if wanted:
        assert report.outputs[0].comparison.target.dtype == wanted
        assert holds_approved(list(report.target.notes))
        assert 0 < (report.outputs[0].relative_l2 or 0) < (1e-5 if mode == "torch_fp64" else 0.05)


class Masked(nn.Module):
    """A mask of the type's own end, as the transformers library makes it; the export writes float32's down."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        scores = self.linear(x)
        hidden = torch.ones(8, 8, dtype=torch.bool).triu(1)
        return scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)


@pytest.mark.parametrize("mode", ["torch_fp16", "torch_bf16", "torch_fp64"])
def test_a_mask_at_the_end_of_float32_is_one_at_the_end_of_the_type(mode: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = tmp_path / "m.pt2"
    x = torch.randn(8, 8)
    torch.export.save(torch.export.export(Masked().eval(), (x,)), path)
    report = precision_debug.compare(path, run_mode=mode, inputs={"x": x.numpy()})
    assert report.exit_status == 0
    assert all(row.status is Status.PASS for row in report.outputs)


class Looked(nn.Module):
    """Numbers, places in a table, and a factor by name."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.table = nn.Linear(8, 4), nn.Embedding(5, 8)

    def forward(self, x: Any, places: Any, steep: bool = False, *, factor: Any = None) -> Any:
        return torch.softmax(self.linear(x + self.table(places)) * factor * (3 if steep else 1), -1)


def test_a_program_without_example_inputs_is_fed_what_it_was_exported_for(tmp_path: Path) -> None:
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=2, max=64)
    arguments = (torch.randn(3, 8), torch.tensor([1, 2, 3]), True)
    shapes = {"x": {0: batch}, "places": {0: batch}, "steep": None, "factor": None}
    program = torch.export.export(Looked(), arguments, {"factor": torch.tensor([2.0])}, dynamic_shapes=shapes)
    program._example_inputs = None
    path = tmp_path / "m.pt2"
    torch.export.save(program, path)

    report = precision_debug.compare(str(path), run_mode="torch_bf16", device="cpu")

    assert report.verdict in ("within tolerance", "as expected")
    taken = read_inputs(read_model(ModelFiles(model_file=str(path))))
    assert {one.name: (one.dtype, one.shape and one.shape[1:], one.limit) for one in taken} == {
        "x": ("float32", (8,), None), "places": ("int64", (), 5), "factor": ("float32", (), None),
    }  # fmt: skip
