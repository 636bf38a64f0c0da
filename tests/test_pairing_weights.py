"""Weights of a model in a file that was exported from it: folded, turned, joined and rounded ones are no fault."""

from __future__ import annotations

import re

import numpy as np
import pytest
from approval import holds_approved

from precision_debug.errors import InputError
from precision_debug.feeds import match_inputs
from precision_debug.pairing.weights import compare_weights, summarise_weights
from precision_debug.protocols import Layer
from precision_debug.records import InputMeta

RANDOM = np.random.default_rng(5)


def array(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


CONV, BIAS, SCALE, SHIFT, MEAN = array(8, 4, 3, 3), array(8), array(8), array(8), array(8)
VARIANCE = array(8) ** 2 + 0.5
OWN = {"c.weight": CONV, "c.bias": BIAS, "n.weight": SCALE, "n.bias": SHIFT, "n.mean": MEAN, "n.var": VARIANCE}
LAYERS = (
    Layer(parameters={"weight": "c.weight", "bias": "c.bias"}),
    Layer(
        parameters={"weight": "n.weight", "bias": "n.bias", "mean": "n.mean", "variance": "n.var"},
        attributes={"epsilon": 1e-5},
    ),
)


def folded(epsilon: float = 1e-5) -> tuple[np.ndarray, np.ndarray]:
    factor = SCALE.astype(np.float64) / np.sqrt(VARIANCE.astype(np.float64) + epsilon)
    bias = SHIFT + (BIAS - MEAN) * factor
    return (CONV * factor[:, None, None, None]).astype(np.float32), bias.astype(np.float32)


def states(own: dict[str, np.ndarray], file: dict[str, np.ndarray], layers: tuple[Layer, ...] = ()) -> dict[str, str]:
    return {weight.name: weight.state for weight in compare_weights(own, file, layers)}


@pytest.mark.parametrize("names", [("c.weight", "c.bias"), ("onnx::Conv_1", "onnx::Conv_2")])
def test_a_convolution_folded_with_its_batch_norm_is_no_old_export_whatever_its_name(names: tuple[str, str]) -> None:
    file = dict(zip(names, folded(), strict=True))
    found = compare_weights(OWN, file, LAYERS)
    assert {weight.state for weight in found} == {"folded"}
    assert len(summarise_weights(found, "m.onnx")) == 1


def test_a_scaled_weight_is_not_excused_by_a_batch_norm_that_does_not_give_this_scale() -> None:
    file = {"c.weight": CONV * np.float32(1.5), "c.bias": BIAS}
    assert states(OWN, file, LAYERS)["c.weight"] == "differs"
    lines = summarise_weights(compare_weights(OWN, file, LAYERS), "m.onnx")
    assert "c.weight is scaled by 1.5" in lines[1]
    assert states({"c.weight": CONV}, file)["c.weight"] == "differs"


@pytest.mark.parametrize("own", [1e-5, 1e-3])
def test_an_epsilon_too_small_to_move_a_value_is_told_from_a_folded_convolution(own: float) -> None:
    layers = (LAYERS[0], Layer(parameters=LAYERS[1].parameters, attributes={"epsilon": own}))
    for other in (own, 1e-6):
        weight, bias = folded(other)
        found = compare_weights(OWN, {"c.weight": weight, "c.bias": bias}, layers)
        assert ({w.state for w in found} == {"folded"}) == (other == own)
        if other != own:
            said = summarise_weights(found, "m.onnx", agrees=True)[1]
            told = re.search(r"folded with epsilon (\S+), but the layer's is (\S+?)\)", said)
            assert told is not None, said
            assert float(told[1]) == pytest.approx(other, rel=0.3)
            assert float(told[2]) == own


def test_a_right_fold_in_float32_arithmetic_is_not_accused_of_another_epsilon() -> None:
    for scale in (1e-3, 1.0, 1e3):
        for seed in range(20):
            random = np.random.default_rng(seed)
            weight, gain, mean, shift = (random.standard_normal(s).astype(np.float32) for s in ((8, 4, 3, 3), 8, 8, 8))
            variance = (random.random(8) * scale).astype(np.float32)
            own = {"c.weight": weight, "n.weight": gain, "n.bias": shift, "n.mean": mean, "n.var": variance}
            factor = gain / np.sqrt(variance + np.float32(1e-5))
            file = {"w": weight * factor[:, None, None, None], "b": shift - mean * factor}
            layers = (Layer(parameters={"weight": "c.weight"}), LAYERS[1])
            assert {w.state for w in compare_weights(own, file, layers)} == {"folded"}, (scale, seed)


def test_another_epsilon_in_a_folded_convolution_is_told_from_its_numbers() -> None:
    weight, bias = folded(1e-2)
    found = {item.name: item for item in compare_weights(OWN, {"c.weight": weight, "c.bias": bias}, LAYERS)}
    assert found["c.weight"].state == "differs"
    assert holds_approved(found["c.weight"].said)


def test_parts_of_a_joined_weight_turned_ones_and_rounded_ones_are_found() -> None:
    q, k, v = array(6, 6), array(4, 6), array(4, 6)
    joined = np.concatenate([q, k, v])
    for whole in (joined, np.ascontiguousarray(joined.T)):
        assert set(states({"q": q, "k": k, "v": v}, {"qkv": whole}).values()) == {"joined"}
    assert states({"q": q}, {"x": q.T.copy()}) == {"q": "transposed"}
    assert states({"q": q}, {"x": q.astype(np.float16)}) == {"q": "rounded"}
    other = joined.copy()
    other[3, 2] += 1
    assert states({"q": q}, {"qkv": other}) == {"q": "absent"}


def test_one_element_and_a_swap_are_named() -> None:
    one, two = array(6, 6), array(6, 6)
    wrong = one.copy()
    wrong[2, 3] = 9
    lines = summarise_weights(compare_weights({"a": one}, {"a": wrong}), "m.onnx")
    assert holds_approved(lines[1])
    lines = summarise_weights(compare_weights({"a": one, "b": two}, {"a": one * 2, "b": two}), "m.onnx", agrees=True)
    assert "yet the outputs agree" in lines[1]
    assert "old export" not in lines[1]


def meta(name: str, *shape: int, dtype: str = "float32") -> InputMeta:
    return InputMeta(name=name, dtype=dtype, shape=shape)


def test_inputs_are_matched_by_rename_then_name_then_shape_and_type_then_order() -> None:
    image, words = meta("image", 1, 3, 8, 8), meta("words", 1, 9, dtype="int64")
    names, notes = match_inputs([image, words], [meta("x.1", 1, 9, dtype="int64"), meta("x.2", 1, 3, 8, 8)], {})
    assert names == {"x.1": "words", "x.2": "image"}
    assert len(notes) == 2
    alike = [meta("a", 4), meta("b", 4)]
    names, notes = match_inputs(alike, [meta("p", 4), meta("q", 4)], {})
    assert names == {"p": "a", "q": "b"}
    assert all("order" in note for note in notes)
    names, notes = match_inputs(alike, [meta("p", 4), meta("q", 4)], {"p": "b"})
    assert names == {"p": "b", "q": "a"}
    assert match_inputs(alike, alike, {}) == ({"a": "a", "b": "b"}, ())
    names, notes = match_inputs([image, words], [meta("image", 1, 3, 8, 8)], {})
    assert names == {"image": "image"}
    assert "no input words" in notes[0]
    with pytest.raises(InputError, match="'p' has no counterpart") as caught:
        match_inputs([image], [meta("image", 1, 3, 8, 8), meta("p", 7)], {})
    assert "--rename p=" in str(caught.value)
