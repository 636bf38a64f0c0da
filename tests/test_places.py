"""Where in a tensor an operator computes something else: the indices outside of which both sides agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import precision_debug
from precision_debug.explain.places import _find_differing, find_place
from precision_debug.reasons import say

LEFT = 1e-5  # of the error's norm that rounding makes
RANDOM = np.random.default_rng(3)
EXACT = RANDOM.normal(size=(2, 9, 8))


def place_of(exact: np.ndarray, wrong: np.ndarray) -> str:
    return str(find_place(exact, wrong, LEFT).get("place", ""))


@pytest.mark.parametrize(
    ("at", "place"),
    [
        (np.s_[1, 6:9], "[1, 6:9, :]"),
        (np.s_[:, :, 0], "[:, :, 0]"),
        (np.s_[:, ::4], "[:, 0:9:4, :]"),
        (np.s_[:, [0, 1, 8]], "[:, (0, 1, 8), :]"),
        (np.s_[0, 3, 5], "[0, 3, 5]"),
    ],
)
def test_a_box_is_found_beside_rounding_elsewhere(at: object, place: str) -> None:
    wrong = EXACT * (1 + 1e-8 * RANDOM.normal(size=EXACT.shape))
    wrong[at] += 1  # type: ignore[index]
    found = find_place(EXACT, wrong, LEFT)
    assert found["place"] == place
    assert (found["differing"], found["elements"]) == (EXACT[at].size, EXACT.size)  # type: ignore[index]


def test_the_edge_of_an_image_is_whole_rows_and_columns() -> None:
    image = RANDOM.normal(size=(1, 3, 12, 10))
    wrong = image.copy()
    wrong[:, :, [0, -1]] += 1
    wrong[..., -1] += 1
    assert place_of(image, wrong) == "[:, :, (0, 11), :], [:, :, :, 9]"


def test_the_number_that_one_side_has_there_is_told() -> None:
    masked = EXACT.copy()
    masked[1, 6:] = 0
    assert find_place(masked, EXACT, LEFT)["base_there"] == "0"
    assert find_place(EXACT, masked, LEFT)["target_there"] == "0"
    assert not find_place(masked, masked + (masked == 0) * EXACT, LEFT).get("target_there")


def test_what_one_side_has_at_most_places_is_told() -> None:
    masked = np.where(RANDOM.random(EXACT.shape) < 0.7, -1e9, EXACT)
    found = find_place(EXACT, masked, LEFT)
    assert (found["target_there"], found["differing"]) == ("-1e+09", int((masked != EXACT).sum()))
    assert found["place"] == say("most_places")
    assert find_place(EXACT, np.full(EXACT.shape, 7.0), LEFT)["place"] == say("all_places")
    assert find_place(EXACT, np.where(EXACT > 1, -1e9, EXACT), LEFT)["place"] == say("some_places")


@pytest.mark.parametrize(("at", "place"), [(np.s_[:, 0], "[:, 0, :]"), (np.s_[1, 6:9], "[1, 6:9, :]")])
def test_the_few_places_at_which_both_agree_are_told(at: object, place: str) -> None:
    wrong = RANDOM.normal(size=EXACT.shape)
    wrong[at] = EXACT[at]  # type: ignore[index]
    found = find_place(EXACT, wrong, LEFT)
    assert (found["place"], found["differing"]) == (say("all_places_but", places=place), EXACT.size - EXACT[at].size)  # type: ignore[index]
    wrong = wrong + 1
    wrong.ravel()[RANDOM.permutation(EXACT.size)[:20]] = EXACT.ravel()[:20]
    assert not find_place(EXACT, wrong, LEFT)


@pytest.mark.parametrize("left", [0.0, 1e-5, 0.1, 0.4])
def test_as_many_of_the_smallest_errors_agree_as_rounding_makes(left: float) -> None:
    """By sorting all of them."""
    for errors in (RANDOM.normal(size=4000), RANDOM.lognormal(0, 9, 4000), RANDOM.integers(0, 3, 4000), np.ones(7)):
        squares = np.square(errors / np.abs(errors).max())
        in_order = np.sort(squares)
        agreeing = int(np.searchsorted(np.cumsum(in_order), left**2 * squares.sum(), side="right"))
        differs = _find_differing(squares, left)
        # equal ones are of one kind, however many of them would be needed
        assert differs.sum() == (squares > in_order[agreeing - 1]).sum() if agreeing else differs.all()


def test_numbers_that_come_out_otherwise_are_told_by_their_bounds() -> None:
    numbers = 9 * EXACT + 5
    found = find_place(np.trunc(numbers), np.floor(numbers), LEFT)
    assert found["within"] == say("numbers_to", most=0.0)
    assert find_place(EXACT, EXACT + (abs(EXACT) > 1.5), LEFT)["within"].startswith("of a size of at least 1.5")


def test_nothing_is_told_of_what_differs_everywhere_or_is_no_number() -> None:
    scattered = EXACT.copy()
    scattered.ravel()[RANDOM.permutation(EXACT.size)[:20]] += 1
    broken = EXACT.copy()
    broken[0, 0, 0] = np.nan
    for wrong in (EXACT + 1, EXACT, scattered, broken):
        assert not find_place(EXACT, wrong, LEFT)
    assert not find_place(np.array(1.0), np.array(2.0), LEFT)


def encode_padded_words() -> tuple[Any, dict[str, Any]]:
    """A module of PyTorch and its input: the mean of all words of an encoder, of which some only fill up."""
    import torch

    class Encoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
            self.encoder = torch.nn.TransformerEncoder(layer, 1)

        def forward(self, words: Any, padded: Any) -> Any:
            return self.encoder(words, src_key_padding_mask=padded).mean(1)

    torch.manual_seed(0)
    words, padded = torch.randn(2, 9, 16), torch.zeros(2, 9, dtype=torch.bool)
    padded[1, 6:] = True
    return Encoder().eval(), {"words": words, "padded": padded}


@pytest.mark.filterwarnings("ignore")  # of the exporter
def test_padded_words_that_one_side_sets_to_zero_are_told_by_their_place(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    module, inputs = encode_padded_words()
    file = str(tmp_path / "encoder.onnx")
    torch.onnx.export(module, tuple(inputs.values()), file, dynamo=False, opset_version=17, input_names=[*inputs])
    modes: Any = {"run_mode": "ort_fp32", "baseline": "torch_fp32"}
    report = precision_debug.compare(file, baseline_model=f"{__file__}:encode_padded_words", **modes)
    assert report.explanation is not None
    culprit, *_ = report.explanation.culprits
    assert culprit.cause == "other_arithmetic"
    assert culprit.evidence["place"] == "[1, 6:9, :]"
    assert culprit.evidence["base_there"] == "0"  # PyTorch's fast path leaves padded words out
