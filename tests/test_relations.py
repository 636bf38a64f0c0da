"""How results that are something else are made of the baseline's: each relation that holds is told, and no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import precision_debug
from precision_debug.explain.relations import find_relation
from precision_debug.reasons import say

LEFT = 1e-5  # of the error's norm that rounding makes
RANDOM = np.random.default_rng(5)
EXACT, GIVEN = RANDOM.normal(size=(3, 6, 8)), RANDOM.normal(size=(3, 6, 8))
EDGE = RANDOM.uniform(0.5, 2, size=(1, 6, 8))
MOVED = [2, 0, 1, 3, 4, 5]


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda x: 0.75 * x, say("times_the_baseline", factor=0.75)),
        (lambda x: x + 0.5, say("more_than_the_baseline", more=0.5)),
        (lambda x: np.clip(x, -0.25, 0.5), say("cut_at", low=-0.25, high=0.5)),
        (lambda x: np.maximum(x, 0.125), say("raised_to", low=0.125)),
        (lambda x: x[:, MOVED], say("in_order_along", axis=1, order="2, 0, 1, 3, 4, 5")),
        (lambda x: x.transpose(0, 2, 1).reshape(x.shape), say("at_other_places")),
        (lambda _: GIVEN, say("what_it_reads", name="x")),
        (lambda x: x - 2 * GIVEN, say("and_times_an_input", factor=-2.0, name="x")),
        (lambda x: x + EDGE, say("more_along_an_axis", axis=0)),
        (lambda x: x * EDGE,
         say("times_along_an_axis", axis=0, least=float(EDGE.min()), most=float(EDGE.max()))),
    ],
)  # fmt: skip
def test_a_relation_is_found_beside_rounding(make: Callable[[Any], Any], word: object) -> None:
    wrong = make(EXACT)
    moved = word in (say("at_other_places"), say("in_order_along", axis=1, order="2, 0, 1, 3, 4, 5"))
    rounded = wrong if moved else wrong * (1 + 1e-8 * RANDOM.normal(size=wrong.shape))
    found = find_relation(EXACT, rounded, {"x": GIVEN}, LEFT)
    assert _numbers_of(found["relation"]) == pytest.approx(_numbers_of(word), abs=1e-5)
    assert _words_of(found["relation"]) == _words_of(word)
    assert found["left"] <= LEFT


def _words_of(text: object) -> list[str]:
    return [one for one in str(text).replace(",", " ").split() if not _is_number(one)]


def _numbers_of(text: object) -> list[float]:
    return [float(one) for one in str(text).replace(",", " ").split() if _is_number(one)]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def test_what_the_baseline_cuts_and_the_target_does_not() -> None:
    cut = np.clip(EXACT, -0.5, 0.5)
    assert find_relation(cut, EXACT, {}, LEFT)["relation"] == say("not_cut_at", low=-0.5, high=0.5)
    assert find_relation(np.maximum(EXACT, 0), EXACT, {}, LEFT)["relation"] == say("not_raised_to", low=0.0)


def test_another_part_of_what_is_read() -> None:
    long = RANDOM.normal(size=(3, 20, 8))
    for ours, theirs, base, target in (
        (np.s_[:, -1:], np.s_[:, :1], "[:, 19, :]", "[:, 0, :]"),
        (np.s_[:, :6], np.s_[:, 2:8], "[:, 0:6, :]", "[:, 2:8, :]"),
        (np.s_[:, ::4], np.s_[:, 1::4], "[:, 0:17:4, :]", "[:, 1:18:4, :]"),
    ):
        found = find_relation(long[ours], long[theirs], {"x": long}, LEFT)
        assert found["relation"] == say("another_part_of", name="x", base=base, target=target)


def rotate_halves() -> tuple[Any, dict[str, Any]]:
    """A module of PyTorch and its input: numbers rotated by their place, the first half of them with the second."""
    return _make_rotation("halves")


def exchange_gate() -> tuple[Any, dict[str, Any]]:
    """One whose first half is what the second gates."""
    return _make_rotation("gate")


def _make_rotation(kind: str) -> tuple[Any, dict[str, Any]]:
    import torch

    class Rotation(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inp, self.out = torch.nn.Linear(8, 16), torch.nn.Linear(8 if "gate" in kind else 16, 6)

        def forward(self, x: Any) -> Any:
            x = torch.tanh(self.inp(x))
            angles = torch.arange(10.0)[:, None] * 0.5 ** torch.arange(8.0)
            one, two = (x[..., ::2], x[..., 1::2]) if kind == "pairs" else (x[..., :8], x[..., 8:])
            if "gate" in kind:
                one, two = (two, one) if kind == "other gate" else (one, two)
                return self.out(one * torch.sigmoid(two))
            turned = one * angles.cos() - two * angles.sin(), one * angles.sin() + two * angles.cos()
            return self.out(torch.cat(turned, -1))

    torch.manual_seed(0)
    return Rotation().eval(), {"x": torch.randn(2, 10, 8)}


@pytest.mark.filterwarnings("ignore")  # of the exporter
@pytest.mark.parametrize(
    ("factory", "exported", "told"),
    [
        ("rotate_halves", "pairs", say("even_before_odd", name="tanh", axis=2)),
        ("exchange_gate", "other gate", "slice#2, slice"),
    ],
)
def test_an_operand_that_is_read_in_pairs_of_halves(factory: str, exported: str, told: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    module, inputs = _make_rotation(exported)
    file = str(tmp_path / "model.onnx")
    torch.onnx.export(module, tuple(inputs.values()), file, dynamo=False, opset_version=17, input_names=["x"])
    modes: Any = {"run_mode": "ort_fp32", "baseline": "torch_fp32"}
    report = precision_debug.compare(file, baseline_model=f"{__file__}:{factory}", **modes)
    assert report.explanation is not None
    culprit, *_ = report.explanation.culprits
    assert (culprit.cause, culprit.evidence["target"]) == ("files_differ", told)


def test_nothing_is_told_of_other_numbers_or_of_none() -> None:
    broken = EXACT.copy()
    broken[0, 0, 0] = np.nan
    for wrong in (GIVEN, EXACT, broken, np.tanh(EXACT)):
        assert not find_relation(EXACT, wrong, {}, LEFT)
    assert not find_relation(np.array([1.0]), np.array([2.0]), {}, LEFT)


@pytest.mark.parametrize(
    ("before", "there", "error", "told"),
    [
        (1e-8, (4, 8), 0.5, {"owner": "act", "owner_type": "PRelu", "seen": "t"}),
        (1e-8, (4, 1), 0.5, {"owner": "act", "owner_type": "PRelu", "seen": "t", "shape": "[4, 8]",
                             "shape_there": "[4, 1]"}),
        (1e-2, (4, 8), 0.5, {}),  # what it reads is off already
        (1e-8, (4, 8), 2e-7, {}),  # it rounds
    ],
)  # fmt: skip
def test_a_fused_region_that_shows_where_it_departs_inside(
    before: float, there: tuple[int, ...], error: float, told: dict[str, str]
) -> None:
    """What a further run shows of it is in none of the rows that may be blamed, and tells which operator it is."""
    from types import SimpleNamespace

    from report_factory import make_comparison, make_row, make_stats

    from precision_debug.explain.differences import _find_first_inside
    from precision_debug.records import Status, TensorMeta

    base, target = (make_stats(shape=shape, elements=32) for shape in ((4, 8), there))
    act = make_row(name="act", comparison=make_comparison(error, base=base, target=target), status=Status.FAIL)
    region = [TensorMeta(name=name, op_type=kind, node=name, inputs=(read,)) for name, kind, read in (
        ("a", "Conv", "x"), ("act", "PRelu", "a"), ("t", "Tanh", "act"))]  # fmt: skip
    subject = SimpleNamespace(
        rows=[make_row(name="a", error=before), make_row(name="t", error=0.5)], unfused=[act], region_of={"t": region}
    )
    assert _find_first_inside(subject, "t") == told  # type: ignore[arg-type]
