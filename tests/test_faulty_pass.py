"""Which pass of an engine brings an error: ONNX Runtime's optimisers, switched off by bisection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from approval import holds_approved
from onnx import TensorProto, helper, numpy_helper
from precision_debug_onnxruntime.engine.own_options import is_read

from precision_debug import compare
from precision_debug.report.lead import lead_sentences


@pytest.fixture
def offset(tmp_path: Path) -> str:
    """Inputs and a batch norm's mean share an offset of 1e4: folding the mean into the weights rounds elsewhere."""
    random = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return random.normal(size=shape).astype(np.float32)

    weights = normal(4, 3, 3, 3)
    given = {
        "w": weights, "scale": normal(4), "bias": normal(4), "mean": 1e4 * weights.sum((1, 2, 3)),
        "variance": np.ones(4, np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["conv"]),
        helper.make_node("BatchNormalization", ["conv", "scale", "bias", "mean", "variance"], ["normed"]),
        helper.make_node("Relu", ["normed"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "offset", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in given.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, tmp_path / "offset.onnx")
    np.savez(tmp_path / "x.npz", x=normal(1, 3, 8, 8) + np.float32(1e4))
    return str(tmp_path)


def _compared(folder: str, **options: Any) -> Any:
    return compare(f"{folder}/offset.onnx", run_mode="ort_opt", inputs=f"{folder}/x.npz", **options)


def test_the_optimiser_that_rounds_elsewhere_is_named_unasked(offset: str) -> None:
    report = _compared(offset)
    first = report.explanation.culprits[0]
    assert first.cause == "pass_rounding"  # as much as rounding everywhere makes of this model: no fault of the pass
    assert "ConvBNFusion" in first.evidence["passes"].split(" and ")
    assert first.evidence["after"] < 1e-6 < first.evidence["before"]
    assert first.evidence["runs"] <= 2 * (np.ceil(np.log2(first.evidence["of"])) + 3)
    assert "BatchNormalization" in first.evidence["replaced"]
    said = lead_sentences(report)[0]
    for text in (said.en, said.zh):
        assert "'ConvBNFusion'" in text.partition("disabled_optimizers=[")[2]
    assert "BatchNormalization" in said.en


def test_what_is_pasted_mends_it(offset: str) -> None:
    passes = _compared(offset).explanation.culprits[0].evidence["passes"].split(" and ")
    mended = _compared(offset, disabled_optimizers=passes)
    assert mended.exit_status == 0
    assert mended.outputs[0].comparison.identical


def test_nobody_looks_for_a_pass_where_that_is_switched_off(offset: str) -> None:
    assert {one.cause for one in _compared(offset, find_pass=False).explanation.culprits} == {"other_arithmetic"}


@pytest.mark.fresh
def test_only_the_optimisers_that_change_the_model_are_tried_first(offset: str) -> None:
    from precision_debug_onnxruntime.engine.passes import passes_of, switches

    from precision_debug.records import ModelFiles, SessionSpec

    spec = SessionSpec(model=ModelFiles(model_file=f"{offset}/offset.onnx"), mode="ort_opt")
    known = dict(passes_of(spec))
    assert known["Level1_RuleBasedTransformer"]
    assert known["MatMulAddFusion"] is False
    first, rest = switches(spec)
    assert {"ConvBNFusion", "Level1_RuleBasedTransformer"} <= {*first.items}
    assert "MatMulAddFusion" not in first.items
    assert {"MatMulAddFusion", *first.items} <= {*rest.items}


def test_the_ladder_names_the_pass(offset: str, capsys: pytest.CaptureFixture[str]) -> None:
    from precision_debug.cli import main

    command = ["ladder", "--model_file", f"{offset}/offset.onnx", "--run_mode", "ort_opt", "--inputs"]
    assert main([*command, f"{offset}/x.npz"]) == 1
    said = capsys.readouterr().out
    assert holds_approved(said)
    assert "'ConvBNFusion'" in said.partition("disabled_optimizers=[")[2]


def _norm_over_dropped_axes(path: Path) -> dict[str, Any]:
    """A norm of its parts whose mean drops the axis: what is divided broadcasts along another one. ONNX Runtime up to
    1.32 at least makes an ordinary norm of it (published as its issue 30513)."""
    x = (np.abs(np.random.default_rng(0).normal(size=(4, 4))) + np.arange(4)).astype(np.float32)
    nodes = [
        helper.make_node("Pow", ["x", "two"], ["p"]),
        helper.make_node("ReduceMean", ["p"], ["v"], axes=[-1], keepdims=0),
        helper.make_node("Add", ["v", "eps"], ["ve"]), helper.make_node("Sqrt", ["ve"], ["s"]),
        helper.make_node("Div", ["x", "s"], ["n"]), helper.make_node("Mul", ["n", "g"], ["y"]),
    ]  # fmt: skip
    constants = {"two": np.float32(2), "eps": np.float32(10), "g": np.arange(1, 5, dtype=np.float32)}
    graph = helper.make_graph(
        nodes, "norm", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 4])],
        [numpy_helper.from_array(np.asarray(one), name) for name, one in constants.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return {"x": x}


def test_a_pass_that_computes_something_else_is_at_fault(tmp_path: Path) -> None:
    path = tmp_path / "norm.onnx"
    feeds = _norm_over_dropped_axes(path)
    report = compare(str(path), run_mode="ort_opt", inputs=feeds)
    if report.exit_status == 0:
        pytest.skip("this ONNX Runtime does not fuse it any more")
    first = report.explanation.culprits[0]
    assert first.cause == "faulty_pass"
    assert "SimplifiedLayerNormFusion" in first.evidence["passes"]
    assert first.evidence["instead"] == "SimplifiedLayerNormalization y"
    assert "Pow p" in first.evidence["replaced"]
    assert "report it" in lead_sentences(report)[0].en
    assert compare(
        str(path), run_mode="ort_opt", inputs=feeds, disabled_optimizers=first.evidence["passes"].split(" and ")
    ).exit_status == 0  # fmt: skip


# One pass of ONNX Runtime in each of these files, or what the user switched on, computes something else; twins do not.

_APPROXIMATES = {"optimization.enable_gelu_approximation": "1"}
_JOINS_CASTS = {"optimization.enable_cast_chain_elimination": "1"}


def _save(path: Path, nodes: list[onnx.NodeProto], x: Any, constants: dict[str, Any], opset: int = 19) -> str:
    tensors = [one if isinstance(one, TensorProto) else numpy_helper.from_array(np.asarray(one), name)
               for name, one in constants.items()]  # fmt: skip
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]  # fmt: skip
    graph = helper.make_graph(nodes, "planted", ends[:1], ends[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)
    return str(path)


def _normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _relu_in_front_of_a_grid(path: Path, zero: Any, scale: float) -> tuple[str, Any]:
    """A Relu that a grid from 0 up makes redundant, and one that has numbers below 0 does not."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]), helper.make_node("MatMul", ["d", "v"], ["y"]),
    ]  # fmt: skip
    constants = {"w": _normal(16, 32) / 4, "v": _normal(32, 8) / 5, "s": np.float32(scale), "z": zero}
    x = _normal(4, 16, seed=1)
    return _save(path, nodes, x, constants), x


def _float8(path: Path) -> tuple[str, Any]:
    return _relu_in_front_of_a_grid(path, helper.make_tensor("z", TensorProto.FLOAT8E4M3FN, [], [0.0]), 0.01)


def _unsigned(path: Path) -> tuple[str, Any]:
    return _relu_in_front_of_a_grid(path, np.uint8(0), 4 / 255)


def _two_grids(path: Path, second: float = 0.03) -> tuple[str, Any]:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["a", "s", "z"], ["b"]),
        helper.make_node("QuantizeLinear", ["b", "t", "z"], ["c"]),
        helper.make_node("DequantizeLinear", ["c", "t", "z"], ["d"]), helper.make_node("Conv", ["d", "w"], ["y"]),
    ]  # fmt: skip
    constants = {"w": _normal(3, 2, 3, 3), "s": np.float32(0.2), "t": np.float32(second), "z": np.uint8(128)}
    x = _normal(1, 2, 8, 8, seed=1)
    return _save(path, nodes, x, constants, 17), x


def _one_grid_twice(path: Path) -> tuple[str, Any]:
    return _two_grids(path, 0.2)


def _gelu(path: Path) -> tuple[str, Any]:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Div", ["h", "root"], ["a"]),
        helper.make_node("Erf", ["a"], ["e"]), helper.make_node("Add", ["e", "one"], ["p"]),
        helper.make_node("Mul", ["h", "p"], ["t"]), helper.make_node("Mul", ["t", "half"], ["y"]),
    ]  # fmt: skip
    scalars = {"root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    x = _normal(8, 64, seed=1)
    return _save(path, nodes, x, {"w": _normal(64, 64) / 8, **scalars}, 17), x


def _cast_between(path: Path, between: int) -> tuple[str, Any]:
    nodes = [
        helper.make_node("Cast", ["x"], ["c"], to=between),
        helper.make_node("Cast", ["c"], ["d"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["d", "w"], ["y"]),
    ]  # fmt: skip
    x = 3 * _normal(4, 16, seed=1)
    return _save(path, nodes, x, {"w": _normal(16, 8)}, 17), x


def _cast_to_half(path: Path) -> tuple[str, Any]:
    return _cast_between(path, TensorProto.FLOAT16)


def _cast_to_whole(path: Path) -> tuple[str, Any]:
    return _cast_between(path, TensorProto.INT32)


def _cast_to_double(path: Path) -> tuple[str, Any]:
    return _cast_between(path, TensorProto.DOUBLE)


@pytest.mark.parametrize(("made", "config", "named", "cause"), [
    (_float8, {}, "ReluQuantRewrite", "faulty_pass"), (_unsigned, {}, "", ""),
    # what the baseline rounds twice is rounded once
    (_two_grids, {}, "DoubleQDQPairsRemover", "rounds_less_by_pass"), (_one_grid_twice, {}, "", ""),
    # not the fusion in front of it, which is right
    (_gelu, _APPROXIMATES, "GeluApproximation", "asked_pass"), (_gelu, {}, "", ""),
    (_cast_to_half, _JOINS_CASTS, "CastChainElimination", "asked_pass"),
    (_cast_to_half, {}, "", ""),  # no TF32 on a processor
    (_cast_to_whole, _JOINS_CASTS, "CastChainElimination", "asked_pass"), (_cast_to_double, _JOINS_CASTS, "", ""),
])  # fmt: skip
def test_the_pass_that_computes_something_else_and_no_other(
    made: Any, config: dict[str, str], named: str, cause: str, tmp_path: Path
) -> None:
    path, x = made(tmp_path / "planted.onnx")
    config = {key: value for key, value in config.items() if is_read(key)}
    # what leaves an asked pass on beside another entry, which is none of its business
    more = {"session.intra_op.allow_spinning": "0"} if config else {}
    report = compare(path, run_mode="ort_opt", inputs={"x": x}, config={**more, **config})
    if report.exit_status == 0:
        if named:
            pytest.skip("this ONNX Runtime has no such pass, or it is right")
        return
    first = report.explanation.culprits[0]
    assert (first.cause, first.evidence["passes"]) == (cause, named)
    assert first.evidence["after"] < 1e-6 < first.evidence["before"]
    assert ("asked" in first.evidence) == (cause == "asked_pass")
    assert all(key in first.evidence["asked"] for key in config)
    said = lead_sentences(report)[0]
    assert ("report it" in said.en) == (cause == "faulty_pass")
    if made in (_two_grids, _cast_to_half):  # by numpy: what the file computes without its roundings
        assert first.evidence["exact_target"] < first.evidence["exact_base"]
    else:
        assert "exact_base" not in first.evidence
    mended = compare(path, run_mode="ort_opt", inputs={"x": x}, config=config, disabled_optimizers=[named])
    assert mended.exit_status == 0


def _deep(path: Path, seed: int) -> tuple[str, Any]:
    """Eight layers, of which float8 alone loses a good part."""
    nodes, constants = [], {}
    for layer in range(8):
        constants[f"w{layer}"] = _normal(16, 16, seed=10 * seed + layer) / 4
        nodes.append(helper.make_node("MatMul", [f"r{layer - 1}" if layer else "x", f"w{layer}"], [f"h{layer}"]))
        nodes.append(helper.make_node("Relu", [f"h{layer}"], [f"r{layer}"]))
    nodes.append(helper.make_node("MatMul", ["r7", "v"], ["y"]))
    x = _normal(8, 16, seed=seed)
    return _save(path, nodes, x, {**constants, "v": _normal(16, 4, seed=99)}), x


@pytest.mark.parametrize("seed", [1, 3])
def test_a_pass_is_named_beside_what_the_narrow_type_loses(seed: int, tmp_path: Path) -> None:
    path, x = _deep(tmp_path / "deep.onnx", seed)
    options = {"activation_type": "float8", "weight_type": "float8", "explain": "fast"}
    report = compare(path, run_mode="ort_int8", inputs={"x": x}, **options)
    options |= {"disabled_optimizers": ["ReluQuantRewrite"], "explain": "off"}
    mended = compare(path, run_mode="ort_int8", inputs={"x": x}, **options).outputs[0].relative_l2
    if mended == report.explanation.actual:
        pytest.skip("this ONNX Runtime keeps the Relu")
    first, *rest = report.explanation.culprits
    assert (first.cause, first.evidence["passes"]) == ("faulty_pass", "ReluQuantRewrite")
    assert first.evidence["after"] == pytest.approx(mended)
    assert first.evidence["after"] < first.evidence["before"] / 2
    assert not any(one.cause == "other_arithmetic" for one in rest)  # one pass removes all of these Relus


def test_what_is_kept_goes_on_from_the_faulty_pass_switched_off(tmp_path: Path) -> None:
    """One paste has both, and what it leaves is what that run leaves; what is told of is what the type loses."""
    path, x = _deep(tmp_path / "deep.onnx", 1)
    options = {"activation_type": "float8", "weight_type": "float8"}
    report = compare(path, run_mode="ort_int8", inputs={"x": x}, **options)
    first, kept = report.explanation.culprits[0], report.to_keep
    if first.cause != "faulty_pass":
        pytest.skip("this ONNX Runtime keeps the Relu")
    assert kept is not None
    assert kept.before == pytest.approx(first.evidence["after"])
    assert kept.settings["disabled_optimizers"] == ["ReluQuantRewrite"]
    assert {"disabled_optimizers", "nodes_to_exclude"} <= {*kept.settings}
    assert all(f"{name}=" in kept.option for name in kept.settings)
    mended = compare(path, run_mode="ort_int8", inputs={"x": x}, **options, **kept.settings)
    assert mended.explanation.actual == pytest.approx(kept.after, rel=0.05)


def _product_and_norm(path: Path, keepdims: int = 0) -> tuple[str, Any]:
    """See _norm_over_dropped_axes; keepdims=1: an ordinary norm."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Pow", ["m", "two"], ["p"]),
        helper.make_node("ReduceMean", ["p"], ["v"], axes=[-1], keepdims=keepdims),
        helper.make_node("Add", ["v", "eps"], ["ve"]), helper.make_node("Sqrt", ["ve"], ["s"]),
        helper.make_node("Div", ["m", "s"], ["n"]), helper.make_node("Mul", ["n", "g"], ["k"]),
        helper.make_node("MatMul", ["k", "u"], ["y"]),
    ]  # fmt: skip
    scalars = {"two": np.float32(2), "eps": np.float32(1), "g": np.arange(1, 5, dtype=np.float32)}
    x = np.abs(_normal(4, 4, seed=1)) + np.arange(4, dtype=np.float32)
    return _save(path, nodes, x, {"w": _normal(4, 4), "u": _normal(4, 4, seed=2), **scalars}, 17), x


def _product_and_norm_of_rows(path: Path) -> tuple[str, Any]:
    return _product_and_norm(path, 1)


def _products_and_casts(path: Path, between: int = TensorProto.INT32) -> tuple[str, Any]:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Cast", ["m"], ["c"], to=between),
        helper.make_node("Cast", ["c"], ["d"], to=TensorProto.FLOAT), helper.make_node("MatMul", ["d", "u"], ["e"]),
        helper.make_node("Relu", ["e"], ["r"]), helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]  # fmt: skip
    weights = {name: _normal(16, 16, seed=seed) / 4 for seed, name in enumerate("wuv")}
    x = 3 * _normal(8, 16, seed=5)
    return _save(path, nodes, x, weights, 17), x


def _products_and_doubles(path: Path) -> tuple[str, Any]:
    return _products_and_casts(path, TensorProto.DOUBLE)


@pytest.mark.parametrize(("made", "mode", "config", "named"), [
    (_product_and_norm, "ort_fp16", {}, "SimplifiedLayerNormFusion"),
    (_product_and_norm, "ort_int8_dynamic", {}, "SimplifiedLayerNormFusion"),
    *((_product_and_norm_of_rows, mode, {}, "") for mode in ("ort_fp16", "ort_int8_dynamic", "ort_int8")),
    *((_products_and_casts, mode, _JOINS_CASTS, "CastChainElimination")
      for mode in ("ort_fp16", "ort_int8", "ort_int8_dynamic")),
    *((_products_and_doubles, mode, _JOINS_CASTS, "") for mode in ("ort_fp16", "ort_int8", "ort_int8_dynamic")),
])  # fmt: skip
def test_a_pass_is_named_where_the_narrow_type_would_be_blamed(
    made: Any, mode: str, config: dict[str, str], named: str, tmp_path: Path
) -> None:
    path, x = made(tmp_path / "planted.onnx")
    config = {key: value for key, value in config.items() if is_read(key)}
    report = compare(path, run_mode=mode, inputs={"x": x}, config=config)
    cause = "asked_pass" if config else "faulty_pass"
    told = [one.evidence["passes"] for one in report.explanation.culprits if one.cause == cause]
    if named and not told:
        without = compare(path, run_mode=mode, inputs={"x": x}, config=config, disabled_optimizers=[named])
        if without.explanation.actual == report.explanation.actual:
            pytest.skip("this ONNX Runtime has no such pass, or it is right")
    assert told == [named][: bool(named)]
    assert not named or report.explanation.culprits[0].evidence["passes"] == named


def test_no_pass_is_looked_for_where_a_lower_level_mends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from precision_debug_onnxruntime import backend
    from precision_debug_onnxruntime.engine import passes

    listed: list[Any] = []
    monkeypatch.setattr(backend, "_LOWER", ("EXTENDED",))  # the level below all, at which the Relu goes as well
    monkeypatch.setattr(passes, "passes_of", lambda spec: listed.append(spec) or ())
    path, x = _float8(tmp_path / "planted.onnx")
    report = compare(path, run_mode="ort_opt", inputs={"x": x})
    assert not listed
    assert {one.cause for one in report.explanation.culprits} <= {"other_arithmetic"}


@pytest.mark.fresh
def test_every_rule_is_one_of_the_library_and_its_config_entry_switches_it_off(tmp_path: Path) -> None:
    import onnxruntime
    from precision_debug_onnxruntime.engine import passes

    if tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 32):  # older ones lack some
        assert [name for name in passes._RULES if not is_read(name)] == []
    entry = passes._ENTRY
    if not is_read(entry):
        pytest.skip("this ONNX Runtime has no such entry")
    path, x = _float8(tmp_path / "planted.onnx")
    assert entry in passes.Optimisers(items=("ReluQuantRewrite",)).snippet(["ReluQuantRewrite"])
    both = "ConvBNFusion;ReluQuantRewrite"
    assert compare(path, run_mode="ort_opt", inputs={"x": x}, config={entry: both}).exit_status == 0


def test_what_a_pass_replaces_is_called_by_its_own_type(tmp_path: Path) -> None:
    """An integer, and what becomes of it, is listed as what it holds the values of (Gemm); the sentence is about
    QuantizeLinear and DequantizeLinear."""
    random = np.random.default_rng(4)
    nodes = [helper.make_node("Gemm", ["x", "w"], ["a"], "first")]
    for at, (name, value) in enumerate((("a", "s1"), ("d1", "s2")), 1):
        nodes += [
            helper.make_node("QuantizeLinear", [name, value, "zero"], [f"q{at}"]),
            helper.make_node("DequantizeLinear", [f"q{at}", value, "zero"], [f"d{at}"]),
        ]
    nodes.append(helper.make_node("Gemm", ["d2", "v"], ["y"], "last"))
    constants = {
        "w": random.normal(size=(16, 16)) / 4, "v": random.normal(size=(16, 4)) / 4, "s1": np.array(0.02),
        "s2": np.array(0.05),
    }  # fmt: skip
    held = [numpy_helper.from_array(one.astype(np.float32), name) for name, one in constants.items()]
    graph = helper.make_graph(
        nodes, "pairs", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [6, 4])],
        [*held, numpy_helper.from_array(np.array(128, np.uint8), "zero")],
    )  # fmt: skip
    path = tmp_path / "pairs.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    x = random.normal(size=(6, 16)).astype(np.float32)
    report = compare(str(path), run_mode="ort_opt", inputs={"x": x})
    evidence = report.explanation.culprits[0].evidence
    first, last = np.clip(x @ constants["w"], -2.56, 2.54), constants["v"]  # cut off where the first grid ends
    once = 0.02 * np.rint(first / 0.02)  # by the grid that ends first
    twice = 0.05 * np.rint(once / 0.05)
    wide = np.linalg.norm(first @ last)  # both are told beside the model without its roundings
    assert evidence["exact_target"] == pytest.approx(np.linalg.norm((once - first) @ last) / wide, rel=1e-2)
    assert evidence["exact_base"] == pytest.approx(np.linalg.norm((twice - first) @ last) / wide, rel=1e-2)
    assert evidence["passes"] == "DoubleQDQPairsRemover"
    assert evidence["replaced"] == "QuantizeLinear q1 + DequantizeLinear d1"
    assert evidence["instead"] == "DequantizeLinear d2"
