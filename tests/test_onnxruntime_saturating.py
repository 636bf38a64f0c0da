"""8-bit products that the processor adds in 16 bits, where they saturate: who is named, why, and what mends it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from precision_debug_onnxruntime.engine import remedies
from precision_debug_onnxruntime.engine.remedies import remedies_of

from precision_debug import compare
from precision_debug.protocols import Remedy
from precision_debug.records import Culprit, Explanation
from precision_debug.run import remedies as run_remedies
from precision_debug.run.pasted import Pasted
from precision_debug.run.plan import Opening
from precision_debug.run.remedies import prove_by_remedy

SWITCH = {"config": {"session.x64quantprecision": "1"}}
DIGITS = Path(__file__).parent.parent / "examples" / "digits"


def named(cause: str) -> Explanation:
    cause, _, left = cause.partition(" ")  # with what is left where it was undone
    evidence = {"left": 0.1} if left else {}
    culprit = Culprit(name="y", node="n", op_types=("Conv",), cause=cause, evidence=evidence)
    return Explanation(state="culprits", culprits=(culprit,))


@pytest.mark.parametrize(
    ("cause", "left", "told", "recorded"),
    [
        ("coarse", 0.01, "sums", False), ("unfound", 0.06, "sums", False), ("coarse", 0.09, "coarse", False),
        ("scale", 0.01, "scale", False), ("coarse", 0.01, "coarse", True),
        ("outlier_channel", 0.01, "sums", False), ("outlier_channel left", 0.01, "outlier_channel", False),
    ],
)
def test_what_takes_most_of_the_own_error_away_is_the_cause_where_no_other_is_known(
    monkeypatch: pytest.MonkeyPatch, cause: str, left: float, told: str, recorded: bool
) -> None:
    asked: list[Any] = []

    def again(settings: Any) -> Pasted:
        asked.append(settings)
        return Pasted(introduced={"y": left})

    monkeypatch.setattr(run_remedies, "list_remedies", lambda *_: [Remedy(settings={"other": 1}), known])
    side: Opening = SimpleNamespace(settings=(), recording=recorded)  # type: ignore[assignment]
    known = Remedy(settings={}, cause="sums")
    found = prove_by_remedy(named(cause), {"y": 0.1}, side, side, again)
    assert found.culprits[0].cause == told
    assert asked == ([] if cause in ("scale", "outlier_channel left") or recorded else [{}])  # nothing is run in vain


@pytest.mark.parametrize("saturates", [True, False])
def test_the_switch_is_tried_first_where_sums_saturate(monkeypatch: pytest.MonkeyPatch, saturates: bool) -> None:
    monkeypatch.setattr(remedies, "adds_in_16_bits", lambda: saturates)
    culprits = named("coarse").culprits
    first = next(remedies_of("int8", {}, str(DIGITS / "digits.onnx"), culprits))
    assert (first.settings == SWITCH, first.cause == "saturating_sums") == (saturates, saturates)
    given = next(remedies_of("int8", SWITCH, str(DIGITS / "digits.onnx"), culprits))
    assert not given.cause


@pytest.mark.hardware("saturating_8_bit_sums")
def test_a_real_model_whose_sums_saturate_is_told_so() -> None:
    report = compare(DIGITS / "digits.onnx", run_mode="ort_int8", inputs=str(DIGITS / "test_images.npz"))
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (report.exit_status, first.cause, first.name) == (1, "saturating_sums", "conv1_out")
    assert first.evidence["after"] < first.evidence["before"] / 4
    assert "session.x64quantprecision" in first.evidence["switch"]
