"""Modules whose weights are not plain parameters: computed before each call, sparse, views of each other."""

# ruff: noqa: E402

from __future__ import annotations

import warnings
from typing import Any

import pytest
from approval import holds_approved

torch = pytest.importorskip("torch", reason="torch is not installed")

from precision_debug_torch.live import compare_module
from torch import nn

from precision_debug.errors import BackendUnavailable
from precision_debug.records import Status

MODES = ("torch_fp32", "torch_fp64", "torch_bf16", "torch_fp16", "torch_autocast_bf16")


def hooked() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls it old; models still have it
        return nn.Sequential(nn.utils.weight_norm(nn.Linear(6, 5)), nn.Tanh(), nn.utils.weight_norm(nn.Linear(5, 3)))


def parametrised() -> Any:
    one = nn.utils.parametrizations.weight_norm(nn.Linear(6, 5))
    return nn.Sequential(one, nn.utils.parametrizations.spectral_norm(nn.Linear(5, 3)))


def spectral() -> Any:
    return nn.Sequential(nn.utils.spectral_norm(nn.Linear(6, 3)), nn.ReLU())


class Kept(nn.Module):
    """Something computed from a parameter is kept in a list, and is not a leaf of torch's graph."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 3))
        self.kept = [self.weight * 2]

    def forward(self, x: Any) -> Any:
        return x @ self.weight + self.kept[0].mean().to(x.dtype)


class Sparse(nn.Module):
    def __init__(self, kind: str = "coo") -> None:
        super().__init__()
        dense = torch.eye(6) + torch.diag(torch.ones(5), 1)
        self.register_buffer("graph", dense.to_sparse() if kind == "coo" else dense.to_sparse_csr())
        self.mix = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.mix(torch.sparse.mm(self.graph, x)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("build", [hooked, parametrised, spectral, Kept])
def test_computed_weights(build: Any, mode: str) -> None:
    torch.manual_seed(0)
    report = compare_module(build().eval(), torch.randn(4, 6), run_mode=mode, device="cpu")
    assert report.outputs[0].comparison is not None
    assert report.outputs[0].relative_l2 is not None
    assert report.outputs[0].relative_l2 < 0.05
    assert all(row.comparison is not None for row in report.rows if row.status is not Status.UNMATCHED)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["coo", "csr"])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")
def test_sparse_buffers(kind: str, mode: str) -> None:
    torch.manual_seed(0)
    module = Sparse(kind).eval()
    plain = module(torch.ones(6, 4))
    refusal = None
    try:
        report = compare_module(module, torch.randn(6, 4), run_mode=mode, device="cpu")
    except BackendUnavailable as error:
        refusal = error
    if refusal is not None:
        assert mode not in ("torch_fp32", "torch_fp64")
        assert holds_approved(str(refusal))
        return
    assert report.outputs[0].relative_l2 is not None
    assert report.outputs[0].relative_l2 < 0.05
    assert torch.equal(plain, module(torch.ones(6, 4)))
