"""One module ported to another: what the two do not share is told as it is, and nothing that merely has its name."""

# ruff: noqa: E402

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from planted.fourteenth_torch import CASES as OF_TORCH
from planted.seventeenth_torch import CASES as LAST
from planted.sixteenth_torch import CASES as NEXT

import precision_debug
from precision_debug.reasons import say
from precision_debug.reasons.reason import as_reason

CASES = {one.name: one for one in (*OF_TORCH, *NEXT, *LAST)}


def first_culprit(name: str, folder: Path, *, exchanged: bool = False) -> tuple[Any, Any]:
    """The report, and who is named first; exchanged: the target's module is the baseline."""
    case = CASES[name]
    model, base, feeds = case.make(folder)
    model, base = (base, model) if exchanged else (model, base)
    options: dict[str, Any] = {"baseline": case.baseline, "baseline_model": base} if base is not None else {}
    if feeds is not None:
        options["inputs"] = feeds
    report = precision_debug.compare(model, run_mode=case.mode, **options)
    assert report.explanation is not None
    return report, report.explanation.culprits[0]


@pytest.mark.parametrize("exchanged", [False, True])
def test_an_operator_through_which_a_constant_is_read(exchanged: bool, tmp_path: Path) -> None:
    """exp(scale) beside scale: both files have the constant, one has an operator before it is read."""
    _, first = first_culprit("logarithm_taken_for_the_scale", tmp_path, exchanged=exchanged)
    assert first.cause == "files_differ"
    sides = [say("is_missing"), "aten.exp"] if exchanged else ["aten.exp", say("is_missing")]
    told = [first.evidence[key] for key in ("what", "name", "base", "target")]
    assert told == [say("an_operator"), "exp", *sides]


def test_equal_names_of_constants_rows_are_not_one_operator(tmp_path: Path) -> None:
    """One module has a row of a table less: what is called select#2 there is of another layer. Its product with what
    the second layer gives is what that module lacks."""
    _, first = first_culprit("second_layer_without_its_scale", tmp_path)
    assert first.evidence.get("name", "") != "index (aten.select select#2)"
    told = [first.evidence[key] for key in ("owner", "owner_type", "sole", "seen")]
    assert told == ["mul#2", "aten.select+aten.mul", "baseline", "blocks.2/view"]


@pytest.mark.parametrize(
    ("name", "who"), [("window_in_place_of_chunks", "bitwise_and"), ("blanks_taken_out_before_repeats", "ne#2")]
)
def test_whole_numbers_of_two_programs_lose_no_precision(name: str, who: str, tmp_path: Path) -> None:
    """Masks and symbols made of whole numbers alone: nothing is rounded there. The symbol before is compared by the
    second comparison of the one program and by the third of the other."""
    _, first = first_culprit(name, tmp_path)
    assert first.name == who
    assert first.cause in ("other_arithmetic", "files_differ")


@pytest.mark.parametrize(
    ("name", "ours", "theirs", "at"),
    [
        ("transducer_joined_by_relu", "aten.tanh", "aten.relu", "tanh"),
        ("norm_of_the_whole_picture", "aten.permute+aten.native_layer_norm+aten.permute", "aten.native_group_norm",
         "layer_norm"),
    ],
)  # fmt: skip
def test_what_a_stretch_has_in_place_of_the_other_s_is_told(
    name: str, ours: str, theirs: str, at: str, tmp_path: Path
) -> None:
    """What both end with (a view; a GELU and a convolution) is not among them; where it stands is told."""
    report, first = first_culprit(name, tmp_path)
    assert first.cause == "other_arithmetic"
    assert (first.evidence["ours"], first.evidence["theirs"], first.evidence["at"]) == (ours, theirs, at)
    assert f"{theirs} where the baseline has {ours} (`{at}`)" in report.to_dict()["summary"]["culprits"][0]["sentence"]


def test_the_same_operators_in_another_order_are_told_so(tmp_path: Path) -> None:
    """Queries and keys are normed and then turned, or turned and then normed."""
    _, first = first_culprit("queries_normed_after_they_turned", tmp_path)
    assert first.evidence["turned"] > 0
    assert not {"ours", "theirs"} & first.evidence.keys()


def test_what_is_read_is_beyond_the_type_and_not_what_is_made_of_it(tmp_path: Path) -> None:
    _, first = first_culprit("price_of_a_hundred_thousand", tmp_path)
    assert first.cause == "range_inside"
    assert first.evidence["read"] == first.evidence["largest"] > first.evidence["limit"]


def test_a_stretch_without_partners_is_told_from_its_first_operator(tmp_path: Path) -> None:
    """A GRU that torch takes apart: what agrees is read by it, and not by the addition behind it."""
    pytest.importorskip("onnxruntime")
    report, _ = first_culprit("gate_before_the_product", tmp_path)
    places = [note.args["place"] for note in map(as_reason, report.notes) if note.code == "wrong_at"]
    assert places[0].args["operator"].split(", ")[0] == "GRU"
    assert places[0].args["operator"].endswith("Add node_y")


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_weights_that_went_through_a_narrow_type_are_told_as_rounded(kind: str, tmp_path: Path) -> None:
    """Both sides run in float32, and every number of the target's is the baseline's rounded."""
    file = tmp_path / "two.py"
    file.write_text(
        "import torch\n\n\ndef base():\n    torch.manual_seed(1)\n"
        "    return torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)), "
        "torch.randn(8, 16)\n\n\ndef rounded():\n    net, x = base()\n"
        f"    return net.to(torch.{kind}).float(), x\n"
    )
    report = precision_debug.compare(
        f"{file}:rounded", run_mode="torch_fp32", baseline="torch_fp32", baseline_model=f"{file}:base"
    )
    assert report.explanation is not None
    for culprit in report.explanation.culprits:
        assert culprit.cause == "held_narrower"
        assert culprit.evidence["held"] == kind
    weights = {one.evidence["weight"] for one in report.explanation.culprits}
    assert weights <= {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert report.explanation.culprits


def test_what_cancels_before_an_infinite_result_is_told(tmp_path: Path) -> None:
    """1 - p is 0 in bfloat16 and its logarithm infinite: what the sigmoid rounds is all that is left of it."""
    _, first = first_culprit("chance_of_the_other_class", tmp_path)
    assert (first.name, first.cause) == ("sigmoid", "cancellation")


def test_what_is_read_several_times_is_told_once(tmp_path: Path) -> None:
    _, first = first_culprit("program_exported_in_training", tmp_path)
    assert first.evidence["owner_type"].split("+").count("aten.bernoulli_") == 1
    assert first.evidence["sole"] == "target"
