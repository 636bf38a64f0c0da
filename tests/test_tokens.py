"""A language model's tokens: numbers against a slow oracle, who moves one, and what every format has of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import openpyxl
import pytest

import precision_debug
from precision_debug.cli.summary import format_summary
from precision_debug.numbers.measure_tokens import (
    Roles,
    change_middle_token,
    compute_mean_kl,
    find_roles,
    measure_tokens,
)
from precision_debug.observe.token_errors import split_by_token
from precision_debug.report.model import Report

WORDS, WIDTH, LAYERS = 32, 16, 3


def causal(*, off: int | None = None, looks_ahead: bool = False) -> onnx.ModelProto:
    """Layers that add what a mean over all tokens so far makes. off: the layer whose weight is another one."""
    random = np.random.default_rng(0)
    helper = onnx.helper
    weights: dict[str, Any] = {"embed": random.normal(size=(WORDS, WIDTH)).astype(np.float32)}
    weights["axis"] = np.array([1] if looks_ahead else 1)
    weights["mean"] = np.full((1, 8, 1), 0.2, np.float32)
    nodes = [helper.make_node("Gather", ["embed", "input_ids"], ["h0"], name="/model/embed/Gather")]
    for n in range(LAYERS):
        weight = random.normal(size=(WIDTH, WIDTH)).astype(np.float32) / 4
        weights[f"w{n}"] = weight + 0.05 * weight[::-1] if n == off else weight
        at = f"/model/layers.{n}"
        sums = ("ReduceSum", {"keepdims": 1}) if looks_ahead else ("CumSum", {})
        nodes += [
            helper.make_node(sums[0], [f"h{n}", "axis"], [f"{at}/sum"], name=f"{at}/CumSum", **sums[1]),
            helper.make_node("Mul", [f"{at}/sum", "mean"], [f"{at}/mean"], name=f"{at}/Mul"),
            helper.make_node("Tanh", [f"{at}/mean"], [f"{at}/tanh"], name=f"{at}/Tanh"),
            helper.make_node("MatMul", [f"{at}/tanh", f"w{n}"], [f"{at}/proj"], name=f"{at}/proj/MatMul"),
            helper.make_node("Add", [f"h{n}", f"{at}/proj"], [f"h{n + 1}"], name=f"{at}/Add"),
        ]
    weights["head"] = random.normal(size=(WIDTH, WORDS)).astype(np.float32)
    nodes.append(helper.make_node("MatMul", [f"h{LAYERS}", "head"], ["logits"], name="/lm_head/MatMul"))
    ids = onnx_models.value("input_ids", [2, 8], onnx.TensorProto.INT64)
    return onnx_models.model(nodes, [ids], [onnx_models.value("logits", [2, 8, WORDS])], weights)


IDS = np.random.default_rng(5).integers(0, WORDS, (2, 8))


def oracle(logits: Any, ids: Any) -> Any:
    """Log-probability of each token but the first, one after the other."""
    found = np.empty((len(ids), ids.shape[1] - 1))
    for row, line in enumerate(ids):
        for place in range(1, len(line)):
            scores = [float(value) for value in logits[row, place - 1]]
            most = max(scores)
            found[row, place - 1] = scores[line[place]] - most - math.log(sum(math.exp(s - most) for s in scores))
    return found


def test_numbers_are_those_of_a_slow_oracle() -> None:
    random = np.random.default_rng(1)
    base = random.normal(size=(2, 8, WORDS)).astype(np.float32)
    target = base + 0.1 * random.normal(size=base.shape).astype(np.float32)
    tokens = measure_tokens({"ids": IDS}, base, target, Roles(ids="ids", logits="y", target_logits="y"))
    ours, theirs = oracle(base, IDS), oracle(target, IDS)
    known = [one for one in tokens.tokens if one.id is not None]
    assert [(one.row, one.place) for one in known] == [(r, p) for r in range(2) for p in range(1, 8)]
    assert [one.base for one in known] == pytest.approx(list(ours.ravel()), rel=1e-9)
    assert [one.target for one in known] == pytest.approx(list(theirs.ravel()), rel=1e-9)
    for one in tokens.tokens:
        there, other = base[one.row, one.place - 1], target[one.row, one.place - 1]
        chances = [np.exp(side.astype(np.float64)) / np.exp(side.astype(np.float64)).sum() for side in (there, other)]
        assert one.kl == pytest.approx(float(np.sum(chances[0] * np.log(chances[0] / chances[1]))), rel=1e-6)
        assert (one.chosen, one.target_chosen) == (there.argmax(), other.argmax())
        if one.id is not None:
            assert one.rank == 1 + sorted(there.tolist(), reverse=True).index(there[one.id])
            assert one.target_rank == 1 + sorted(other.tolist(), reverse=True).index(other[one.id])
    for row, line in enumerate(tokens.sequences):
        apart = theirs[row] - ours[row]
        assert line.tokens == 7
        assert line.predictions == 8
        assert line.mean_abs == pytest.approx(np.abs(apart).mean())
        assert line.max_abs == pytest.approx(np.abs(apart).max())
        assert line.ratio == pytest.approx(math.exp(-apart.sum()))
        assert line.max_probability == pytest.approx(np.abs(np.exp(theirs[row]) - np.exp(ours[row])).max())


def test_the_mean_kl_is_that_of_the_tokens() -> None:
    """A search's criterion: of the output with most classes, whatever else there is; a cache holds none."""
    draw = np.random.default_rng(0)
    base, target = draw.normal(size=(2, 5, 40)) * 8, draw.normal(size=(2, 5, 40)) * 8
    ours, theirs = (one - np.log(np.exp(one).sum(-1, keepdims=True)) for one in (base, target))
    keys = draw.normal(size=(2, 5, 16))
    got = compute_mean_kl({"keys": keys, "scores": base}, {"keys": keys, "scores": target})
    assert got == pytest.approx(float((np.exp(ours) * (ours - theirs)).sum(-1).mean()))
    assert compute_mean_kl({"scores": base}, {"scores": base}) == 0
    with pytest.raises(ValueError, match="tokens"):
        compute_mean_kl({"label": np.array([3])}, {"label": np.array([3])})


def test_padding_is_no_token_on_either_end() -> None:
    logits = np.random.default_rng(1).normal(size=(2, 8, WORDS)).astype(np.float32)
    mask = np.ones((2, 8), np.int64)
    mask[0, :3] = 0
    mask[1, 6:] = 0
    feeds = {"input_ids": IDS, "attention_mask": mask}
    roles = find_roles(feeds, {"logits": logits}, {"logits": logits}, {})
    assert roles == Roles(ids="input_ids", logits="logits", target_logits="logits", mask="attention_mask")
    tokens = measure_tokens(feeds, logits, logits, roles)
    assert [(one.row, one.place, one.id is None) for one in tokens.tokens] == [
        *((0, place, place == 8) for place in range(4, 9)), *((1, place, place == 6) for place in range(1, 7)),
    ]  # fmt: skip
    changed = change_middle_token(feeds, roles, WORDS)
    assert changed is not None
    assert [np.flatnonzero(changed[0]["input_ids"][row] != IDS[row]).tolist() for row in range(2)] == [[5], [3]]


def test_what_is_not_finite_is_told_and_never_the_worst() -> None:
    base = np.random.default_rng(1).normal(size=(1, 4, WORDS)).astype(np.float32)
    target = base.copy()
    target[0, 1] = np.nan
    target[0, 2] += np.linspace(0, 1, WORDS, dtype=np.float32)
    tokens = measure_tokens({"i": IDS[:1, :4]}, base, target, Roles(ids="i", logits="y", target_logits="y"))
    assert math.isnan(tokens.tokens[1].target or 0)
    assert tokens.worst == 2
    assert tokens.first_beyond(0.01) == 1
    assert tokens.first_beyond(None) is None


@pytest.mark.parametrize(
    ("shape", "rows", "known"),
    [((2, 8, 16), 2, True), ((16, 5), 2, True), ((2, 4, 8, 16), 2, True), ((4, 8, 16), 1, True), ((8, 16), 1, True),
     ((8, 16), 2, False), ((2, 8, 8, 16), 2, True), ((3, 7, 2), 2, False)],
)  # fmt: skip
def test_axes_of_tokens(shape: tuple[int, ...], rows: int, known: bool) -> None:
    found = split_by_token(np.zeros(shape), rows, 8)
    assert (found is not None) is known
    assert found is None or len(found) == rows * 8


def test_what_a_token_makes_stands_with_it() -> None:
    """[rows, heads, tokens, width]: the values are those of the token, not of the head."""
    array = np.arange(2 * 4 * 8 * 3).reshape(2, 4, 8, 3)
    found = split_by_token(array, 2, 8)
    assert found is not None
    assert found[8 + 5].tolist() == array[1, :, 5].ravel().tolist()


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A model whose second layer has another weight than the baseline's."""
    folder = tmp_path_factory.mktemp("tokens")
    onnx.save(causal(), folder / "good.onnx")
    onnx.save(causal(off=1), folder / "off.onnx")
    return precision_debug.compare(
        folder / "off.onnx", run_mode="ort_fp32", baseline_model=folder / "good.onnx", inputs={"input_ids": IDS}
    )


def test_a_weight_of_one_layer_is_named_for_the_token_that_it_moves(compared: Report) -> None:
    tokens, effects = compared.tokens, compared.token_effects
    assert tokens is not None
    assert effects is not None
    one = tokens.tokens[effects.token]
    assert one.difference == pytest.approx(effects.whole, rel=0.1)
    most = max(effects.layers, key=lambda layer: abs(layer.moved))
    assert most.group.endswith("layers.1")
    assert most.moved == pytest.approx(effects.whole, rel=0.1)
    assert effects.operators[0].name == "/model/layers.1/proj"
    assert effects.operators[0].left == pytest.approx(0, abs=0.1 * abs(effects.whole))


def test_where_every_token_is_as_expected_nobody_is_asked_for_unless_everything_is(tmp_path: Path) -> None:
    """A run of the baseline for each layer: two thirds of what explaining a healthy model took."""
    onnx.save(causal(), tmp_path / "m.onnx")
    for level, told in (("fast", False), ("full", True)):
        report = precision_debug.compare(
            tmp_path / "m.onnx", run_mode="ort_bf16_sim", inputs={"input_ids": IDS}, explain=level
        )
        assert report.explanation is not None
        assert report.explanation.state == "healthy"
        assert report.tokens is not None
        assert (report.token_effects is not None) is told


def test_each_token_has_the_errors_of_the_layers_on_its_way(compared: Report) -> None:
    tokens = compared.tokens
    assert tokens is not None
    assert len(tokens.profiles) == len(tokens.tokens) == 16
    before, after = tokens.tensors.index("/model/layers.1/tanh"), tokens.tensors.index("/model/layers.1/proj")
    for errors in tokens.profiles.values():
        assert not any(errors[: before + 1])
        assert errors[after]


def test_a_model_that_looks_ahead_has_no_tokens(tmp_path: Path) -> None:
    onnx.save(causal(looks_ahead=True), tmp_path / "m.onnx")
    report = precision_debug.compare(tmp_path / "m.onnx", run_mode="ort_fp16", inputs={"input_ids": IDS}, explain="off")
    assert report.tokens is None
    assert report.token_effects is None


def test_the_worst_of_many_samples_has_its_tokens(tmp_path: Path) -> None:
    onnx.save(causal(), tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", input_ids=np.stack([IDS, IDS[::-1]]))
    report = precision_debug.compare(
        tmp_path / "m.onnx", run_mode="ort_fp16", inputs=str(tmp_path / "in.npz"), samples_axis=0, explain="off"
    )
    assert report.tokens is None or report.tokens.sample in {0, 1}


def test_every_format_has_them(compared: Report, tmp_path: Path) -> None:
    tokens = compared.tokens
    assert tokens is not None
    for ending in ("json", "xlsx", "html", "md"):
        compared.save(tmp_path / f"r.{ending}")
    again = Report.load(tmp_path / "r.json")
    assert again.tokens == tokens
    assert again.token_effects == compared.token_effects
    book = openpyxl.load_workbook(tmp_path / "r.xlsx")
    told = list(book["Tokens"].iter_rows(min_row=2, values_only=True))
    assert [line[:3] for line in told] == [(one.row, one.place, one.id) for one in tokens.tokens]
    assert [line[5] for line in told] == pytest.approx([one.difference for one in tokens.tokens])
    assert [line[0] for line in book["Token Layers"].iter_rows(min_row=2, values_only=True)] == list(tokens.tensors)
    assert '"tokens":{"tokens":[[' in (tmp_path / "r.html").read_text(encoding="utf-8")
    labels = [line.label.en for line in format_summary(compared)]
    assert labels.count("tokens") == labels.count("who moves it") == 1
