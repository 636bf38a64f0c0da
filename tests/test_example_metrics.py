"""The example metrics against values worked out by hand."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import precision_debug


@pytest.fixture(scope="module")
def metrics() -> ModuleType:
    path = Path(__file__).resolve().parents[1] / "examples/metrics/metrics.py"
    spec = importlib.util.spec_from_file_location("example_metrics", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_words(metrics: ModuleType) -> None:
    tokens = np.zeros((1, 7, 5), np.float32)
    for place, token in enumerate([1, 1, 0, 2, 3, 0, 3]):  # "1 2 3 3"
        tokens[0, place, token] = 1
    assert metrics.wer({"y": tokens}, np.array([1, 2, 3, 3, 0])) == (0, 4)
    assert metrics.wer({"y": tokens}, np.array([1, 4, 3])) == (2, 3)
    assert metrics.distance([], [1, 2]) == 2


def test_answers_and_embeddings(metrics: ModuleType) -> None:
    scores = {"y": np.array([[0.1, 0.9], [0.8, 0.2]])}
    assert metrics.top1(scores, np.array([1, 1])) == (1, 2)
    assert metrics.top1({"y": scores["y"][:1]}, np.int64(1)) == (1, 1)
    assert metrics.cosine({"y": np.array([[3.0, 4.0]])}, np.array([4.0, 3.0])) == pytest.approx(24 / 25)


def test_boxes(metrics: ModuleType) -> None:
    box, near, far = [0, 0, 10, 10], [0, 0, 10, 8], [50, 50, 60, 60]

    def image(lines: list[tuple[int, float, list[int]]], wanted: list[list[int]]) -> dict[str, list[list[float]]]:
        outputs = {
            "classes": np.array([line[0] for line in lines]), "scores": np.array([line[1] for line in lines]),
            "boxes": np.array([line[2] for line in lines], np.float32).reshape(-1, 4),
        }  # fmt: skip
        found: dict[str, list[list[float]]] = metrics.mean_average_precision(outputs, np.array(wanted))
        return found

    right = image([(0, 0.9, near)], [[0, *box], [-1, 0, 0, 0, 0]])
    assert metrics.mean_average_precision_of_all([right]) == 1.0
    wrong_first = image([(0, 0.9, far), (0, 0.8, near), (0, 0.7, box)], [[0, *box]])
    assert metrics.mean_average_precision_of_all([wrong_first]) == pytest.approx(0.5), "the second time is not a hit"
    missed = image([], [[1, *box]])
    assert metrics.mean_average_precision_of_all([right, missed]) == pytest.approx(0.5), "two classes"
    assert metrics.mean_average_precision_of_all([image([], [[-1, 0, 0, 0, 0]])]) == 0.0


def test_one_of_them_in_a_run(root: Path) -> None:
    digits = root / "examples/digits"
    report = precision_debug.compare(
        digits / "digits.onnx", run_mode="ort_int8", inputs=digits / "test_images.npz", samples_axis=0, sample="0:20",
        labels=digits / "test_labels.npy", metric=f"{root / 'examples/metrics/metrics.py'}:top1", explain="off",
    )  # fmt: skip
    assert report.scores.keys() == {"top1, baseline", "top1, target"}
    assert report.scores["top1, baseline"] == 1.0
