"""One record a cause: every other place asks it, and a new cause is one entry."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import house_numbers
import numpy as np
import pytest
from approval import is_approved

import precision_debug
from precision_debug.explain import is_mended
from precision_debug.reasons import arguments_of
from precision_debug.reasons.cause import Cause, Kind
from precision_debug.reasons.causes import CAUSES
from precision_debug.reasons.reason import Wording
from precision_debug.records import Culprit
from precision_debug.report.blame import sentence_of

SAMPLES: Mapping[Kind, Any] = {
    Kind.FIGURE: 0.25, Kind.COUNT: 1234, Kind.SHARE: 0.5, Kind.TEXT: "conv", Kind.WORD: "constant", Kind.ANY: [1, 2],
}  # fmt: skip


def culprit(code: str, **changes: Any) -> Culprit:
    evidence = {name: SAMPLES[kind] for name, kind in CAUSES[code].evidence.items()}
    return Culprit(**{"name": "y", "node": "n", "op_types": ("Conv",), "cause": code, "evidence": evidence,
                      "keep": ("y",), **changes})  # fmt: skip


@pytest.mark.parametrize("code", sorted(CAUSES))
def test_its_words_use_evidence_that_it_has(code: str) -> None:
    cause = CAUSES[code]
    wordings = [*([cause.why] if cause.why else []), *cause.instead.values(), *cause.behind.values()]
    for wording in (*wordings, *([cause.sentence] if cause.sentence else [])):
        assert arguments_of(wording.en) == arguments_of(wording.zh)
        assert arguments_of(wording.en) <= {*cause.evidence, "what", "name", "why"}
    for precision in ("float16", "model"):
        said = sentence_of(culprit(code), precision)
        assert "{" not in said.en + said.zh
        assert cause.why is not None or cause.en in said.en
    assert cause.pastes == "" or cause.pastes in cause.evidence
    assert is_mended(code, "float16") is cause.mended
    assert not is_mended(code, "float32")


@pytest.mark.parametrize("code", sorted(CAUSES))
def test_its_evidence_is_typed(code: str) -> None:
    cause, given = CAUSES[code], dict(culprit(code).evidence)
    assert cause.misfits(given) == []
    for name, kind in cause.evidence.items():
        without = {key: one for key, one in given.items() if key != name}
        wording = cause.wording(without)
        shown = wording is not None and name in arguments_of(wording.en)
        shown |= any(name in arguments_of(one.en) for key, one in cause.behind.items() if key in without)
        assert cause.misfits(without) == ([name] if shown else [])
        if kind is not Kind.ANY:
            assert cause.misfits({**given, name: object()}) == [name]
    assert cause.misfits({**given, "nobody_asked": 1}) == ["nobody_asked"]


def test_a_kind_decides_how_a_value_is_shown() -> None:
    evidence = {"lost": 1234, "share": 0.5, "smallest": 0.25}
    said = sentence_of(culprit("underflow", evidence=evidence), "float16").en
    assert "underflow, 1,234 results" in said
    assert "(50% of the tensor)" in said
    assert not Kind.COUNT.takes(0.5)
    assert not Kind.COUNT.takes(True)
    assert not Kind.TEXT.takes(None)
    assert Kind.FIGURE.takes(None)
    assert Kind.FIGURE.takes(math.inf)


def test_every_cause_that_the_code_names_has_a_record_and_no_place_keeps_a_list_of_its_own(root: Path) -> None:
    """A code stands where it is found out; what follows from it is asked of its record."""
    lists, unknown = [], []
    for path in sorted((root / "precision_debug").rglob("*.py")):
        if path.name == "causes.py" and path.parent.name == "reasons":
            continue
        for node in ast.walk(house_numbers.parse(path)):
            if isinstance(node, (ast.Set, ast.Tuple, ast.List)):
                named = {one.value for one in node.elts if isinstance(one, ast.Constant) and isinstance(one.value, str)}
                if len(named & CAUSES.keys()) > 1:
                    lists.append(f"{path.name}:{node.lineno}")
            value = node.value if isinstance(node, ast.keyword) and node.arg == "cause" else None
            if isinstance(value, ast.Constant) and value.value not in CAUSES:
                unknown.append(f"{path.name}:{value.lineno}")
    assert (lists, unknown) == ([], [])


def test_a_new_cause_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words, evidence, what follows and how it is told: a trial of the guide's line."""
    trial = Cause(
        en="every sign is wrong", zh="符号全部相反", do="Look at the sign.", do_zh="请检查符号。",
        why=Wording("all {count} elements have the other sign", "全部 {count} 个元素符号相反"),
        evidence={"count": Kind.COUNT}, mended=False,
        sentence=Wording("{what} `{name}`: {why}. Turn it round.", "{what} `{name}`：{why}。请取反。"),
    )  # fmt: skip
    known = {**CAUSES, "sign": trial}
    for module in ("explain.causes", "explain.units", "report.blame"):
        monkeypatch.setattr(f"precision_debug.{module}.CAUSES", known)
    told = Culprit(name="y", node="n", op_types=("Conv",), cause="sign", evidence={"count": 3})
    assert is_approved(sentence_of(told, "float16").en)
    assert not is_mended("sign", "float16")


def test_a_cause_of_another_version_is_shown_by_its_code() -> None:
    told = Culprit(name="y", node="n", op_types=("Conv",), cause="of_tomorrow", evidence={"count": 3}, keep=("y",))
    assert is_approved(sentence_of(told, "float16").en)


def test_whole_numbers_that_wrap_around_are_no_decisions(tmp_path: Path) -> None:
    """OpenVINO computes int64 in int32. Before, "59 of 60 results, whole numbers or truth values, differ", of who only
    reads them."""
    pytest.importorskip("openvino", reason="openvino is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    ids = helper.make_tensor_value_info("x", TensorProto.INT64, [60])
    out = helper.make_tensor_value_info("y", TensorProto.INT64, [60])
    held = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in (("a", 3_000_000), ("m", 1009))]
    nodes = [helper.make_node("Mul", ["x", "a"], ["scaled"]), helper.make_node("Mod", ["scaled", "m"], ["y"])]
    graph = helper.make_graph(nodes, "wraps", [ids], [out], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path := str(tmp_path / "wraps.onnx"))
    x = np.random.default_rng(3).integers(0, 4000, size=60)
    report = precision_debug.compare(path, run_mode="ov_fp32", baseline="ort_fp32", inputs={"x": x})
    assert report.explanation is not None
    first, *more = report.explanation.culprits
    assert (first.name, first.cause, more) == ("scaled", "wrapped", [])
    beyond = 3_000_000 * x > np.iinfo(np.int32).max
    assert first.evidence == {"type": "int32", "largest": 3_000_000 * x.max(), "count": beyond.sum(), "elements": 60}


def test_a_cast_beyond_a_type_is_told_by_the_end_that_all_become(tmp_path: Path) -> None:
    """And is no operator that only moves numbers about: given the same floats, it makes other whole numbers of them."""
    pytest.importorskip("openvino", reason="openvino is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [24])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [24])
    held = [numpy_helper.from_array(np.float32(1e9), "nano"), numpy_helper.from_array(np.int64(3 * 10**12), "start")]
    nodes = [
        helper.make_node("Mul", ["x", "nano"], ["long"]), helper.make_node("Cast", ["long"], ["ticks"], to=7),
        helper.make_node("Sub", ["ticks", "start"], ["late"]), helper.make_node("Cast", ["late"], ["y"], to=1),
    ]  # fmt: skip
    graph = helper.make_graph(nodes, "ends", [given], [out], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path := str(tmp_path / "ends.onnx"))
    x = np.random.default_rng(3).uniform(3000, 3001, size=24).astype(np.float32)
    report = precision_debug.compare(path, run_mode="ov_fp32", baseline="ort_fp32", inputs={"x": x})
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (first.name, first.cause, first.evidence["end"]) == ("ticks", "wrapped", -(2**31))


@pytest.mark.parametrize(
    ("kind", "low", "wraps"), [("Mod", 5 * 10**9, True), ("Mod", 10**9, False), ("Div", 10**9, False)]
)
def test_whole_numbers_that_an_engine_divides_in_float32_are_told_so(
    tmp_path: Path, kind: str, low: int, wraps: bool
) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    ids = helper.make_tensor_value_info("x", TensorProto.INT64, [40])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [40])
    held = [numpy_helper.from_array(np.array(1009, np.int64), "prime")]
    nodes = [
        helper.make_node(kind, ["x", "prime"], ["whole"]), helper.make_node("Cast", ["whole"], ["plain"], to=1),
        helper.make_node("Sin", ["plain"], ["y"]),
    ]  # fmt: skip
    graph = helper.make_graph(nodes, "divided", [ids], [out], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path := str(tmp_path / "divided.onnx"))
    x = np.random.default_rng(3).integers(low, low + 10**9, size=40)
    report = precision_debug.compare(path, run_mode="ov_opt", baseline="ort_fp32", inputs={"x": x})
    assert report.explanation is not None
    first, *more = report.explanation.culprits
    assert (first.name, first.cause, more) == ("whole", "whole_in_float32", [])
    assert ("type" in first.evidence) == wraps


@pytest.mark.parametrize(
    ("kind", "large"), [("Mul", 2654435761), ("Add", 2**40 + 5), ("Mul", 3_000_000_000)]
)
def test_a_whole_number_that_an_engine_cuts_off_is_told_with_what_it_is_held_as(
    tmp_path: Path, kind: str, large: int
) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    ids, out = (helper.make_tensor_value_info(name, TensorProto.INT64, [60]) for name in ("x", "y"))
    held = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in (("big", large), ("m", 1009))]
    nodes = [helper.make_node(kind, ["x", "big"], ["hashed"]), helper.make_node("Mod", ["hashed", "m"], ["y"])]
    graph = helper.make_graph(nodes, "cut", [ids], [out], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path := str(tmp_path / "cut.onnx"))
    x = np.random.default_rng(3).integers(2000, 4000, size=60)
    report = precision_debug.compare(path, run_mode="ov_fp32", baseline="ort_fp32", inputs={"x": x})
    assert report.explanation is not None
    first, *more = report.explanation.culprits
    assert (first.name, first.cause, more) == ("hashed", "wrapped", [])
    cut = int(np.clip(large, -(2**31), 2**31 - 1))
    expected = {"type": "int32", "constant": "big", "value": large, "cut": cut}
    assert {key: first.evidence.get(key) for key in expected} == expected
