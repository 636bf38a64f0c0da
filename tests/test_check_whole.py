"""``check`` reads every constant wherever it stands, compares two files whole, and says what it looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the files are ONNX")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from precision_debug.cli import main  # noqa: E402
from precision_debug.onnx.model import read_model  # noqa: E402
from precision_debug.products.tools.standard import check_by_standard  # noqa: E402

W = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)


def saved(path: Path, nodes: list[Any], constants: dict[str, Any] | None = None, **graph: Any) -> str:
    made = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), key) for key, value in (constants or {}).items()], **graph,
    )  # fmt: skip
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    onnx.save(helper.make_model(made, opset_imports=domains, ir_version=8), path)
    return str(path)


def branch(value: Any, kind: str = "Add") -> Any:
    constant = [numpy_helper.from_array(np.asarray(value, np.float32), "c")]
    return helper.make_graph(
        [helper.make_node(kind, ["x", "c"], ["inner"])], "b", [],
        [helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)], constant,
    )  # fmt: skip


def condition(path: Path, value: Any, kind: str = "Add") -> str:
    node = helper.make_node("If", ["cond"], ["y"], then_branch=branch(value, kind), else_branch=branch(1.0))
    return saved(path, [node], {"cond": np.array(True)})


def loop(path: Path, value: Any) -> str:
    body = helper.make_graph(
        [helper.make_node("Add", ["h", "c"], ["out"]), helper.make_node("Identity", ["go"], ["still"])], "b",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("h", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("still", TensorProto.BOOL, []),
         helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value, np.float32), "c")],
    )  # fmt: skip
    return saved(path, [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)], {"n": np.array(2)})


def sparse(path: Path, value: float, linear: bool = True) -> str:
    values = numpy_helper.from_array(np.array([value, 2.0], np.float32), "w")
    places = np.array([1, 6]) if linear else np.array([[0, 1], [1, 2]])
    tensor = helper.make_sparse_tensor(values, numpy_helper.from_array(places.astype(np.int64), "i"), [4, 4])
    return saved(path, [helper.make_node("MatMul", ["x", "w"], ["y"])], sparse_initializer=[tensor])


def constant_node(path: Path, **held: Any) -> str:
    return saved(path, [helper.make_node("Constant", [], ["c"], **held), helper.make_node("Add", ["x", "c"], ["y"])])


def external(path: Path, value: float) -> str:
    held = W.copy()
    held[1, 2] = value
    file = saved(path, [helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": held})
    onnx.save_model(onnx.load(file), file, save_as_external_data=True, location=f"{path.stem}.bin", size_threshold=0)
    return file


def function(path: Path, value: float) -> str:
    inner = helper.make_function(
        "mine", "F", ["a"], ["b"],
        [helper.make_node("Constant", [], ["c"], value_float=value), helper.make_node("Add", ["a", "c"], ["b"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    file = saved(path, [helper.make_node("F", ["x"], ["y"], domain="mine")])
    model = onnx.load(file)
    model.functions.append(inner)
    onnx.save(model, file)
    return file


def filled(path: Path, value: float) -> str:
    tensor = numpy_helper.from_array(np.array([value], np.float32))
    fill = helper.make_node("ConstantOfShape", ["s"], ["c"], value=tensor)
    nodes = [fill, helper.make_node("Add", ["x", "c"], ["y"])]
    return saved(path, nodes, {"s": np.array([2, 4])})


PLACES: dict[str, Callable[[Path, float], str]] = {
    "initializer": lambda path, v: saved(path, [helper.make_node("Add", ["x", "c"], ["y"])], {"c": np.float32(v)}),
    "value": lambda path, v: constant_node(path, value=numpy_helper.from_array(np.array([v], np.float32))),
    "value_float": lambda path, v: constant_node(path, value_float=v),
    "value_floats": lambda path, v: constant_node(path, value_floats=[1.0, v, 1.0, 1.0]),
    "a branch": condition, "a body": loop, "sparse": sparse, "sparse by axes": lambda path, v: sparse(path, v, False),
    "attribute": lambda path, v: saved(path, [helper.make_node("LeakyRelu", ["x"], ["y"], alpha=v)]),
    "attributes": lambda path, v: saved(path, [helper.make_node("G", ["x"], ["y"], domain="mine", scales=[1.0, v])]),
    "external": external, "a function": function, "a filling": filled,
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_a_constant_is_read_wherever_it_stands(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make = PLACES[place]
    good, same = make(tmp_path / "good.onnx", 0.5), make(tmp_path / "same.onnx", 0.5)
    assert main(["check", good]) == 0
    assert "looked at" in capsys.readouterr().out
    assert main(["check", good, same]) == 0
    assert main(["check", make(tmp_path / "nan.onnx", float("nan"))]) == 1
    assert "NaN" in capsys.readouterr().out
    assert main(["check", good, make(tmp_path / "other.onnx", 0.75)]) == 1


def two(path: Path, *, order: str = "xw", kind: str = "Relu", whole: bool = True, out: str = "y") -> str:
    reads = ["x", "w"] if order == "xw" else ["w", "x"]
    nodes = [helper.make_node("Sub", reads, ["h"])]
    if whole:
        nodes.append(helper.make_node(kind, ["h"], ["r"]))
    nodes.append(helper.make_node("Sigmoid", ["r" if whole else "h"], [out]))
    file = saved(path, nodes, {"w": W[0]})
    model = onnx.load(file)
    model.graph.output[0].name = out
    onnx.save(model, file)
    return file


@pytest.mark.parametrize("how", [{"order": "wx"}, {"kind": "Neg"}, {"kind": "Abs"}, {"whole": False}, {"out": "z"}])
def test_two_files_are_compared_whole(how: dict[str, Any], tmp_path: Path) -> None:
    first = two(tmp_path / "a.onnx")
    assert main(["check", first, two(tmp_path / "b.onnx")]) == 0
    assert main(["check", first, two(tmp_path / "c.onnx", **how)]) == 1
    assert main(["check", two(tmp_path / "c.onnx", **how), first]) == 1


def test_what_commutes_may_be_turned(tmp_path: Path) -> None:
    one, other = (helper.make_node("Add", reads, ["y"]) for reads in (["x", "w"], ["w", "x"]))
    first, second = (saved(tmp_path / f"{node.input[0]}.onnx", [node], {"w": W[0]}) for node in (one, other))
    assert main(["check", first, second]) == 0


def test_a_branch_of_another_kind_differs(tmp_path: Path) -> None:
    assert main(["check", condition(tmp_path / "a.onnx", 1.0), condition(tmp_path / "b.onnx", 1.0, "Mul")]) == 1


def test_quantised_by_its_own_tool_is_no_difference_and_the_other_order_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = saved(tmp_path / "a.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": W})
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        helper.make_node("MatMul", ["xd", "w"], ["y"]),
    ]
    quantised = saved(tmp_path / "b.onnx", nodes, {"w": W, "s": np.float32(0.02), "z": np.int8(0)})
    assert main(["check", plain, quantised]) == 0
    norm = {"ns": np.ones(4, np.float32), "nb": np.zeros(4, np.float32), "nm": W[0], "nv": np.abs(W[1]) + 1}
    normed = saved(
        tmp_path / "c.onnx",
        [helper.make_node("Unsqueeze", ["x", "axes"], ["u"]), helper.make_node("Conv", ["u", "k"], ["h"]),
         helper.make_node("BatchNormalization", ["h", "ns", "nb", "nm", "nv"], ["y"])],
        {"axes": np.array([2]), "k": W.reshape(4, 4, 1), **norm},
    )  # fmt: skip
    factor = norm["ns"] / np.sqrt(norm["nv"] + 1e-5)
    folded = saved(
        tmp_path / "d.onnx",
        [helper.make_node("Unsqueeze", ["x", "axes"], ["u"]), helper.make_node("Conv", ["u", "k", "b"], ["y"])],
        {"axes": np.array([2]), "k": (W * factor[:, None]).reshape(4, 4, 1), "b": -norm["nm"] * factor},
    )  # fmt: skip
    capsys.readouterr()
    assert main(["check", normed, folded]) == 0
    capsys.readouterr()
    assert main(["check", folded, normed]) == 1
    assert "other order" in capsys.readouterr().out


def node(kind: str, reads: list[str], *makes: str, **held: Any) -> Any:
    return helper.make_node(kind, reads, list(makes), **held)


READS_NOBODY = helper.make_graph([helper.make_node("Add", ["x", "nobody"], ["inner"])], "b", [],
                                 [helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)])  # fmt: skip
CUT = {
    "an output that nobody makes": ([node("Relu", ["x"], "z")], {}),
    "an input that nobody makes": ([node("Add", ["x", "nobody"], "y")], {}),
    "one that a branch reads": ([node("If", ["cond"], "y", then_branch=READS_NOBODY, else_branch=branch(1.0))],
                                {"cond": np.array(True)}),
    "made twice": ([node("Relu", ["x"], "y"), node("Neg", ["x"], "y")], {}),
    "made and held": ([node("Relu", ["x"], "w"), node("Add", ["x", "w"], "y")], {"w": W[0]}),
    "a circle": ([node("Add", ["x", "b"], "a"), node("Relu", ["a"], "b"), node("Relu", ["b"], "y")], {}),
    "no operator": ([], {"y": W}),
}  # fmt: skip


@pytest.mark.parametrize("how", CUT)
def test_a_file_that_cannot_run_or_holds_nothing_is_not_sound(how: str, tmp_path: Path) -> None:
    nodes, held = CUT[how]
    file = saved(tmp_path / "m.onnx", nodes, held)
    assert main(["check", file]) == 1
    assert main(["check", file, file]) == 1


def test_operators_may_stand_in_any_order(tmp_path: Path) -> None:
    """ONNX Runtime sorts them itself."""
    assert main(["check", saved(tmp_path / "m.onnx", [node("Neg", ["h"], "y"), node("Relu", ["x"], "h")])]) == 0


def test_a_weight_that_stands_twice_is_none(tmp_path: Path) -> None:
    file = saved(tmp_path / "m.onnx", [node("Add", ["x", "w"], "y")], {"w": W[0]})
    model = onnx.load(file)
    model.graph.initializer.append(numpy_helper.from_array(W[1], "w"))
    onnx.save(model, file)
    assert main(["check", file]) == 1


def changed(**how: Any) -> Any:
    """A model of two operators that the standard takes, but for what is said."""
    made = helper.make_graph(
        how.get("nodes", [node("Relu", ["x"], "r"), node("MatMul", ["r", "w"], "y")]), how.get("name", "g"),
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])] * how.get("inputs", 1),
        [helper.make_tensor_value_info("y", how.get("kind", TensorProto.FLOAT), how.get("shape", [2, 4]))]
        * how.get("outputs", 1),
        [numpy_helper.from_array(how.get("w", W), "w")],
    )  # fmt: skip
    opsets = [helper.make_opsetid(domain, version) for domain, version in how.get("opsets", [("", 17)])]
    return helper.make_model(made, opset_imports=opsets, ir_version=how.get("ir", 8))


INNER = helper.make_graph([node("Identitty", ["x"], "o")], "b", [],
                          [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)])  # fmt: skip
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no such operator": ({"nodes": [node("Reluu", ["x"], "y")]}, "proven_no_operator"),
    "one of a later opset": ({"nodes": [node("Gelu", ["x"], "y")]}, "proven_no_operator"),
    "one in a branch": (
        {"nodes": [node("Cast", ["x"], "c", to=9), node("If", ["c"], "y", then_branch=INNER, else_branch=INNER)]},
        "proven_no_operator",
    ),
    "an output twice": ({"outputs": 2}, "proven_declared_twice"),
    "an input twice": ({"inputs": 2}, "proven_declared_twice"),
    "an opset twice": ({"opsets": [("", 17), ("", 13)]}, "proven_declared_twice"),
    "no opset of a domain": ({"nodes": [node("F", ["x"], "y", domain="mine")]}, "proven_refused"),
    "an attribute that is none": ({"nodes": [node("Relu", ["x"], "y", alpha=0.5)]}, "proven_refused"),
    "an attribute that lacks": ({"nodes": [node("Cast", ["x"], "y")]}, "proven_refused"),
    "an input too few": ({"nodes": [node("MatMul", ["x"], "y")]}, "proven_refused"),
    "types that do not fit": ({"w": W.astype(np.int32)}, "proven_refused"),
    "another type than is made": ({"kind": TensorProto.INT32}, "proven_refused"),
    "shapes that do not fit": ({"w": np.ones((5, 4), np.float32)}, "proven_refused"),
    "another shape than is made": ({"shape": [3, 4]}, "proven_refused"),
    "opset 999": ({"opsets": [("", 999)]}, "standard_newer"),
    "the opset after the newest": ({"opsets": [("", onnx.defs.onnx_opset_version() + 1)]}, "standard_newer"),
    "a later form": ({"ir": 99}, "standard_newer"),
}  # fmt: skip


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("how", REFUSED)
def test_what_the_checker_of_onnx_refuses_is_said_and_is_no_pass(
    how: str, large: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """large: all weights lie outside, as those of more than 2 GB do."""
    changes, code = REFUSED[how]
    onnx.save_model(changed(**changes), tmp_path / "m.onnx", save_as_external_data=large, size_threshold=0)
    standard = check_by_standard(read_model(str(tmp_path / "m.onnx")), tmp_path)
    assert {one.code for one in (*standard.faults, *standard.unknown)} == {code}
    assert main(["check", str(tmp_path / "m.onnx")]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 2, "what is wrong, and what was looked at"


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({}, ()), ({"name": ""}, ("standard_unnamed",)), ({"shape": None}, ("standard_no_shape",)),
        ({"nodes": [node("MatMul", ["r", "w"], "y"), node("Relu", ["x"], "r")]}, ("standard_unordered",)),
        ({"nodes": [node("F", ["x"], "y", domain="mine")], "opsets": [("", 17), ("mine", 1)]}, ("standard_unchecked",)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("large", [False, True])
def test_what_engines_take_is_told_and_hides_no_fault(
    how: dict[str, Any], told: tuple[str, ...], large: bool, tmp_path: Path
) -> None:
    path = tmp_path / "m.onnx"
    onnx.save_model(changed(**how), path, save_as_external_data=large, size_threshold=0)
    standard = check_by_standard(read_model(str(path)), tmp_path)
    assert (tuple(standard.faults), tuple(standard.unknown)) == ((), ())
    assert tuple(one.code for one in standard.told) == told
    assert main(["check", str(path)]) == 0
    broken = changed(**how)
    broken.graph.node.append(node("Relu", ["x"], "beside", alpha=0.5))
    onnx.save(broken, path)
    assert [one.code for one in check_by_standard(read_model(str(path)), tmp_path).faults] == ["proven_refused"]
