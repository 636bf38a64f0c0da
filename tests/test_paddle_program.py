"""Reading and editing Paddle programs, and the search for marks; no Paddle is needed."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import paddle_models
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from precision_debug_paddle import naming
from precision_debug_paddle.engine.fetchable import Changed, Print, Trace, group_by_value, search
from precision_debug_paddle.engine.hook_check import Witness
from precision_debug_paddle.engine.legacy_program import read_legacy
from precision_debug_paddle.failures import our_errors

from precision_debug.errors import BackendError, BackendUnavailable, ModelError, PrecisionDebugError
from precision_debug.onnx import wire

FIXTURES = sorted(path.name.partition(".")[0] for path in paddle_models.DATA.glob("*.pdmodel.z"))


@pytest.mark.parametrize("name", FIXTURES)
def test_a_program_that_is_not_edited_is_written_back_byte_for_byte(name: str, tmp_path: Path) -> None:
    data = zlib.decompress((paddle_models.DATA / f"{name}.pdmodel.z").read_bytes())
    assert wire.join_message(wire.parse(data)) == data
    path = paddle_models.legacy(name, tmp_path)
    program = read_legacy(path)
    assert program.with_fetches([], tmp_path / "same.pdmodel").read_bytes() == data


def test_a_fetch_is_added_and_the_rest_is_left_as_it_is(tmp_path: Path) -> None:
    program = read_legacy(paddle_models.legacy("cnn", tmp_path))
    output = next(value.name for value in program.values if value.output)
    edited = read_legacy(program.with_fetches(["relu_0.tmp_0", output], tmp_path / "edited.pdmodel"))
    assert [value.name for value in edited.values] == [value.name for value in program.values]
    assert [value.name for value in edited.values if value.output] == ["relu_0.tmp_0", output]
    assert edited.inputs == program.inputs


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_a_value_error(data: bytes) -> None:
    try:
        fields = wire.parse(data)
    except ValueError:
        return
    assert wire.parse(wire.join_message(fields)) == fields


def test_constants_parameters_and_statistics_are_no_values(tmp_path: Path) -> None:
    program = read_legacy(paddle_models.legacy("cnn", tmp_path))
    names = {value.name for value in program.values}
    assert "reshape2_0.tmp_0" not in names, "a reshaped bias is a constant"
    assert not names & program.parameters()
    assert "batch_norm_0.tmp_0" not in names
    by_name = {value.name: value for value in program.values}
    assert by_name["tmp_0"].inputs == ("batch_norm_1.tmp_2", "relu_0.tmp_0")
    assert by_name["conv2d_0.tmp_0"].inputs == ("x",)
    assert by_name["relu_1.tmp_0"].shape == ("dim0", 8, 16, 16)


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ("pd_op.conv2d:3", "conv2d"), ("onednn_op.fc:2", "fc"), ("pd_op.relu_:5", "relu"), ("1.add", "add"),
        ("batch_norm_", "batch_norm"), ("elementwise_add", "elementwise_add"), ("tensorrt_engine", "tensorrt_engine"),
    ],
)  # fmt: skip
def test_operator_types_are_said_plainly(given: str, plain: str) -> None:
    assert naming.plain_type(given) == plain


def test_names_count_by_type_and_carry_the_layer() -> None:
    namer = naming.Namer()
    names = [namer.name("add", "Linear"), namer.name("matmul", ""), namer.name("add", "encoder/Linear_1")]
    assert names == ["add_0@Linear", "matmul_0", "add_1@encoder/Linear_1"]


# -- the search for marks


class Graph:
    """A fused program in which some marks change an operator."""

    def __init__(self, bad: set[str], type_of: dict[str, str]) -> None:
        self.bad, self.type_of, self.builds = bad, type_of, 0

    def changes(self, names: Sequence[str]) -> Counter[str]:
        self.builds += 1
        return Counter(self.type_of[name] for name in names if name in self.bad)


@pytest.mark.parametrize(("count", "bad"), [(300, 0), (300, 1), (300, 4), (300, 8), (40, 20), (3, 3), (1, 0)])
def test_the_search_keeps_every_harmless_mark_in_tens_of_builds(count: int, bad: int) -> None:
    rng = np.random.default_rng(count + bad)
    names = [f"v{i:03d}" for i in range(count)]
    types = {name: ("conv", "fc", "add", "norm")[int(rng.integers(4))] for name in names}
    graph = Graph({names[int(i)] for i in rng.choice(count, bad, replace=False)}, types)
    found = search([(types[name], [name]) for name in names], graph.changes, names, budget=80)
    assert set(found.kept) == set(names) - graph.bad
    assert found.refused == graph.bad
    assert found.builds == graph.builds <= 80
    assert found.kept == sorted(found.kept)


def test_a_refused_value_gives_way_to_the_next_likely_one() -> None:
    graph = Graph({"reshape"}, {"reshape": "reshape", "fc": "fc"})
    found = search([("fc", ["reshape", "fc"])], graph.changes, ["fc", "reshape"], budget=10)
    assert found.kept == ["fc"]


def test_what_the_budget_left_untried_is_said() -> None:
    names = [f"v{i}" for i in range(64)]
    graph = Graph(set(names[::2]), dict.fromkeys(names, "conv"))
    found = search([("conv", [name]) for name in names], graph.changes, names, budget=8)
    assert found.builds <= 8
    assert set(found.kept) | found.refused | found.untried == set(names)
    assert not set(found.kept) & graph.bad


def test_a_trace_tells_types_numbers_and_bits_apart() -> None:
    def trace(ops: Sequence[tuple[str, str]], output: float) -> Trace:
        made = Trace(outputs={"y": np.array([output], np.float32)})
        for op, dtype in ops:
            made.saw(op, np.zeros(1, dtype))
        return made

    plain = trace([("pd_op.conv2d:0", "float32"), ("pd_op.relu_:1", "float32")], 1.0)
    moved = trace([("pd_op.conv2d:1", "float32"), ("pd_op.relu:3", "float32"), ("pd_op.memcpy:2", "float32")], 1.0)
    assert not plain.changed(moved), "numbers, in-place marks and copies do not count"
    assert plain.changed(trace([("pd_op.conv2d:0", "float16"), ("pd_op.relu_:1", "float32")], 1.0)) == {
        "pd_op.conv2d": 1
    }
    assert plain.changed(trace([("pd_op.conv2d:0", "float32")], 1.0)) == {"pd_op.relu": 1}
    bits = trace([("pd_op.conv2d:0", "float32"), ("pd_op.relu_:1", "float32")], np.nextafter(np.float32(1), 2))
    assert plain.changed(bits) == {"": 1}


def test_a_value_is_known_by_its_numbers_in_any_layout() -> None:
    rng = np.random.default_rng(0)
    one, two, three = (rng.standard_normal((2, 8, 4, 4)).astype(np.float32) for _ in range(3))
    base = {name: ("add", array.shape, Print.of(array)) for name, array in {"a": one, "b": two, "c": three}.items()}
    blocked = two.transpose(0, 2, 3, 1).copy() * np.float32(1 + 1e-6)
    other = rng.standard_normal((2, 8, 4, 4)).astype(np.float32)
    seen = [("conv", two.shape, Print.of(blocked)), ("pool", other.shape, Print.of(other))]
    groups, rest = group_by_value(seen, base)
    assert groups == [("conv", ["b"])]
    assert rest == [Changed(tensors=1, names=("a", "c"))], "a tensor that fits nothing may be any value of its size"


def test_of_equal_values_the_one_of_the_same_operator_is_likeliest() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    base = {
        "matmul_0": ("matmul", (3, 4), Print.of(array)), "add_0": ("add", (3, 4), Print.of(array)),
        "reshape_0": ("reshape", (12,), Print.of(array)), "stack_0": ("stack", (3, 4), Print.of(array)),
    }  # fmt: skip
    seen = [("pd_op.matmul:0", (3, 4), Print.of(array)), ("onednn_op.fc:1", (12,), Print.of(array))]
    (_, first), (_, second) = group_by_value(seen, base)[0]
    assert first == ["matmul_0", "stack_0", "add_0", "reshape_0"]
    assert second == ["reshape_0", "stack_0", "add_0", "matmul_0"]


# -- what Paddle raises


@pytest.mark.parametrize(
    ("text", "mode", "kind", "words"),
    [
        (
            "(InvalidArgument) The type of data we are trying to retrieve (float32) does not match the type of data "
            "(bfloat16) currently contained in the container.\n  [Hint: Expected] (at /paddle/x.cc:153)\n"
            "  [operator < elementwise_add > error]",
            "onednn_bf16", BackendUnavailable, ["elementwise_add", "bfloat16_ops"],
        ),
        ("Failed to parse program_desc", "gpu_fp16", ModelError, ["PIR", "legacy"]),
        ("(PreconditionNotMet) Please compile with TensorRT", "trt_fp16", BackendUnavailable, ["CPU mode"]),
        (
            "(InvalidArgument) Cannot get pool2d_0.tmp_0 min/max/opt shape (at /paddle/op_converter.h:322)\n",
            "trt_fp16", BackendError, ["of pool2d_0.tmp_0 between them", "collect_shape_range=True"],
        ),
        (
            "(Unimplemented) ConvertPirAttribute2RuntimeAttribute not support "
            "[pir::ArrayAttribute<pir::DoubleAttribute>]  (at /paddle/onednn_instruction.cc:116)",
            "onednn_fp32", BackendUnavailable, ["resizes (bilinear_interp, nearest_interp)", "cpu_opt"],
        ),
        ("ResourceExhaustedError: Out of memory error on GPU 0.", "gpu_fp32", BackendError, ["smaller batch"]),
        (
            "\n\n----\nC++ Traceback\n----\nError Message Summary:\n----\nInvalidArgumentError: (InvalidArgument) The "
            "input channels differ.\n  [Hint: Expected 3 == 4] (at /paddle/conv.cc:1)\n  [operator < conv2d > error]",
            "cpu_fp32", BackendError, ["The input channels differ", "conv2d"],
        ),
    ],
)  # fmt: skip
def test_what_paddle_raises_becomes_one_line(
    text: str, mode: str, kind: type[PrecisionDebugError], words: list[str]
) -> None:
    with pytest.raises(kind) as caught, our_errors("m.pdmodel", mode=mode):
        raise ValueError(text)
    said = str(caught.value)
    assert "\n" not in said
    assert all(word in said for word in ["m.pdmodel", *words]), said
    assert "/paddle/" not in said


def test_a_pir_program_is_edited_at_its_end_and_left_whole_in_memory(tmp_path: Path) -> None:
    pytest.importorskip("paddle", reason="exporting a PIR model takes Paddle 3")
    from precision_debug_paddle.engine.pir_program import read_pir

    path = paddle_models.pir("encoder")
    program = read_pir(path)
    names = [value.name for value in program.values]
    assert len(set(names)) == len(names)
    for chosen in (names[:3], names):
        edited = json.loads(program.with_fetches(chosen, tmp_path / "edited.json").read_text())
        ops = edited["program"]["regions"][0]["blocks"][0]["ops"]
        fetches = [op for op in ops if op["#"] == "1.fetch"]
        output = sum(bool(value.output) for value in program.values if value.name in chosen)
        assert len(fetches) == 1 + len(chosen) - output
        numbers = [out["%"] for op in ops for out in (op["O"] if isinstance(op["O"], list) else [op["O"]])]
        assert len(set(numbers)) == len(numbers)
    assert read_pir(path).values == program.values


def test_the_search_ends_when_its_time_is_over() -> None:
    names = [f"v{i:03d}" for i in range(300)]
    graph = Graph(set(names[::3]), dict.fromkeys(names, "conv"))
    found = search([("conv", [name]) for name in names], graph.changes, names, 60, lambda: graph.builds >= 3)
    assert graph.builds == 3
    assert set(names) == {*found.kept, *found.refused, *found.untried}


def _trace(*kernels: tuple[str, str], output: float = 1.0) -> Trace:
    return Trace(kernels=Counter(kernels), outputs={"y": np.full(2, output)})


def test_a_kernel_that_only_writes_wider_is_the_same_one_where_the_outputs_are() -> None:
    plain = _trace(("mul", "bfloat16"), ("mul", "bfloat16"), ("fc", "bfloat16"), ("fc", "float32"))
    wider = _trace(("mul", "bfloat16"), ("mul", "float32"), ("fc", "bfloat16"), ("fc", "float32"))
    assert plain.widened(wider) == {"mul"}
    assert not plain.changed(wider)
    wider.outputs = {"y": np.zeros(2)}
    assert plain.changed(wider) == Counter(mul=1)
    mixed = _trace(("mul", "bfloat16"), ("mul", "bfloat16"), ("fc", "float32"), ("fc", "float32"))
    assert not plain.widened(mixed), "which of the two is wider cannot be told"
    assert plain.changed(mixed) == Counter(fc=1)
    assert not wider.widened(plain), "narrower is another arithmetic"


def test_what_was_overwritten_before_it_was_fetched_is_told_from_what_was_not() -> None:
    witness = Witness()
    first, second, padded = np.arange(6.0).reshape(2, 3), np.arange(6.0) + 10, np.arange(4.0)
    witness.saw("onednn_op.fc:0", "a", first)
    witness.saw("pd_op.log_:1", "b", second)
    witness.saw("pd_op.onednn_to_paddle_layout:2", "c", np.ones(3))
    fetched = {"x": first.T, "b": second, "y": second[::-1], "z": padded, "c": np.ones(3)}
    assert witness.overwritten(fetched) == ({"y"}, 2)


def test_a_tensor_with_infinities_fits_none_but_itself() -> None:
    from precision_debug_paddle.engine.fetchable import Print

    one = np.array([1.0, 2.0, np.inf])
    assert Print.of(one).fits(Print.of(one))
    assert not Print.of(one).fits(Print.of(np.array([1.0, 3.0, np.inf])))
    assert not Print.of(one).fits(Print.of(np.array([1.0, 2.0, 3.0])))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "int16", "bool"])
def test_a_fingerprint_is_of_the_numbers_and_not_of_their_type(dtype: str) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    array = (np.random.default_rng(0).standard_normal(2000) * 300).astype(kind)
    wide = array.astype(np.float64)
    assert Print.of(array) == Print.of(wide) == Print.of(wide + 1j)
