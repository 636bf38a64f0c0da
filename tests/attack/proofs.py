"""Passes that prove nothing: a wrong pair under options, stored results or criteria that could let it through.

Each attack draws a way to be wrong and a way to ask; none may end with status 0. In a part of the cases what is drawn
is right and must pass, so that a refusal of everything would not hold either.
"""

from __future__ import annotations

import contextlib
import functools
import io
import random
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from test_claims import save

from precision_debug import Report, compare
from precision_debug.cli import main
from precision_debug.errors import PrecisionDebugError
from precision_debug.run.saved import SavedOutputs, save_inputs
from precision_debug.testing.thresholds import Thresholds, add_test_claims

from .case import Lost

__all__ = ["criteria_of_a_test", "options_of_a_comparison", "stored_results"]

_WRONG = ("triple", "nan", "shape", "missing", "unreturned", "more", "type", "inside_too")
_MARKS: tuple[dict[str, Any], ...] = (
    {}, {"marks": ("hidden",)}, {"marks": ("z",)}, {"marks": ("re:a.*",)}, {"marks": ("hidden", "active")},
    {"marks_between": ("hidden", "active")}, {"marks_between": ("hidden", "z")}, {"fused_only": True},
)  # fmt: skip
_CRITERIA: tuple[dict[str, Any], ...] = (
    {}, {"atol": 1e-3, "rtol": 1e-3}, {"atol": 50.0}, {"rtol": 0.1}, {"atol": 1e-3, "check_error_stat": "median"},
    {"atol": 1e-3, "check_error_stat": "max"}, {"atol": 1e-3, "check_error_stat": "mean"},
    {"atol": 1e-3, "check_error_stat": "quantile"}, {"atol": 1e-2, "tolerance_rule": "either"}, {"equal_nan": True},
)  # fmt: skip
"""The least that is planted is an output off by 57 %, or the fraction of a number that was cast to a whole one: nobody
who asks for one of these, 50 apart, asks for as much. That one is put beside what no tolerance allows."""
_ALWAYS_WRONG = frozenset({"nan", "shape", "missing", "unreturned", "more", "type"})
"""Ways to be wrong that no tolerance allows, however large."""
_FLAGS = ("validate", "without_outputs", "allow_non_finite", "every_iteration", "top1", "run_once", "fail_fast")


@functools.cache
def _models() -> Path:
    """right.onnx, and one file for each way to be wrong."""
    made = Path(tempfile.mkdtemp(prefix="attack-pairs-"))
    for wrong in ("", *_WRONG):
        save(made / f"{wrong or 'right'}.onnx", wrong)
    return made


def _compared(wrong: str, **options: Any) -> Report | None:
    """None where it is refused, whose status is never 0."""
    given = {"run_mode": "ort_opt", "baseline_model": _models() / "right.onnx", "explain": "off", **options}
    with contextlib.suppress(PrecisionDebugError):
        return compare(_models() / f"{wrong or 'right'}.onnx", **given)
    return None


def _must_fail(report: Report | None, how: object) -> None:
    if report is not None and report.exit_status == 0:
        raise Lost(f"status 0: {how}")


def _said(*words: str) -> int:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return int(main([*words]))


def options_of_a_comparison(random_: random.Random, _: Path) -> None:
    """Marks, tolerances and flags over a wrong pair, and a right one under marks alone."""
    marks = random_.choice(_MARKS)
    if random_.random() < 0.1:
        report = _compared("", **marks)
        if report is None or report.exit_status:
            raise Lost(f"a right pair is no pass: {marks} {report and report.claims}")
        return
    flags = dict.fromkeys(random_.sample(_FLAGS, random_.randrange(3)), True)
    options: dict[str, Any] = {**marks, **random_.choice(_CRITERIA), **flags, "seed": random_.randrange(5)}
    wrong = random_.choice(sorted(_ALWAYS_WRONG) if options.get("atol") == 50.0 else _WRONG)
    if random_.random() < 0.2:
        options["explain"] = "fast"
    if random_.random() < 0.2:
        options["renames"] = random_.choice(({"y": "z"}, {"z": "y"}, {"hidden": "active"}))
    _must_fail(_compared(wrong, **options), (wrong, options))


def stored_results(random_: random.Random, folder: Path) -> None:
    """A recording, a report, a difference or saved outputs of a model that is another one by now."""
    way = random_.choice(("recording", "report", "diff", "lacks", "iterations"))
    whole = way not in ("lacks", "iterations")
    wrong = "right" if whole and random_.random() < 0.15 else random_.choice(_WRONG)
    here, other = folder / "m.onnx", _models() / f"{wrong}.onnx"
    shutil.copy(_models() / "right.onnx", here)
    words = ["--model_file", "m.onnx", "--run_mode", "ort_opt", "--explain", "off", "--quiet"]
    if way == "recording":
        _said("--model_file", "m.onnx", "--run_mode", "ort_fp32", "--record", "rec", "--quiet")
        shutil.copy(other, here)
        loose = ["--atol", "50"] if random_.random() < 0.5 else []
        status = _said(*words, "--baseline", "rec", *loose)
    elif way in ("report", "diff"):
        _said(*words, "--output", "r.json")
        shutil.copy(other, here)
        status = _said("report", "r.json") if way == "report" else _said("diff", "r.json", "r.json")
    else:
        status = _of_outputs(way, folder, random_)
    if (status == 0) is not (wrong == "right"):
        raise Lost(f"status {status}: {way} {wrong}")


def _of_outputs(way: str, folder: Path, random_: random.Random) -> int:
    """Outputs that were saved, one of which is missing, or one iteration more than is fed."""
    import onnxruntime

    session = onnxruntime.InferenceSession(_models() / "right.onnx", providers=["CPUExecutionProvider"])
    feeds = {"x": np.random.default_rng(random_.randrange(9)).normal(size=(8, 16)).astype(np.float32)}
    outputs = dict(zip([one.name for one in session.get_outputs()], session.run(None, feeds), strict=True))
    if way == "lacks":
        del outputs[random_.choice(sorted(outputs))]
    saved = SavedOutputs("o.json", ["a", "b"], folder)
    for _ in range(1 if way == "lacks" else 2):
        saved.add([outputs, outputs], [0.1, 0.1])
    saved.finish()
    save_inputs("i.json", [feeds])
    return _said("--model_file", "m.onnx", "--run_mode", "ort_fp32", "--baseline", "o.json", "--inputs", "i.json",
                 "--quiet")  # fmt: skip


def criteria_of_a_test(random_: random.Random, _: Path) -> None:
    """Thresholds that are about nothing, or only about what is inside, and golden reports of something else."""
    wrong = "" if random_.random() < 0.15 else random_.choice(_WRONG)
    marks = random_.choice(_MARKS)
    report = _compared(wrong, **marks)
    if report is None:
        return
    tables: tuple[Mapping[str, Any], ...] = (
        {"tensors": {"nothing_*": 1e9}}, {"tensors": {"hidden": 1e9}}, {"operators": {"Relu": 1e9}},
        {"operators": {"Softmax": 1e9}}, {"tensors": {"z": 1e9}}, {"outputs": 1e-3}, {"tensors": {"?": 1e-3}},
    )  # fmt: skip
    thresholds = Thresholds(**random_.choice(tables))
    golden = _compared("", **marks) if random_.random() < 0.5 else None
    told = (wrong, thresholds, golden is not None)
    if wrong:
        _must_fail(add_test_claims(report, thresholds, golden), told)
    elif add_test_claims(report, thresholds, golden).exit_status:
        raise Lost(f"a right pair is no pass: {told}")
