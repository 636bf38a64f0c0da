"""Top-k, a comparison of the user's and a metric of the user's: of one sample and of many, and what decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
from planted.onnx_faults import Graph

from precision_debug import compare
from precision_debug.cli import main
from precision_debug.errors import InputError, UsageError
from precision_debug.numbers.scores import choose_class_counts, score_classes
from precision_debug.report.lead import lead_sentences
from precision_debug.report.model import Report, Verdict

FUNCTIONS = """
import numpy as np

def close(baseline, target):
    return {name: np.allclose(baseline[name], target[name], atol=1.0) for name in baseline}

def never(baseline, target):
    return False

def on_large_inputs(baseline, target):
    return bool(np.abs(next(iter(baseline.values()))).max() < LIMIT)

def wrong(baseline, target):
    return 0.25

def largest(outputs, labels):
    return float(max(np.abs(value).max() for value in outputs.values())) if labels is None else float(np.sum(labels))
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(FUNCTIONS)
    onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def run(model: Path, **more: Any) -> Report:
    return compare(model, run_mode="ort_fp16_sim", inputs={"x": np.ones((2, 8), np.float32)}, explain="off", **more)


# --- top-k


def test_the_first_k_classes_in_any_order_against_brute_force() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(size=(64, 9)).astype(np.float32)
    other = base + 0.3 * rng.normal(size=base.shape).astype(np.float32)
    labels = rng.integers(0, 9, 64)
    found = score_classes({"y": base}, {"y": other}, labels, (1, 3))
    assert found is not None
    ours, theirs = (
        [set(sorted(range(9), key=lambda k, line=line: -line[k])[:3]) for line in one] for one in (base, other)
    )
    assert found.shares["top-3 agreement"] == sum(a == b for a, b in zip(ours, theirs, strict=True)) / 64
    assert found.shares["top-3 accuracy, baseline"] == sum(n in s for n, s in zip(labels, ours, strict=True)) / 64
    assert found.shares["top-3 accuracy, target"] == sum(n in s for n, s in zip(labels, theirs, strict=True)) / 64
    assert found.shares["top-1 agreement"] == float(np.mean(base.argmax(1) == other.argmax(1)))
    assert 0 < found.shares["top-3 agreement"] < 1


@pytest.mark.parametrize(
    ("asked", "found"), [((False, None), ()), ((True, None), (1,)), ((True, 5), (1, 5)), ((False, 1), (1,))]
)
def test_which_k_are_asked_for(asked: Any, found: tuple[int, ...]) -> None:
    assert choose_class_counts(*asked) == found


def test_top_k_of_one_sample_and_of_many(model: Path, tmp_path: Path) -> None:
    assert set(run(model, top_k=3).scores) == {"top-3 agreement"}
    assert set(run(model, top_k=2, top1=True).scores) == {"top-1 agreement", "top-2 agreement"}
    np.save(tmp_path / "labels.npy", np.arange(6) % 4)
    many = compare(
        model, run_mode="ort_fp16_sim", explain="off", labels=tmp_path / "labels.npy", top_k=4,
        inputs=[{"x": np.full((2, 8), k, np.float32)} for k in (0.1, 0.5, 1)],
    )  # fmt: skip
    assert many.scores["top-4 agreement"] == 1.0
    assert "top-1 accuracy, target" in many.scores
    with pytest.raises(UsageError, match="top_k"):
        run(model, top_k=0)


# --- a comparison of the user's own


def test_it_decides_in_place_of_the_tolerance(model: Path, tmp_path: Path) -> None:
    strict = run(model, atol=1e-12, rtol=0.0)
    assert strict.verdict is Verdict.FAIL
    good = run(model, atol=1e-12, rtol=0.0, compare=f"{tmp_path / 'own.py'}:close")
    assert good.verdict is Verdict.PASS
    assert set(good.checks.values()) == {1.0}
    assert "accepts the outputs" in lead_sentences(good)[0].en
    bad = run(model, compare=f"{tmp_path / 'own.py'}:never")
    assert (bad.verdict, bad.exit_status, dict(bad.checks)) == (Verdict.FAIL, 1, {"": 0.0})
    assert "rejects the outputs" in lead_sentences(bad)[0].en
    bad.save(tmp_path / "bad.json")
    assert Report.load(tmp_path / "bad.json").verdict is Verdict.FAIL


def test_it_is_asked_of_every_sample_also_by_several_workers(model: Path, tmp_path: Path) -> None:
    inputs = [{"x": np.full((2, 8), k, np.float32)} for k in (0.01, 0.02, -1.0, 0.03)]
    (tmp_path / "own.py").write_text(FUNCTIONS.replace("LIMIT", "3"))
    own = f"{tmp_path / 'own.py'}:on_large_inputs"
    found = compare(model, run_mode="ort_opt", inputs=inputs, compare=own, explain="off")
    assert dict(found.checks) == {"": 0.75}
    assert found.checked == 4
    assert "1 of 4 samples" in lead_sentences(found)[0].en
    np.savez(tmp_path / "x.npz", x=np.stack([one["x"] for one in inputs]))
    words = [
        "--model_file",
        str(model),
        "--run_mode",
        "ort_opt",
        "--inputs",
        str(tmp_path / "x.npz"),
        "--explain",
        "off",
    ]
    words += ["--samples_axis", "0", "--compare", own, "--jobs", "2", "--output", str(tmp_path / "o.json")]
    assert main(words) == 1
    assert Report.load(tmp_path / "o.json").checks == found.checks


def test_the_function_of_polygraphys_users_works(model: Path, tmp_path: Path) -> None:
    comparator = pytest.importorskip("polygraphy.comparator", reason="needs polygraphy")
    assert comparator
    (tmp_path / "theirs.py").write_text(
        "from polygraphy.comparator import IterationResult, SimpleCompareFunc\n\n"
        "def compare_outputs(first, second):\n"
        "    one, other = IterationResult(first, 0, 'a'), IterationResult(second, 0, 'b')\n"
        "    return SimpleCompareFunc(atol=1e-9, rtol=0.0)(one, other)\n"
    )
    found = run(model, compare=f"{tmp_path / 'theirs.py'}:compare_outputs")
    assert found.verdict is Verdict.FAIL
    assert set(found.checks) == {row.name for row in found.outputs}


@pytest.mark.parametrize(
    ("name", "said"), [("wrong", "returned float"), ("absent", "no function"), ("on_large_inputs", "NameError")]
)
def test_what_is_no_comparison_is_refused(model: Path, tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        run(model, compare=f"{tmp_path / 'own.py'}:{name}")


def test_a_metric_is_evaluated_of_a_single_sample_too(model: Path, tmp_path: Path) -> None:
    found = run(model, metric=f"{tmp_path / 'own.py'}:largest")
    assert set(found.scores) == {"largest, baseline", "largest, target"}
    assert found.scores["largest, baseline"] > 0
    np.save(tmp_path / "labels.npy", np.float32([[1.0, 2.5], [3.0, 4.5], [5.0, 6.5]]))
    one = compare(
        model, run_mode="ort_opt", explain="off", metric=f"{tmp_path / 'own.py'}:largest", sample="1",
        labels=tmp_path / "labels.npy", inputs=[{"x": np.full((2, 8), k, np.float32)} for k in (1, 2, 3)],
    )  # fmt: skip
    assert one.scores["largest, target"] == 7.5


def test_a_metric_does_not_hide_what_else_was_asked_for(model: Path, tmp_path: Path) -> None:
    found = run(model, metric=f"{tmp_path / 'own.py'}:largest", top_k=2, top1=True)
    assert set(found.scores) == {"largest, baseline", "largest, target", "top-1 agreement", "top-2 agreement"}


# --- --memory_budget 0


def test_with_a_budget_of_0_every_tensor_waits_on_disk_and_nothing_else_changes(model: Path) -> None:
    plain = run(model, lockstep=False)
    spilled = run(model, lockstep=False, memory_budget=0)
    assert spilled.rows == plain.rows
    assert not any(note.code == "spilled" for note in plain.notes)
    assert any(note.code == "spilled" for note in spilled.notes)


# --- a metric that gets worse

METRICS = """
import numpy as np
from numpy import nan

def steep(outputs, labels):
    found = float(np.abs(next(iter(outputs.values()))).sum())
    SEEN.append(found)
    return 0.9 if len(SEEN) % 2 else 0.9 - DROP[(len(SEEN) // 2 - 1) % len(DROP)]

def errors(outputs, labels):
    return steep(outputs, labels) * 100, 100

errors_less_is_better = True

def ranked(outputs, labels):
    return {"value": steep(outputs, labels)}

def ranked_of_all(parts):
    return float(np.mean([part["value"] for part in parts]))

SEEN = []
DROP = [DROPS]
"""


def measured(folder: Path, drops: list[float], name: str = "steep", **more: Any) -> Report:
    """A comparison of as many samples as there are drops: the metric of each falls by one of them from 0.9."""
    onnx.save(onnx_models.mlp(), folder / "m.onnx")
    (folder / "metrics.py").write_text(METRICS.replace("DROPS", ", ".join(map(repr, drops))))
    feeds = [{"x": np.full((2, 8), 1 + place / 8, np.float32)} for place in range(len(drops))]
    script = f"{folder / 'metrics.py'}:{name}"
    return compare(folder / "m.onnx", run_mode="ort_fp16_sim", inputs=feeds, metric=script, explain="off", **more)


def code_of(report: Report) -> tuple[str, str]:
    claim = next(claim for claim in report.claims if claim.code == "metric")
    return str(claim.state), "" if claim.why is None else claim.why.code


@pytest.mark.parametrize("name", ["steep", "ranked"])
def test_a_metric_that_falls_by_no_chance_is_said_first_and_fails(name: str, tmp_path: Path) -> None:
    found = measured(tmp_path, [0.1, 0.12, 0.08, 0.1, 0.11, 0.09, 0.1, 0.1], name)
    assert code_of(found) == ("refuted", "metric_fell")
    assert (found.verdict, found.exit_status) == (Verdict.FAIL, 1)
    assert f"`{name}`" in lead_sentences(found)[0].en
    assert f"`{name}`" in lead_sentences(found)[0].zh
    change = found.metric
    assert change is not None
    assert change.low is not None
    assert change.high is not None
    assert 0.08 <= change.low < change.worse < change.high <= 0.12


@pytest.mark.parametrize(
    ("drops", "name", "state"),
    [
        ([0.3, -0.3, 0.2, -0.2, 0.25, -0.24, 0.1, -0.1], "steep", "held"),  # which samples there are explains it
        ([0.0] * 7, "steep", "held"),
        ([1e-5] * 7, "steep", "held"),  # no chance, and nobody feels it
        ([-0.1] * 7, "steep", "held"),  # better
        ([0.1] * 7, "errors", "held"),  # fewer errors
        ([-0.1] * 7, "errors", "refuted"),
        ([0.5], "steep", "refuted"),
        ([0.004], "steep", "held"),  # what FP16 may cost
        ([float("nan")], "steep", "refuted"),
    ],
)
def test_what_resampling_or_the_arithmetic_explains_fails_nothing(
    drops: list[float], name: str, state: str, tmp_path: Path
) -> None:
    found = measured(tmp_path, drops, name)
    assert code_of(found)[0] == state
    assert found.exit_status == (state == "refuted")


def test_who_makes_a_metric_fall_is_asked_by_the_metric(tmp_path: Path) -> None:
    """Every score is above 0.999 and 1 in bfloat16: no error names anybody, and the order is lost by the last operator.
    What only everything brings back, each number to the bit, names nobody, and what was tried is told."""
    onnxruntime = pytest.importorskip("onnxruntime")
    graph = Graph(seed=12)
    x = graph.input("x", graph.random.normal(size=(64, 16)).astype(np.float32))
    bent = graph.op("Tanh", [graph.dense(x, 16, 32, "h", scale=0.5)], "t")
    sure = graph.op("Add", [graph.dense(bent, 32, 1, "logit", scale=0.5), graph.weight("prior", np.float32(9))], "sure")
    path = graph.save(tmp_path / "sure.onnx", [graph.op("Sigmoid", [sure], "y")])
    feeds = [{"x": graph.random.normal(size=(64, 16)).astype(np.float32)} for _ in range(6)]
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n\ndef kinds(outputs, label):\n    return len(np.unique(outputs['y'])) / 64\n\n"
        "def same(outputs, label):\n    return float((outputs['y'].ravel() == label).mean())\n\n"
        "def fixed(outputs, label):\n    return 1.0\n"
    )
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    np.save(tmp_path / "labels.npy", np.stack([session.run(None, one)[0].ravel() for one in feeds]))

    def asked(name: str) -> Report:
        script = f"{tmp_path / 'mine.py'}:{name}"
        return compare(path, run_mode="ort_bf16_sim", inputs=feeds, metric=script, metric_drop="0.05",
                       labels=str(tmp_path / "labels.npy"))  # fmt: skip

    found = asked("kinds")
    assert found.explanation is not None
    [culprit] = found.explanation.culprits
    assert (culprit.name in {"sure", "y"}, culprit.cause) == (True, "metric_lost")
    assert found.to_keep is not None
    assert {*found.to_keep.keys} <= {"node_sure", "node_y"}, "few are kept, and who rounds the scores is one"
    assert "node_y" in found.to_keep.keys
    assert found.exit_status == 1
    said = [one.en for one in lead_sentences(found)]
    assert "`kinds`" in said[0]
    assert culprit.evidence["after"] <= 0.05
    lost = asked("same")
    assert lost.explanation is not None
    assert not lost.explanation.culprits
    assert lost.to_keep is not None
    assert (lost.to_keep.state, lost.to_keep.metric) == ("none", "same")
    assert "`same`" in lead_sentences(lost)[1].en, "what was tried"
    held = asked("fixed")
    assert (held.exit_status, held.to_keep) == (0, None), "it does not fall"


@pytest.mark.parametrize(
    ("bound", "state"), [("0.05", "refuted"), ("0.15", "held"), ("5%", "refuted"), ("12%", "held"), ("0", "refuted")]
)
def test_a_bound_decides_in_place_of_the_error(bound: str, state: str, tmp_path: Path) -> None:
    found = measured(tmp_path, [0.1] * 3, metric_drop=bound)
    assert code_of(found)[0] == state
    assert found.verdict is (Verdict.PASS if state == "held" else Verdict.FAIL)
    assert "`steep`" in lead_sentences(found)[0].en
    wide = measured(tmp_path, [0.1] * 3, metric_drop=bound, atol=0, rtol=0)
    assert wide.verdict is Verdict.FAIL, "a tolerance that was given holds beside it"


def test_a_bound_is_a_number_of_a_metric(model: Path) -> None:
    with pytest.raises(UsageError, match="no metric"):
        run(model, metric_drop="1%")
    for wrong in ("x", "-1", "5%%", "inf"):
        with pytest.raises(UsageError):
            run(model, metric=f"{model.parent / 'own.py'}:largest", metric_drop=wrong)
