"""Many kinds of models in every precision: what is paired belongs together, and nearly all of it is paired.

The values decide, by two rules that know nothing of names, lines and operators. In float64 a pair holds the same
numbers to 1e-3. In less, no other tensor of the baseline of the same shape is clearly nearer than the partner.
"""

# ruff: noqa: E402

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch_architectures
from precision_debug_torch.backend import open_model
from precision_debug_torch.live import compare_module
from precision_debug_torch.model import example_feeds, from_module

from precision_debug.records import Row

MODES = ("torch_fp64", "torch_bf16", "torch_fp16", "torch_autocast_bf16", "torch_autocast_fp16")
_TYPES = {"torch_autocast_bf16": "bfloat16", "torch_autocast_fp16": "float16"}
QUICK = ("bidirectional_loop", "detr", "dtype_branches", "einsum_attention", "loop_rnn", "speech")


@functools.lru_cache(maxsize=8)  # the baseline of a factory's five modes
def values(factory: str, mode: str) -> dict[str, np.ndarray]:
    """Every tensor of a run by itself."""
    model = from_module(*torch_architectures.FACTORIES[factory]())
    opened = open_model(model, mode, {"device": "cpu"}, [example_feeds(model)])
    found: dict[str, np.ndarray] = {}
    opened.run(example_feeds(model), lambda kind, name, tensor: found.__setitem__(name, np.array(tensor)))
    opened.close()
    return found


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """Relative L2 over the elements that are finite on both sides; infinite ones must be the same."""
    one, other = one.astype(np.float64).ravel(), other.astype(np.float64).ravel()
    finite = np.isfinite(one) & np.isfinite(other)
    if not np.array_equal(np.isfinite(one), np.isfinite(other)):
        return float("inf")
    one, other = one[finite], other[finite]
    scale = float(np.linalg.norm(one))
    return float(np.linalg.norm(one - other)) / scale if scale else float(np.abs(other).max(initial=0.0))


def sentinel(array: np.ndarray) -> bool:
    """Whether it holds the lowest number of its type, which is another one in each type (a mask's)."""
    return array.dtype.kind == "f" and bool((np.abs(array.astype(np.float64)) > 1e4).any())


def compared_pairs(factory: str, mode: str) -> tuple[tuple[Row, ...], list[str], int]:
    """Rows of the comparison, what is wrong with its pairs, and how many were checked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of models and converters, which these tests are not about
        report = compare_module(*torch_architectures.FACTORIES[factory](), run_mode=mode, device="cpu")
        base, target = values(factory, "torch_fp32"), values(factory, mode)
    wrong, checked = [], 0
    for row in report.rows:
        if row.comparison is None:
            continue
        ours, theirs = base[row.name], target[row.target_name]
        if ours.shape != theirs.shape:
            wrong.append(f"{row.name} {ours.shape} with {row.target_name} {theirs.shape}")
            continue
        if not ours.size or sentinel(ours):
            continue
        checked += 1
        own = distance(ours, theirs)
        if mode == "torch_fp64":
            if own > 1e-3 and np.abs(ours.astype(np.float64) - theirs).max() > 1e-5:
                wrong.append(f"{row.name} with {row.target_name}: {own:.2g} apart")
            continue
        others = ((distance(other, theirs), name) for name, other in base.items() if other.shape == theirs.shape)
        nearest, name = min(others)
        if own > 2 * nearest + 0.02:
            wrong.append(f"{row.name} with {row.target_name}: {own:.2g} apart, {name} is {nearest:.2g}")
    return report.rows, wrong, checked


def check(factory: str, mode: str) -> None:
    if factory.endswith("_hf"):
        pytest.importorskip("transformers", reason="transformers is not installed")
    if mode.startswith("torch_autocast"):
        module, inputs = torch_architectures.FACTORIES[factory]()
        args = inputs if isinstance(inputs, tuple) else () if isinstance(inputs, dict) else (inputs,)
        kwargs = inputs if isinstance(inputs, dict) else {}
        try:
            with torch.no_grad(), torch.autocast("cpu", dtype=getattr(torch, _TYPES[mode])):
                module(*args, **kwargs)
        except RuntimeError as error:
            pytest.skip(f"torch cannot run it so: {str(error)[:80]}")
    rows, wrong, checked = compared_pairs(factory, mode)
    unseen = ("baseline: ", "target: ")
    ours = [
        row for row in rows
        if row.status.value != "unmatched" and not row.reason.startswith(unseen) and "with other op" not in row.reason
    ]  # fmt: skip
    pairs = sum(row.comparison is not None for row in ours)
    print(f"{factory:22s} {mode:20s} {pairs:4d} of {len(ours):4d} compared, {checked:4d} checked, {len(wrong)} wrong")
    assert not wrong, wrong
    assert all(row.comparison is not None for row in rows if row.is_output)
    assert pairs >= 0.9 * len(ours), [(row.name, row.reason) for row in ours if row.comparison is None]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("factory", QUICK)
def test_pairs_hold_the_same_numbers(factory: str, mode: str) -> None:
    check(factory, mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("factory", sorted(set(torch_architectures.FACTORIES) - set(QUICK)))
def test_pairs_of_every_architecture_hold_the_same_numbers(factory: str, mode: str) -> None:
    check(factory, mode)


def test_a_wrong_pair_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check itself: one pair of two like rows is exchanged."""
    from precision_debug_torch import TorchBackend

    true = TorchBackend.pair

    def exchanged(self: TorchBackend, base: Any, target: Any) -> Any:
        matches = true(self, base, target)
        assert matches is not None
        first, second = "tanh#2", "tanh#3"
        matches.found[first], matches.found[second] = matches.found[second], matches.found[first]  # type: ignore[index]
        return matches

    monkeypatch.setattr(TorchBackend, "pair", exchanged)
    for mode in ("torch_fp64", "torch_bf16"):
        assert len(compared_pairs("loop_rnn", mode)[1]) == 2
