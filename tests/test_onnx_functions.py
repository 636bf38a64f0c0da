"""Functions of a model are written out, and none fills the memory by that."""

from __future__ import annotations

import time

import pytest
from approval import raises_approved
from onnx import FunctionProto, ModelProto, NodeProto, helper
from onnx_models import model, value

from precision_debug.errors import ModelError
from precision_debug.onnx.functions import inline_functions

IMPORTS = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]


def call(name: str, source: str, to: str) -> NodeProto:
    return helper.make_node(name, [source], [to], domain="own")


def function(name: str, *nodes: NodeProto) -> FunctionProto:
    return helper.make_function("own", name, ["a"], ["b"], nodes, IMPORTS)


def doubling(levels: int) -> list[FunctionProto]:
    """Each calls the one before it twice."""
    found = [function("f0", helper.make_node("Relu", ["a"], ["b"]))]
    for level in range(1, levels):
        before = f"f{level - 1}"
        found.append(function(f"f{level}", call(before, "a", "t"), call(before, "t", "b")))
    return found[::-1]


def calling(name: str, functions: list[FunctionProto]) -> ModelProto:
    ends = [value("x", [2])], [value("y", [2])]
    return model([call(name, "x", "y")], *ends, functions=functions, domains=["own"])


def test_what_functions_call_is_written_out() -> None:
    found = inline_functions(calling("f9", doubling(10)), "m.onnx")
    assert [node.op_type for node in found.graph.node] == ["Relu"] * 512


def test_a_few_functions_that_would_fill_the_memory_are_refused_at_once() -> None:
    begun = time.process_time()
    with raises_approved(ModelError) as raised:
        inline_functions(calling("f99", doubling(100)), "m.onnx")
    assert "operators" in str(raised.value)
    assert time.process_time() - begun < 5


def test_a_bomb_inside_a_branch_is_one_too() -> None:
    branch = helper.make_graph([call("f60", "x", "o")], "g", [], [value("o", [2])])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    ends = [value("x", [2]), value("c", [], 9)], [value("y", [2])]
    with pytest.raises(ModelError, match="expand to"):
        inline_functions(model([node], *ends, functions=doubling(61), domains=["own"]), "m.onnx")


def test_a_long_chain_is_none() -> None:
    chain = [function("f0", helper.make_node("Relu", ["a"], ["b"]))]
    chain += [function(f"f{n}", call(f"f{n - 1}", "a", "b")) for n in range(1, 90)]
    assert len(inline_functions(calling("f50", chain), "m.onnx").graph.node) == 1


@pytest.mark.parametrize("others", [["f0"], ["f1", "f0"]])
def test_functions_that_call_themselves_are_refused(others: list[str]) -> None:
    circle = [function(f"f{n}", call(other, "a", "b")) for n, other in enumerate(others)]
    with pytest.raises(ModelError, match="inlined"):
        inline_functions(calling("f0", circle), "m.onnx")
