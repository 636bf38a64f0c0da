"""Which source tensor a value of the running graph holds, by hand: source, given and running graph, no session."""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from precision_debug_onnxruntime.engine.source_tensors import Known
from precision_debug_onnxruntime.engine.types import TypeInfo, Types
from precision_debug_onnxruntime.naming import Holding, find_holdings

from precision_debug.onnx.graph import iterate_scopes

BLOCKED = "com.microsoft.nchwc"
NHWC = (0, 2, 3, 1)


def graph(text: str, *, inputs: str = "x", outputs: str = "y", inner: dict[str, dict[str, Any]] | None = None) -> Any:
    """``Conv first: x w -> c`` is a Conv called first; what nobody makes is a constant of its own value.

    Behind ``;`` stands a domain, a transposition (four digits) or an activation. inner: by node, its graphs."""
    nodes: list[Any] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        said, _, more = line.partition(";")
        head, _, values = said.partition(":")
        op_type, name = head.split()
        read, given = (part.split() for part in values.split("->"))
        extra: dict[str, Any] = dict((inner or {}).get(name, {}))
        for word in more.split():
            if word.isdigit():
                extra["perm"] = [int(digit) for digit in word]
            elif "." in word:
                extra["domain"] = word
            else:
                extra["activation"] = word
        read = ["" if one == "_" else one for one in read]
        nodes.append(helper.make_node(op_type, read, given, name=name, **extra))
    made = {name for node in nodes for name in node.output} | set(inputs.split())
    fixed = sorted({name for node in nodes for name in node.input if name} - made - OUTER)
    return helper.make_graph(
        nodes, "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in inputs.split()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs.split()],
        [numpy_helper.from_array(np.array(zlib.crc32(name.encode()), np.int64), name) for name in fixed],
    )  # fmt: skip


OUTER = {"x", "flag", "c", "times", "ortshared_1"}
"""What lies outside of a graph: what a branch reads, and a scale that several share."""


def elem(name: str) -> int:
    return {"q": TensorProto.UINT8, "half": TensorProto.FLOAT16}.get(name.rpartition("_")[2], TensorProto.FLOAT)


def held(source: Any, given: Any, running: Any, turned: dict[str, Any] | None = None) -> dict[tuple[Any, str], Holding]:
    """By scope and name. A value ending in _q is uint8, one ending in _half is float16, all are of one shape."""
    source, given, running = (graph(one) if isinstance(one, str) else one for one in (source, given, running))
    names = set[tuple[Any, str]]()
    for scope in iterate_scopes(running):
        items = (*scope.graph.input, *scope.graph.initializer)
        outputs = [name for node in scope.graph.node for name in node.output]
        names |= {(scope.key, name) for name in [*(item.name for item in items), *outputs]}
    known = {key: TypeInfo(kind="tensor", elem=elem(key[1]), shape=(1, 8, 4, 4)) for key in names}
    facts = dataclasses.replace(Known.of(source, given), turned=turned or {})
    return find_holdings(running, Types(known=known), facts)


def told(*given: Any, **more: Any) -> dict[str, str]:
    """By name: the source tensor; "=" and the value that it repeats; what its numbers have yet to go through."""
    return {name: in_words(one) for (_, name), one in held(*given, **more).items() if not one.constant}


def in_words(one: Holding) -> str:
    if one.repeats:
        return f"outside: {one.repeats}"
    return f"={one.same_as}" if one.same_as else one.before or one.origin


PLAIN = """
    Conv first: x w -> c
    Relu relu: c -> r
    Conv second: r v -> d
    Softmax end: d -> y
"""
QDQ = """
    QuantizeLinear xq: x sx z -> x_q
    DequantizeLinear xd: x_q sx z -> x_dq
    DequantizeLinear wd: w_q sw z -> w_dq
    Conv first: x_dq w_dq -> c
    Relu relu: c -> r
    QuantizeLinear rq: r sr z -> r_q
    DequantizeLinear rd: r_q sr z -> r_dq
    DequantizeLinear vd: v_q sv z -> v_dq
    Conv second: r_dq v_dq -> d
    QuantizeLinear dq: d sd z -> d_q
    DequantizeLinear dd: d_q sd z -> d_dq
    Softmax end: d_dq -> y
"""
HEAD = """
    QuantizeLinear xq: x sx z -> x_q
"""


def test_a_graph_that_runs_as_it_was_written_holds_what_it_says() -> None:
    assert told(PLAIN, PLAIN, PLAIN) == {name: name for name in "xcrdy"}
    constants = {name for (_, name), one in held(PLAIN, PLAIN, PLAIN).items() if one.constant}
    assert constants == {"w", "v"}


def test_a_given_integer_graph_stands_for_the_model_by_its_most_rounded_values() -> None:
    assert told(PLAIN, QDQ, QDQ) == {
        "x": "before quantisation", "x_q": "=x_dq", "x_dq": "x",
        "c": "c",
        "r": "before quantisation", "r_q": "=r_dq", "r_dq": "r",
        "d": "before quantisation", "d_q": "=d_dq", "d_dq": "d", "y": "y",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("scale", "read", "called", "origin"),
    [
        ("sr", "x_q sx", "first", "r"),  # the Relu went into the quantisation
        ("sd", "x_q sx", "first", ""),  # another tensor's scale
        ("sr", "other_q so", "first", ""),  # of something else
        ("ortshared_1", "x_q sx", "first", "r"),  # one constant in place of several that are equal tells nothing
        ("sr", "x_q sx", "nobody", ""),  # no node of the given graph
        ("sr", "x_q sx", "first_token_12", "r"),  # ONNX Runtime numbers what it makes twice
    ],
)
def test_integers_without_a_name_are_told_by_their_node_scale_and_inputs(
    scale: str, read: str, called: str, origin: str
) -> None:
    running = f"""
        QuantizeLinear xq: x sx z -> x_q
        Sin made: w -> other_q
        QLinearConv {called}: {read} z w_q sw z {scale} z -> anon_q
        QLinearConv second: anon_q {scale} z v_q sv z sd z -> d_q
        DequantizeLinear dd: d_q sd z -> d_dq
        Softmax end: d_dq -> y
    """
    found = told(PLAIN, QDQ, running)
    assert found["anon_q"] == origin
    assert (found["d_dq"], found["d_q"], found["y"]) == ("d", "=d_dq", "y")


def test_a_float_value_without_a_name_is_not_guessed() -> None:
    assert told(PLAIN, PLAIN, PLAIN.replace("-> c", "-> anon").replace("relu: c", "relu: anon"))["anon"] == ""


def test_of_a_node_with_several_outputs_each_is_told_by_its_place() -> None:
    source = """
        Split cut: x -> a b
        Add sum: a b -> y
    """
    given = """
        Split cut: x -> a b
        QuantizeLinear aq: a sa z -> a_q
        DequantizeLinear ad: a_q sa z -> a_dq
        QuantizeLinear bq: b sb z -> b_q
        DequantizeLinear bd: b_q sb z -> b_dq
        Add sum: a_dq b_dq -> y
    """
    running = """
        Split cut: x -> one_q two_q three_q
        DequantizeLinear n1: one_q sa z -> one
        DequantizeLinear n2: two_q sb z -> two
        DequantizeLinear n3: three_q sb z -> three
        Add sum: one two -> y
    """
    found = told(source, given, running)
    assert {name: found[name] for name in ("one", "two", "three")} == {"one": "a", "two": "b", "three": ""}
    assert (found["one_q"], found["two_q"]) == ("=one", "=two")


SUM = """
    MatMul product: x w -> m
    Add biased: m b -> s
    Sigmoid gate: s -> g
    Mul swish: s g -> p
    Softmax end: p -> y
"""
SUM_QDQ = """
    MatMul product: x w -> m
    Add biased: m b -> s
    Sigmoid gate: s -> g
    Mul swish: s g -> p
    QuantizeLinear pq: p sp z -> p_q
    DequantizeLinear pd: p_q sp z -> p_dq
    Softmax end: p_dq -> y
"""


@pytest.mark.parametrize(
    ("name", "read", "scale", "origin"),
    [
        ("swish/SiluFusion", "s", "sp", "p"),
        ("swish/SiluFusion/_token_3", "s", "sp", "p"),
        ("swish/SiluFusion", "x", "sp", "p"),  # of what came before too: m and s are between
        ("swish/SiluFusion", "s w", "sp", "p"),  # a constant counts for nothing
        ("swish/SiluFusion", "g", "sp", ""),  # the product needs s as well, so x
        ("swish/SiluFusion", "stray", "sp", ""),  # of what is not known nothing is
        ("swish/SiluFusion", "s stray", "sp", ""),
        ("swish/SiluFusion", "s", "so", ""),  # another scale
        ("other/SiluFusion", "s", "sp", ""),
        ("swish/Silu", "s", "sp", ""),  # not what a fusion is called
    ],
)
def test_what_a_fusion_made_is_the_last_of_its_nodes_where_it_reads_what_that_was_made_from(
    name: str, read: str, scale: str, origin: str
) -> None:
    running = f"""
        MatMul product: x w -> m
        Add biased: m b -> s
        Sigmoid gate: s -> g
        Sin sin: x -> stray
        QuickGelu {name}: {read} -> anon_q
        DequantizeLinear pd: anon_q {scale} z -> anon
        Softmax end: anon -> y
    """
    found = told(SUM, SUM_QDQ, running)
    assert (found["anon"], found["stray"]) == (origin, "")
    assert found["s"] == "s"


def test_a_second_output_of_a_fusion_is_nothing_that_is_known() -> None:
    running = """
        Add biased: x b -> s
        Silu swish/SiluFusion: s -> one_q two_q
        DequantizeLinear pd: two_q sp z -> two
        DequantizeLinear pe: one_q sp z -> one
        Softmax end: one -> y
    """
    found = told(SUM, SUM_QDQ, running)
    assert (found["one"], found["two"]) == ("p", "")


def test_a_gemm_of_a_product_and_a_sum_is_the_sum() -> None:
    running = """
        Gemm product/MatMulAddFusion: x w b -> anon_q
        DequantizeLinear pd: anon_q ss z -> anon
        Sigmoid gate: anon -> g
    """
    assert told(SUM, SUM_QDQ, running)["anon"] == "s"


RESIDUAL = """
    Conv first: x w -> c
    BatchNormalization norm: c k -> n
    Relu relu: n -> r
    Conv second: r v -> d
    Add plus: d r -> s
    Relu last: s -> t
    Softmax end: t -> y
"""


@pytest.mark.parametrize(
    ("node", "origin"),
    [
        (f"Conv c_nchwc: xb w -> anon ;{BLOCKED}", "c"),
        (f"Conv c_nchwc_token_4: xb w -> anon ;{BLOCKED}", "c"),
        (f"Conv n_nchwc: xb w -> anon ;{BLOCKED}", "n"),
        (f"Conv d_nchwc: xb w b -> anon ;{BLOCKED}", "d"),
        (f"Conv d_nchwc: xb w b -> anon ;{BLOCKED} Relu", ""),  # an Add reads it: its Relu is not the next
        (f"Conv d_nchwc: xb w b xb -> anon ;{BLOCKED}", "s"),  # what is added was fused in
        (f"Conv d_nchwc: xb w _ xb -> anon ;{BLOCKED} Relu", "t"),
        (f"Conv d_nchwc: xb w b _ -> anon ;{BLOCKED}", "d"),
        (f"Conv n_nchwc: xb w b -> anon ;{BLOCKED} Relu", "r"),
        (f"Conv r_nchwc: xb w b -> anon ;{BLOCKED} Relu", "r"),  # fused before the name was given
        (f"Conv n_bn_nchwc: xb w b -> anon ;{BLOCKED} Relu", "r"),
        (f"MaxPool d_nchwc: xb w b xb -> anon ;{BLOCKED}", "d"),  # only a Conv takes a sum in
        (f"Conv q_nchwc: xb w -> anon ;{BLOCKED}", ""),
        (f"Conv first: xb w -> anon ;{BLOCKED}", "c"),
        (f"Conv second: xb w -> anon ;{BLOCKED}", ""),  # reads another tensor
    ],
)
def test_a_blocked_value_is_what_its_node_is_called_after_and_what_was_fused_in_since(node: str, origin: str) -> None:
    running = f"""
        ReorderInput in: x -> xb ;{BLOCKED}
        {node}
        ReorderOutput out: anon -> plain ;{BLOCKED}
        Softmax end: plain -> y
    """
    found = told(RESIDUAL, RESIDUAL, running)
    assert found["xb"] == "=x"
    assert (found["plain"], found["anon"]) == (origin, "=plain" if origin else "")


def test_a_sum_that_two_read_is_not_chosen_between() -> None:
    source = RESIDUAL + "Add other: d x -> u"
    running = f"""
        ReorderInput in: x -> xb ;{BLOCKED}
        Conv d_nchwc: xb w b xb -> anon ;{BLOCKED}
    """
    assert told(source, source, running)["anon"] == ""


def test_half_precision_copies_stand_for_the_tensor_and_what_is_not_yet_rounded_says_so() -> None:
    running = """
        Conv first: x w -> c
        Cast down: c -> c_half
        Cast again: c -> twin_half
        Cast up: c_half -> wide
        Relu relu: wide -> r
        Conv second: r v -> d
        Softmax end: d -> y
    """
    found = held(PLAIN, PLAIN, running)
    words = {name: in_words(one) for (_, name), one in found.items()}
    assert words["c"] == "before rounding"
    assert [name for name in ("c_half", "twin_half", "wide") if words[name] == "c"] == ["wide"]
    assert words["c_half"] == words["twin_half"] == "=wide"
    assert {name: one.root for (_, name), one in found.items() if name in {"c", "c_half", "wide"}} == {
        "c": "c", "c_half": "c", "wide": "c",
    }  # fmt: skip
    assert {name: one.form.bits for (_, name), one in found.items() if name in {"c", "wide"}} == {"c": 32, "wide": 16}


def test_the_models_output_itself_stands_for_it_although_a_copy_is_rounded() -> None:
    running = (
        PLAIN
        + """
        Cast down: y -> copy_half
        Cast more: d -> other_half
    """
    )
    found = told(PLAIN, PLAIN, running)
    assert (found["y"], found["copy_half"]) == ("y", "")
    assert (found["d"], found["other_half"]) == ("before rounding", "d")


DROPPED = QDQ.replace("Relu relu: c -> r\n", "").replace("w_dq -> c", "w_dq -> r")


def test_a_name_that_a_dropped_relu_left_to_its_input_is_that_before_the_quantisation() -> None:
    """onnxruntime.quantization drops a Relu where the zero point does the same, and hands on its name."""
    found = told(PLAIN, DROPPED, DROPPED)
    assert (found["r"], found["r_dq"], found["r_q"]) == ("c", "r", "=r_dq")
    kept = told(PLAIN, QDQ, QDQ)
    assert (kept["r"], kept["c"]) == ("before quantisation", "c")


def test_an_operator_that_is_no_activation_is_not_taken_to_be_dropped() -> None:
    source = PLAIN.replace("Relu relu", "Sigmoid relu")
    assert told(source, DROPPED, DROPPED)["r"] == "before quantisation"


def test_what_a_dropped_relu_read_is_told_under_another_name_too() -> None:
    running = DROPPED.replace("r sr z", "copy sr z").replace("w_dq -> r", "w_dq -> copy")
    found = told(PLAIN, DROPPED, running)
    assert (found["copy"], found["r_dq"], found["r_q"]) == ("c", "r", "=r_dq")


def test_integers_that_bear_the_name_of_what_a_relu_read_hold_that() -> None:
    running = (
        HEAD
        + """
        QLinearConv first: x_q sx z w_q sw z sr z -> c
        QLinearConv second: c sr z v_q sv z sd z -> d_q
        DequantizeLinear dd: d_q sd z -> d_dq
        Softmax end: d_dq -> y
    """
    )
    found = told(PLAIN, QDQ, running)
    assert (found["c"], found["x_q"], found["x"]) == ("c", "x", "before quantisation")


@pytest.mark.parametrize(
    ("given", "scale", "expected"),
    [
        (QDQ, "sr", "c r"),  # the Relu went into the quantisation, whose scale is that of its result
        (QDQ, "so", "before quantisation c"),
        (QDQ.replace("Relu relu", "Sigmoid relu"), "sr", "before quantisation c"),  # no quantisation does that
        (QDQ.replace("rq: r sr", "rq: r so").replace("rd: r_q sr", "rd: r_q so"), "sr", "before quantisation c"),
        (QDQ + "QuantizeLinear cq: c sr z -> c_q", "sr", "before quantisation c"),  # c has that scale as well
    ],
)
def test_what_is_quantised_with_the_scale_of_a_relu_that_went_is_what_the_relu_gave(
    given: str, scale: str, expected: str
) -> None:
    running = f"""
        Conv first: x w -> c
        QuantizeLinear any: c {scale} z -> anon_q
        DequantizeLinear more: anon_q {scale} z -> anon
        Conv second: anon v -> d
        Softmax end: d -> y
    """
    found = told(PLAIN, given, running)
    stands = "anon_q" if expected == "c r" else "anon"
    assert f"{found['c']} {found[stands]}" == expected
    assert {found["anon_q"], found["anon"]} in ({"r", "=anon_q"}, {"c", "=anon"})


def test_what_the_given_graph_calls_by_its_relu_stands_for_that() -> None:
    running = """
        Conv first: x w -> c
        QuantizeLinear rq: c sr z -> r_q
        DequantizeLinear rd: r_q sr z -> r_dq
        Conv second: r_dq v -> d
        Softmax end: d -> y
    """
    found = told(PLAIN, QDQ, running)
    assert (found["c"], found["r_dq"], found["r_q"]) == ("c", "r", "=r_dq")


# ---- a source that is quantised itself: several of its tensors lie on one edge


def test_each_of_a_quantised_source_is_told_by_its_own_name() -> None:
    computed = {name: name for name in ("x", "x_q", "x_dq", "c", "r", "r_q", "r_dq", "d", "d_q", "d_dq", "y")}
    assert told(QDQ, QDQ, QDQ) == computed | {"w_dq": "", "v_dq": ""}


def test_integers_that_are_all_that_is_left_stand_for_what_they_are_dequantised_to() -> None:
    running = (
        HEAD
        + """
        QLinearConv first: x_q sx z w_q sw z sr z -> r_q
        DequantizeLinear own: r_q sr z -> twin
        Neg reader: twin -> away
        QLinearConv second: r_q sr z v_q sv z sd z -> d_q
        DequantizeLinear dd: d_q sd z -> d_dq
        Softmax end: d_dq -> y
    """
    )
    found = told(QDQ, QDQ, running)
    assert (found["r_q"], found["twin"]) == ("r_dq", "=r_q")
    assert (found["d_q"], found["d_dq"]) == ("d_q", "d_dq")
    assert (found["x"], found["x_q"], found["away"]) == ("x", "x_dq", "")


def test_what_has_no_name_on_an_edge_of_several_is_the_one_that_is_left_of_its_kind() -> None:
    running = (
        HEAD
        + """
        DequantizeLinear xd: x_q sx z -> x_dq
        FusedConv first: x_dq w -> anon
        QuantizeLinear rq: anon sr z -> r_q
        DequantizeLinear rd: r_q sr z -> r_dq
        Conv second: r_dq v -> d
    """
    )
    found = told(QDQ, QDQ, running)
    assert (found["anon"], found["r_q"], found["r_dq"]) == ("r", "r_q", "r_dq")
    nameless = """
        QLinearConv first: x_q sx z w_q sw z sr z -> anon_q
        Neg reader: anon_q -> away
    """
    assert told(QDQ, QDQ, HEAD + nameless)["anon_q"] == "r_dq"


# ---- what the quantiser put in, and what transpositions moved


PUT_IN = """
    Gemm product: x w -> inside
    QuantizeLinear iq: inside si z -> inside_q
    DequantizeLinear id: inside_q si z -> inside_dq
    Reshape back: inside_dq shape -> c
    QuantizeLinear cq: c sc z -> c_q
    DequantizeLinear cd: c_q sc z -> c_dq
    Softmax end: c_dq -> y
"""


@pytest.mark.parametrize(
    ("node", "read", "scale", "origin"),
    [
        ("product", "x", "si", "c"),
        ("product", "x", "ortshared_1", "c"),
        ("product", "x", "so", ""),
        ("product", "made", "si", ""),
        ("another", "x", "si", ""),
    ],
)
def test_what_reads_a_tensor_that_the_quantiser_put_in_is_still_told(
    node: str, read: str, scale: str, origin: str
) -> None:
    source = """
        MatMul real: x w -> c
        Softmax end: c -> y
    """
    running = f"""
        Sin sin: x -> made
        QGemm {node}: {read} sx z w_q sw z b {scale} z -> one_q
        Reshape back: one_q shape -> two_q
        DequantizeLinear cd: two_q sc z -> two
        Softmax end: two -> y
    """
    found = told(source, PUT_IN, running)
    assert (found["one_q"], found["two"]) == ("", origin)


@pytest.mark.parametrize(
    ("node", "origin"),
    [
        ("Conv first: x w -> first", "r"),
        ("Sigmoid first: x -> first", ""),  # what was fused since bears the name, too
        ("Conv first: made w -> first", ""),
        ("QLinearConv first: x sx z w_q sw z sr z -> first", "r"),
        ("QLinearConv first: x sx z w_q sw z so z -> first", ""),
    ],
)
def test_a_transposed_value_that_is_called_after_a_node_is_what_the_node_gave(node: str, origin: str) -> None:
    running = f"""
        Sin sin: x -> made
        {node}
        Neg reader: first -> away
    """
    assert told(PLAIN, DROPPED, running, {"first": NHWC})["first"] == origin
    assert "QLinear" in node or told(PLAIN, DROPPED, running)["first"] == ""  # in what layout is not known


def test_a_transposed_copy_of_a_value_repeats_it() -> None:
    running = """
        Conv first: x w -> c
        Transpose Transpose_token_1: c -> turned ; 0231
        Relu relu: turned -> relu
        Transpose Transpose_token_2: relu -> back ; 0312
        Conv second: back v -> d
        Softmax end: d -> y
    """
    found = held(PLAIN, PLAIN, running, {"relu": NHWC})
    words = {name: in_words(one) for (_, name), one in found.items()}
    assert (words["c"], words["turned"]) == ("c", "=c")
    assert {words["relu"], words["back"]} in ({"r", "=relu"}, {"r", "=back"})
    assert (found[(), "relu"].form.perm, found[(), "back"].form.perm) == (NHWC, ())


IF = """
    Conv first: x w -> c
    If either: flag -> y
"""


def branches(then: str, other: str, outputs: tuple[str, str] = ("p", "q")) -> dict[str, dict[str, Any]]:
    return {"either": {
        "then_branch": graph(then, inputs="", outputs=outputs[0]),
        "else_branch": graph(other, inputs="", outputs=outputs[1]),
    }}  # fmt: skip


def test_what_a_branch_only_takes_over_repeats_what_lies_outside() -> None:
    own = branches("Relu up: c -> p", "Neg down: c -> q")
    source = graph(IF, inputs="x flag", inner=own)
    copies = "Cast copy: c -> c_half\nCast more: c -> InsertedPrecisionFreeCast_c\nRelu up: c_half -> p"
    cast = branches(copies, "Neg down: c -> q")
    found = held(source, source, graph(IF, inputs="x flag", inner=cast))
    words = {(len(key), name): in_words(one) for (key, name), one in found.items()}
    assert words[0, "c"] == "c"
    assert words[1, "p"] == "p"
    assert words[1, "q"] == "q"
    assert words[1, "c_half"] == words[1, "InsertedPrecisionFreeCast_c"] == "outside: c"
    again = {(len(key), name): in_words(one) for (key, name), one in held(source, source, source).items()}
    assert (again[1, "p"], again[1, "q"], again[0, "y"]) == ("p", "q", "y")


def test_what_a_loop_is_handed_repeats_it_and_what_it_computes_is_its_own() -> None:
    def looped(text: str) -> Any:
        body = graph(text, inputs="i go state", outputs="go2 p")
        return graph("Conv first: x w -> c\nLoop turn: times flag c -> y", inputs="x flag times",
                     inner={"turn": {"body": body}})  # fmt: skip

    plain = "Identity on: go -> go2\nAdd step: state c -> p"
    source = looped(plain)
    running = looped("Cast copy: state -> state_half\nIdentity on: go -> go2\nAdd step: state_half c -> p")
    found = {(len(key), name): in_words(one) for (key, name), one in held(source, source, running).items()}
    assert (found[1, "state"], found[1, "state_half"]) == ("outside: state", "outside: state")
    assert (found[1, "p"], found[1, "go2"], found[0, "c"], found[0, "y"]) == ("p", "go2", "c", "y")
