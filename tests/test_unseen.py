"""Cases that the rules never saw when they were made, each one command with default settings: see planted/unseen.py."""

from __future__ import annotations

import functools
import importlib.util

import numpy as np
import pytest
from planted.unseen import Unseen, cases, judge, runs_here

from precision_debug.pairing.isomorphic import pair_isomorphic
from precision_debug.records import TensorMeta

OPEN: dict[str, str] = {
    "mel_beside_a_pitch_ort_int8": "a part of which a quarter is told, beside one 400 times as large, passes",
    "attention_written_out_in_bfloat16_torch_bf16": "attention that leaves a softcap out is called too coarse",
    "expert_chosen_by_four_bits_ort_int4": "a tenth of a router's decisions passes where 4 bits turn as many",
    "accuracy_that_eight_bits_keep_ort_int8": "whoever the metric does not feel is named in the report",
}
"""What is known to be told wrongly, with what is wrong."""


@functools.cache
def _missing(mode: str) -> str:
    """Why a mode cannot run here: its engine, a package of it, or a processor that computes in its type."""
    if mode == "ov_int8" and importlib.util.find_spec("nncf") is None:
        return "needs nncf"
    return "" if runs_here(mode) else f"{mode} cannot run here: precision_debug doctor says why"


def _all() -> list[object]:
    """The first of each kind of an engine runs always, the others are slow: some 480 commands."""
    if importlib.util.find_spec("onnxruntime") is None or importlib.util.find_spec("torch") is None:
        return []
    seen: set[tuple[str, str]] = set()
    found = []
    for case in cases("all"):
        kind = case.kind, case.mode.partition("_")[0]
        marks = [pytest.mark.slow] if kind in seen else []
        if why := _missing(case.mode):
            marks.append(pytest.mark.skip(reason=why))
        else:
            seen.add(kind)
        name = f"{case.name}_{case.mode}"
        if name in OPEN:
            marks.append(pytest.mark.xfail(reason=OPEN[name], strict=True))
        found.append(pytest.param(case, id=name, marks=marks))
    return found


@pytest.mark.parametrize("case", _all())
def test_an_unseen_case(case: Unseen) -> None:
    said = judge(case)
    assert all(said.right.values()), f"{said.right}: {said.text}"


def _meta(name: str, op_type: str, *inputs: str) -> TensorMeta:
    return TensorMeta(name=name, op_type=op_type, dtype="float32", shape=(2, 4), inputs=inputs)


def test_a_graph_of_other_names_is_paired_by_what_computes_it() -> None:
    """q and k are told apart by their reader alone."""
    ops = (("q", "MatMul", "x"), ("k", "MatMul", "x"), ("t", "Transpose", "k"), ("s", "MatMul", "q", "t"))
    base = [_meta("x", "Input"), *(_meta(*op) for op in ops), _meta("y", "Softmax", "s")]
    other = [_meta("x", "Input"), *(_meta(*(w if w[0].isupper() or w == "x" else f"n_{w}" for w in op)) for op in ops)]
    other.append(_meta("y", "Softmax", "n_s"))
    known = {"x": "x", "y": "y"}
    assert pair_isomorphic(base, other, known) == {f"n_{name}": name for name in "qkts"}
    without = [meta for meta in other if meta.name != "n_t"]
    without[-2] = _meta("n_s", "MatMul", "n_q", "n_k")
    assert pair_isomorphic(base, without, known) == {}  # another graph: nothing is guessed
    assert pair_isomorphic(base, base, {meta.name: meta.name for meta in base}) == {}


def test_a_tensor_computed_from_constants_can_be_replaced(tmp_path: object) -> None:
    """The rounding of positions belongs to who made the angle, and not to sine and cosine."""
    pytest.importorskip("onnxruntime")
    from pathlib import Path

    from planted.onnx_faults import Graph

    from precision_debug.records import ModelFiles, SessionSpec
    from precision_debug.registry import backends

    g = Graph()
    x = g.input("x", np.ones(4, np.float32))
    angle = g.op("Mul", [g.weight("p", np.arange(4.0)), g.weight("f", np.ones(4))], "angle")
    shape = g.op("Reshape", [g.weight("w", np.ones((2, 2))), g.weight("s", np.array([4]))], "flat")
    y = g.op("Add", [g.op("Add", [x, g.op("Cos", [angle], "cos")], "sum"), shape], "y")
    path = g.save(Path(str(tmp_path)) / "m.onnx", [y])
    backend = next(found for found in backends() if found.name == "onnxruntime")
    for mode in ("ort_fp32", "ort_fp16_sim"):
        session = backend.open(SessionSpec(model=ModelFiles(model_file=str(path)), mode=mode), [g.feeds])

        def replace(_op: str, name: str, value: np.ndarray) -> np.ndarray | None:
            return np.zeros_like(value) if name in {"angle", "flat"} else None

        for _ in range(2):  # the weight behind the reshape is as it was
            replaced = session.replacer.run_replacing(g.feeds, replace, None)  # type: ignore[union-attr]
            assert np.allclose(replaced["y"], 3.0)
        session.close()
