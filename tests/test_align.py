from __future__ import annotations

import dataclasses

import pytest

from precision_debug.errors import MarkError
from precision_debug.pairing import isomorphic
from precision_debug.pairing.align import Alignment, align, split_quantised_name, strip_iteration
from precision_debug.protocols import Matches
from precision_debug.reasons.ways import way
from precision_debug.records import TensorMeta


def meta(name: str, **values: object) -> TensorMeta:
    return TensorMeta(name=name, op_type="Op", **values)  # type: ignore[arg-type]


def pairs(result: object) -> dict[str, tuple[str, str]]:
    return {name: (pair.base.name, pair.how) for name, pair in result.pairs.items()}  # type: ignore[attr-defined]


def test_equal_names_pair_exactly() -> None:
    assert pairs(align([meta("a"), meta("b")], [meta("b"), meta("c")])) == {"b": ("b", "exact")}


def test_origin_beats_an_equal_name_and_the_loser_is_told() -> None:
    result = align([meta("x")], [meta("x"), meta("x_dq", origin="x")])
    assert pairs(result) == {"x_dq": ("x", "graph metadata")}
    assert result.rivals == {"x": "x_dq"}


def test_the_users_rename_beats_both() -> None:
    result = align([meta("x")], [meta("x_dq", origin="x"), meta("y")], {"y": "x"})
    assert pairs(result) == {"y": ("x", "rename map")}


def test_what_all_readers_get_rounded_is_the_rounded_form() -> None:
    """Whatever a file calls what its quantisers give."""
    alike = {"node": "mul", "inputs": ("x",)}
    forms = [meta("h", **alike), meta("h7", view="dequantised", origin="h7", **alike), meta("h8", origin="h8", **alike)]
    assert pairs(align([meta("h")], [*forms, meta("y", inputs=("h8",))])) == {"h8": ("h", "graph metadata")}
    assert pairs(align([meta("h")], [*forms, meta("y", inputs=("h7",))])) == {"h7": ("h", "graph metadata")}
    both_read = [*forms, meta("y", inputs=("h8",)), meta("z", inputs=("h7",))]
    assert pairs(align([meta("h")], both_read)) == {"h8": ("h", "graph metadata")}, "no view, where there is one"
    read_before = [*forms, meta("y", inputs=("h8",)), meta("z", inputs=("h",))]
    assert pairs(align([meta("h")], read_before)) == {"h": ("h", "exact")}
    both = [meta("h"), meta("h7"), meta("h8"), meta("y")]
    assert pairs(align(both, [*forms, meta("y", inputs=("h8",))]))["h"] == ("h", "exact")


def test_who_was_renamed_has_no_second_partner() -> None:
    assert pairs(align([meta("a"), meta("b")], [meta("t", origin="a")], {"t": "b"})) == {"t": ("b", "rename map")}


def test_a_baseline_that_was_fused_pairs_by_its_origin() -> None:
    result = align([meta("fused_7", origin="relu_1")], [meta("relu_1")])
    assert pairs(result) == {"relu_1": ("fused_7", "graph metadata")}


def test_the_only_outputs_of_two_files_are_partners() -> None:
    """Whatever a program's counting calls them: two of them, or of other shapes, are not."""
    base, other = meta("add_1", shape=(2, 4), is_output=True), meta("add_2", shape=(2, 4), is_output=True)
    inner = meta("inner", shape=(2, 4))
    found = pairs(align([inner, base], [other], two_files=True))
    assert list(found) == ["add_2"]
    assert found["add_2"][0] == "add_1"
    assert not align([base], [other]).pairs
    assert not align([base], [dataclasses.replace(other, shape=(4, 2))], two_files=True).pairs
    assert not align([base, dataclasses.replace(base, name="add_0")], [other], two_files=True).pairs


def test_nothing_pairs_by_position() -> None:
    assert not align([meta("a")], [meta("b")]).pairs


@pytest.mark.parametrize("renames", [{"nowhere": "a"}, {"b": "nowhere"}])
def test_a_rename_of_an_unknown_name_is_refused(renames: dict[str, str]) -> None:
    with pytest.raises(MarkError, match="nowhere"):
        align([meta("a")], [meta("b")], renames)


def test_an_exact_name_needs_a_producer_that_fits_and_both_sides_say_so() -> None:
    def op(name: str, op_type: str, *inputs: str) -> TensorMeta:
        return TensorMeta(name=name, op_type=op_type, inputs=inputs)

    baseline = [op("c", "Conv", "x"), op("n", "BatchNormalization", "c"), op("r", "Relu", "n"), op("t", "Tanh", "r")]
    target = [op("c", "Conv"), op("r", "BatchNormalization"), op("r_DequantizeLinear_Output", "DequantizeLinear")]
    target.append(op("t", "Conv"))
    result = align(baseline, target)
    assert pairs(result) == {
        "c": ("c", "exact"), "r": ("n", "graph metadata"), "r_DequantizeLinear_Output": ("r", "graph metadata"),
    }  # fmt: skip
    refused, missing = result.refused["t"], result.missing["t"]
    assert (refused.code, refused.args) == ("baseline_made_by", {"there": "Tanh", "here": "Conv"})
    assert (missing.code, missing.args) == ("target_made_by", {"there": "Conv", "here": "Tanh"})
    assert (result.refused.keys(), result.missing.keys()) == ({"t"}, {"t"})


@pytest.mark.parametrize(
    ("base_op", "target_op"),
    [("Relu", "FusedConv"), ("Relu", "QLinearConv"), ("BatchNormalization", "Conv"), ("Mul", "HardSwish"),
     ("HardSwish", "Mul"), ("Clip", "Relu"), ("relu", "kCONVOLUTION"), ("Relu", "DequantizeLinear"),
     ("Div", "Softmax")],
)  # fmt: skip
def test_a_fusion_may_have_made_it(base_op: str, target_op: str) -> None:
    result = align([TensorMeta(name="a", op_type=base_op)], [TensorMeta(name="a", op_type=target_op)])
    assert pairs(result) == {"a": ("a", "exact")}


def test_an_iteration_is_paired_with_the_same_iteration() -> None:
    """A session lists a loop's tensor once, and shows it as name@0, name@1, …"""
    result = align([meta("s"), meta("x")], [meta("t", origin="x"), meta("x@1")])
    for turn in ("@0", "@12"):
        pair = result.partner(f"t{turn}")
        assert pair is not None
        assert (pair.base.name, pair.target.name, pair.how) == (f"x{turn}", "t", "graph metadata")
    own = result.partner("t")
    assert own is not None
    assert own.base.name == "x"
    assert result.partner("u@0") is None
    assert result.partner("x@1") is None  # listed by that name, without a partner


@pytest.mark.parametrize(
    ("name", "before"),
    [("x@3", "x"), ("a@b@0", "a@b"), ("x", "x"), ("x@y", "x@y"), ("x@", "x@"), ("x3", "x3")],
)
def test_the_name_without_its_iteration(name: str, before: str) -> None:
    assert strip_iteration(name) == before


def test_a_tensor_that_is_listed_by_its_iteration_is_paired_as_listed() -> None:
    result = align([meta("x@0")], [meta("x@0")])
    pair = result.partner("x@0")
    assert pair is not None
    assert (pair.base.name, pair.target.name) == ("x@0", "x@0")


def test_the_first_of_two_that_claim_one_tensor_has_it() -> None:
    result = align([meta("x")], [meta("p", origin="x"), meta("q", origin="x")])
    assert pairs(result) == {"p": ("x", "graph metadata")}
    assert result.rivals == {"q": "p"}


def test_an_own_name_is_stronger_than_what_another_calls_its_source() -> None:
    """Two of the baseline hold "y" in some sense; who is called so is meant."""
    baseline = [meta("held", origin="y"), meta("y"), meta("z", origin="w")]
    assert pairs(align(baseline, [meta("t", origin="y")])) == {"t": ("y", "graph metadata")}
    assert pairs(align(baseline, [meta("y", origin="y")])) == {"y": ("y", "exact")}
    assert pairs(align(baseline, [meta("v", origin="w")])) == {"v": ("z", "graph metadata")}


def test_values_decide_where_they_were_asked_and_names_mean_nothing() -> None:
    matches = Matches(
        found={"t": ("b", "fingerprint, confidence 1")}, refused={"a": "two are alike"}, missing={"a": "none"}
    )
    result = align([meta("a"), meta("b")], [meta("a"), meta("u", origin="t")], None, matches)
    assert pairs(result) == {"u": ("b", "fingerprint, confidence 1")}
    assert (result.refused, result.missing) == ({"a": "two are alike"}, {"a": "none"})
    renamed = align([meta("a"), meta("b")], [meta("a"), meta("t")], {"a": "b"}, matches)
    assert pairs(renamed) == {"a": ("b", "rename map")}
    assert renamed.rivals == {"t": "a"}


def test_what_cannot_be_seen_is_paired_whoever_makes_it() -> None:
    from precision_debug.reasons import say

    hidden = TensorMeta(name="t", op_type="Conv", unseen=say("no_such_name"))
    assert pairs(align([TensorMeta(name="t", op_type="Tanh")], [hidden])) == {"t": ("t", "exact")}


@pytest.mark.parametrize(
    ("base_type", "type_", "view", "paired"),
    [("float32", "uint8", "", False), ("float32", "int8", "", False), ("float32", "uint8", "dequantised", True),
     ("uint8", "uint8", "", True), ("float32", "float32", "", True), ("", "uint8", "", True)],
)  # fmt: skip
def test_raw_integers_are_no_partner_of_floats(base_type: str, type_: str, view: str, paired: bool) -> None:
    form = meta("x_QuantizeLinear_Output", dtype=type_, view=view)
    assert bool(pairs(align([meta("x", dtype=base_type)], [form]))) is paired


def test_of_a_quantised_tensors_forms_one_that_is_shown_comes_first() -> None:
    from precision_debug.reasons import say

    hidden = meta("x_DequantizeLinear_Output", unseen=say("no_such_name"))
    shown = meta("x_QuantizeLinear_Output", view="dequantised")
    for target in ([hidden, shown], [shown, hidden]):
        assert list(pairs(align([meta("x")], target))) == ["x_QuantizeLinear_Output"]


def test_a_clamp_that_the_quantiser_dropped_gives_what_it_read() -> None:
    def op(name: str, op_type: str, *inputs: str) -> TensorMeta:
        return TensorMeta(name=name, op_type=op_type, inputs=inputs)

    told = align([op("c", "Softmax", "x"), op("r", "Relu", "c")], [op("r", "BatchNormalization")])
    assert not told.pairs  # what the clamp read is a softmax
    normed = "tensor of this name is produced by BatchNormalization, this one by Relu"
    relu = "tensor of this name is produced by Relu, this one by BatchNormalization"
    assert told.refused == {"r": f"the baseline's {relu}"}
    assert told.missing == {"r": f"the target's {normed}"}
    dropped = align([op("n", "BatchNormalization", "c"), op("r", "Relu", "n")], [op("r", "BatchNormalization")])
    assert pairs(dropped) == {"r": ("n", "graph metadata")}
    assert not dropped.refused
    assert dropped.missing == {"r": f"the target's {normed}"}


def test_two_files_that_are_one_graph_but_for_names() -> None:
    def graph(*names: str) -> list[TensorMeta]:
        ops = zip(names, ("Conv", "Tanh", "Softmax"), [("x",), (names[0],), (names[1],)], strict=True)
        return [meta("x")] + [
            TensorMeta(name=name, op_type=op, inputs=inputs, dtype="float32", shape=(1, 2), is_output=op == "Softmax")
            for name, op, inputs in ops
        ]  # fmt: skip

    one, two = graph("a", "b", "y"), graph("p", "q", "y")
    assert set(pairs(align(one, two))) == {"x", "y"}
    assert {name: base for name, (base, _) in pairs(align(one, two, two_files=True)).items()} == {
        "x": "x", "p": "a", "q": "b", "y": "y",
    }  # fmt: skip
    strange = [*two[:3], TensorMeta(name="y", op_type="Conv", inputs=("q",), is_output=True)]
    assert "q" not in pairs(align(one, strange, two_files=True))  # then they are not one graph


def test_a_chain_of_other_names_is_paired_in_a_time_that_grows_with_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    real = isomorphic._signature_of
    monkeypatch.setattr(isomorphic, "_signature_of", lambda *given: made.append(1) or real(*given))

    def looks(length: int) -> int:
        made.clear()
        one, other = (
            [meta("x"), *(meta(f"{side}{i}", inputs=(f"{side}{i - 1}" if i else "x",)) for i in range(length))]
            for side in "ab"
        )
        found = pairs(align(one, other, two_files=True))
        assert found == {"x": ("x", "exact")} | {f"b{i}": (f"a{i}", "graph neighbours") for i in range(length)}
        return len(made)

    assert looks(200) < 3 * looks(100)


def test_what_was_decided_before_is_kept_of_tensors_that_both_sides_have() -> None:
    decided = {"t": ("a", "outputs of the model"), "gone": ("a", "exact"), "u": ("gone", "exact")}
    found = Alignment.of([meta("a"), meta("b")], [meta("t"), meta("u")], decided, rivals={"u": "t"})
    assert pairs(found) == {"t": ("a", "outputs of the model")}
    assert (found.rivals, [one.name for one in found.baseline], [one.name for one in found.target]) == (
        {"u": "t"}, ["a", "b"], ["t", "u"],
    )  # fmt: skip
    pair = found.partner("t")
    assert pair is not None
    assert (pair.base.name, pair.target.name) == ("a", "t")


def test_who_came_first_keeps_a_tensor_against_all_that_follow() -> None:
    result = align([meta("x")], [meta(name, origin="x") for name in "pqr"])
    assert pairs(result) == {"p": ("x", "graph metadata")}
    assert result.rivals == {"q": "p", "r": "p"}
    assert result.missing == {}


def test_only_a_clamp_of_one_input_gives_what_it_read() -> None:
    """A Clip with bounds reads those, too: which of its inputs is meant is not told by their place."""
    norm = TensorMeta(name="n", op_type="BatchNormalization", inputs=("x",))
    form = meta("n_QuantizeLinear_Output", view="dequantised")
    clip = TensorMeta(name="r", op_type="Clip", inputs=("n",))
    bounded = TensorMeta(name="r", op_type="Clip", inputs=("n", "low"))
    other = TensorMeta(name="r", op_type="Tanh", inputs=("n",))
    for reader, held in ((clip, "r"), (bounded, "n"), (other, "n")):
        assert pairs(align([norm, reader], [form])) == {form.name: (held, "graph metadata")}
    here = TensorMeta(name="r", op_type="BatchNormalization")
    for reader, found in ((dataclasses.replace(clip, op_type="Relu"), True),
                          (TensorMeta(name="r", op_type="Relu", inputs=("n", "low")), False),
                          (other, False)):  # fmt: skip
        result = align([norm, reader], [here])
        assert bool(result.pairs) is found
        assert bool(result.refused) is not found


def test_the_only_outputs_are_partners_where_a_dimension_is_dynamic() -> None:
    def output(name: str, *shape: int | str) -> TensorMeta:
        return TensorMeta(name=name, op_type="add", dtype="float32", shape=shape, is_output=True)

    base = [output("output", 2, 8, 4)]
    assert align(base, [output("add_1", "dim0", 8, 4)], two_files=True).pairs["add_1"].base.name == "output"
    assert not align(base, [output("add_1", "dim0", 8, 5)], two_files=True).pairs
    assert not align(base, [output("add_1", "dim0", 8)], two_files=True).pairs


def test_what_is_put_together_or_cut_out_is_paired_before_all_else() -> None:
    """Of two tensors with one name it is not the partner; what the baseline does not have is nobody's."""
    recut = {"part": ("whole", way("graph metadata")), "lost": ("nothing", way("graph metadata"))}
    base, target = [meta("whole"), meta("other")], [meta("part"), meta("whole"), meta("lost"), meta("y")]
    found = align(base, target, {"y": "whole"}, recut=recut)
    assert pairs(found) == {"part": ("whole", "graph metadata")}
    assert found.rivals == {"y": "part", "whole": "part"}
    assert pairs(align(base, target, {"y": "whole"}))["y"] == ("whole", "rename map")


def test_the_only_outputs_of_another_type_are_no_partners() -> None:
    base = meta("add_1", shape=(2, 4), dtype="float32", is_output=True)
    for dtype, count in (("float32", 1), ("int64", 0)):
        other = meta("add_2", shape=(2, 4), dtype=dtype, is_output=True)
        assert len(align([base], [other], two_files=True).pairs) == count


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("x_DequantizeLinear_Output", ("x", 0)), ("x_QuantizeLinear_Output", ("x", 1)), ("x_quantized", ("x", 2)),
        ("x_QuantizeLinear_Input", ("x", 3)), ("x_quantized/duplicated_token_3", ("x", 2)),
        ("_quantized", ("_quantized", -1)), ("x", ("x", -1)), ("x/duplicated", ("x/duplicated", -1)),
        ("a_name_that_is_longer_than_each_of_the_forms", ("a_name_that_is_longer_than_each_of_the_forms", -1)),
    ],
)  # fmt: skip
def test_what_a_quantised_form_holds(name: str, holds: tuple[str, int]) -> None:
    assert split_quantised_name(name) == holds


def test_beside_paired_outputs_and_what_is_inside_the_last_ones_are_partners() -> None:
    def output(name: str) -> TensorMeta:
        return meta(name, shape=(2, 4), dtype="float32", is_output=True)

    base = [meta("inside_1", shape=(2, 4), dtype="float32"), output("same"), output("add_1")]
    target = [meta("inside_2", shape=(2, 4), dtype="float32"), output("same"), output("add_2")]
    found = align(base, target, two_files=True).pairs
    assert {name: found[name].base.name for name in ("same", "add_2")} == {"same": "same", "add_2": "add_1"}
    assert "add_2" not in align([base[0], output("same")], target, two_files=True).pairs


@pytest.mark.parametrize(
    ("relu", "there", "values", "found"),
    [
        ("Relu", False, {}, "r"), ("Relu", True, {}, "h"),  # whose work the zero point does, unless it is still there
        ("Neg", False, {}, "h"), ("Relu", False, {"is_output": True}, ""), ("Relu", False, {"view": "dequantised"}, ""),
    ],
)
def test_the_rounded_form_of_what_a_dropped_clamp_read_is_that_of_the_clamp(
    relu: str, there: bool, values: dict[str, object], found: str
) -> None:
    base = [meta("h"), TensorMeta(name="r", op_type=relu, inputs=("h",))]
    alike = {"node": "mul", "inputs": ("x",)}
    forms = [meta("h", **alike, **values), meta("h7", view="dequantised", origin="h7", **alike),
             meta("h8", origin="h8", **alike)]  # fmt: skip
    more = [meta("r")] if there else []
    pair = align(base, [*forms, *more, meta("y", inputs=("h8",))]).pairs.get("h8")
    assert ("" if pair is None else pair.base.name) == found
