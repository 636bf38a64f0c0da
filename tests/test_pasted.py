"""A fix is told with the verdict of the command that has its option, as that was run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from approval import holds_approved

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from planted.onnx_faults import Graph

import precision_debug
from precision_debug.records import Culprit, Explanation
from precision_debug.report.fix import describe_option
from precision_debug.run import fixes, pipeline
from precision_debug.run.judging import Pasted, as_pasted, is_open
from precision_debug.search.fix import ToKeep

LEFT = ToKeep(option="--option a=1", keys=("a",), of=9, state="mended", before=0.4, after=0.05, allowed=0.1)


def of(state: str, *names: str, allowed: float, passes: bool = False) -> Pasted:
    culprits = tuple(
        Culprit(name=name, node=name, op_types=("Conv",), cause="coarse", evidence={"units": 2.0}, at="y", share=1.0)
        for name in names
    )
    return Pasted(explanation=Explanation(state=state, at="y", culprits=culprits, allowed=allowed, passes=passes))


def said(kept: ToKeep, *, strict: bool = False) -> str:
    text = describe_option(kept, "ort_int8", strict=strict, of_many=0.1)
    assert text.zh
    return text.en


def test_what_is_left_is_held_against_the_bound_of_who_makes_it() -> None:
    """Before: "as expected (up to 0.1)", and the pasted command ended with status 1 at a bound of 0.03."""
    told = as_pasted(LEFT, of("culprits", "conv_7", allowed=0.03), strict=False)
    assert (told.state, told.pasted) == ("lessened", False)
    assert holds_approved(said(told))
    lessened = dataclasses.replace(LEFT, state="lessened", allowed=0.03)
    told = as_pasted(lessened, of("healthy", allowed=0.1), strict=False)
    assert (told.state, told.pasted) == ("mended", True)
    assert "as expected (up to 0.1)" in said(told)
    assert "unless" not in said(told)


def test_nobody_is_asked_where_the_error_decides_it_alone() -> None:
    assert not is_open(dataclasses.replace(LEFT, after=0.02), strict=False, of_one=0.03, of_many=0.1)
    assert not is_open(dataclasses.replace(LEFT, after=0.2), strict=False, of_one=0.03, of_many=0.1)
    assert is_open(LEFT, strict=False, of_one=0.03, of_many=0.1)
    assert is_open(LEFT, strict=True, of_one=0.03, of_many=0.04)


def test_a_comparison_that_does_not_tell_leaves_it_open() -> None:
    told = as_pasted(dataclasses.replace(LEFT, state="lessened", allowed=0.03), Pasted(), strict=False)
    assert told.pasted is None
    assert holds_approved(said(told))


def a_difference(folder: Path) -> tuple[str, dict[str, Any]]:
    """A difference of nearly equal numbers, beside a large tensor that is scaled down before the output."""
    g = Graph(seed=1)
    x = g.input("x", g.random.normal(size=(16, 16)).astype(np.float32))
    wide = g.op("Mul", [x, g.weight("thousand", np.float32(1000))], "wide")
    small = g.op("Mul", [wide, g.weight("millionth", np.float32(1e-6))], "small")
    there = g.op("Add", [x, g.weight("far", np.float32(500))], "there")
    back = g.op("Sub", [there, g.weight("near", np.float32(500))], "back")
    return str(g.save(folder / "m.onnx", [g.op("Add", [back, small], "y")])), g.feeds


def two_differences(folder: Path) -> tuple[str, dict[str, Any]]:
    """The same twice, one a fifth as far away: with the first kept, the second makes most of what is left."""
    g = Graph(seed=1)
    x = g.input("x", g.random.normal(size=(16, 16)).astype(np.float32))
    backs = []
    for number, far in enumerate((100, 20)):
        there = g.op("Add", [x, g.weight(f"far{number}", np.float32(far))], f"there{number}")
        backs.append(g.op("Sub", [there, g.weight(f"near{number}", np.float32(far))], f"back{number}"))
    return str(g.save(folder / "m.onnx", [g.op("Add", backs, "y")])), g.feeds


def test_a_tolerance_that_a_tensor_inside_misses_fails_the_pasted_command(tmp_path: Path) -> None:
    """Before: "within the tolerance", of the outputs alone; the command with the option ended with status 1."""
    path, feeds = a_difference(tmp_path)
    given: dict[str, Any] = {"run_mode": "ort_fp16_sim", "inputs": feeds, "atol": 0.01, "rtol": 0.0}
    report = precision_debug.compare(path, **given)
    kept = report.to_keep
    assert kept is not None
    assert kept.state == "mended"
    pasted = precision_debug.compare(path, **given, **kept.settings)
    assert pasted.exit_status == 1
    assert (kept.pasted, kept.blamed) == (False, "wide")
    assert pasted.first_mismatch.name == "wide"
    assert holds_approved(said(kept, strict=True))


@pytest.mark.parametrize(("bytes_at_once", "given", "asked"), [
    (fixes._WORK, {}, ["fast", "fast"]), (1 << 10, {}, []),  # whom the first names is kept, too
    (fixes._WORK, {"atol": 0.01, "rtol": 0.0}, ["off"]), (1 << 10, {"atol": 0.01, "rtol": 0.0}, ["off"]),
])  # fmt: skip
def test_a_set_is_asked_about_at_the_price_of_a_set(
    bytes_at_once: int, given: dict[str, Any], asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a tolerance its rows tell it. Otherwise an explanation does, which runs the model some tens of times: 385 of
    505 s of a model with tensors of 74 MB, where 2 sets of 3 s were all that may be run."""
    path, feeds = a_difference(tmp_path) if given else two_differences(tmp_path)
    log = tmp_path / "asked"
    log.touch()
    execute = pipeline.execute

    def logged(spec: Any, *args: Any, **values: Any) -> None:
        if values.get("fixes") is False:
            log.write_text(f"{log.read_text()}{spec.explain}\n")
        execute(spec, *args, **values)

    monkeypatch.setattr(pipeline, "execute", logged)
    monkeypatch.setattr(fixes, "_WORK", bytes_at_once)
    report = precision_debug.compare(path, run_mode="ort_fp16_sim", inputs=feeds, **given)
    assert report.to_keep is not None
    assert log.read_text().split() == asked
    assert (report.to_keep.pasted is None) == (not asked)
