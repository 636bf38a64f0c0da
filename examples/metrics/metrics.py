"""Metrics of one's own, for ``--metric examples/metrics/metrics.py:NAME``: one sample's outputs and labels to a number.

outputs: by name, as arrays. labels: this sample's entry of ``--labels``, None without them. A number is averaged over
the samples; (sum, count) is divided at the end; what NAME_of_all takes is kept of every sample. More is
better, but where NAME_less_is_better says otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Outputs = dict[str, np.ndarray]


def top1(outputs: Outputs, labels: Any) -> tuple[int, int]:
    """How often the first class is the label: of the first output of shape [N, classes]."""
    scores = next(value for value in outputs.values() if value.ndim == 2)
    return int((scores.argmax(axis=1) == np.atleast_1d(labels)).sum()), len(scores)


def wer(outputs: Outputs, labels: Any) -> tuple[int, int]:
    """Word error rate of token ids, greedily decoded as CTC: [1, T, tokens], 0 is blank. labels: ids, 0 beyond."""
    best = next(iter(outputs.values()))[0].argmax(axis=-1)
    said = [int(token) for place, token in enumerate(best) if token and (not place or token != best[place - 1])]
    wanted = [int(token) for token in np.ravel(labels) if token]
    return distance(said, wanted), len(wanted)


wer_less_is_better = True


def distance(said: list[int], wanted: list[int]) -> int:
    """Insertions, deletions and substitutions that make one of the other (Levenshtein)."""
    row = list(range(len(wanted) + 1))
    for number, word in enumerate(said, 1):
        before, row[0] = row[0], number
        for place, other in enumerate(wanted, 1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (word != other))
    return row[-1]


def cosine(outputs: Outputs, labels: Any) -> float:
    """Cosine between an embedding and the one that it should be: of the first output."""
    found, wanted = np.ravel(next(iter(outputs.values()))).astype(np.float64), np.ravel(labels).astype(np.float64)
    return float(found @ wanted / (np.linalg.norm(found) * np.linalg.norm(wanted)))


def mean_average_precision(outputs: Outputs, labels: Any) -> dict[str, list[list[float]]]:
    """What mAP needs of one image. outputs: "boxes" [K, 4] (corners), "scores" [K], "classes" [K].

    labels: [M, 5], a class and its box a line; class -1 is none.
    """
    found = [
        [float(kind), float(score), *map(float, box)]
        for kind, score, box in zip(
            outputs["classes"].ravel(), outputs["scores"].ravel(), outputs["boxes"].reshape(-1, 4), strict=True
        )
    ]
    return {"found": found, "wanted": [list(map(float, line)) for line in np.reshape(labels, (-1, 5)) if line[0] >= 0]}


def mean_average_precision_of_all(images: list[dict[str, list[list[float]]]]) -> float:
    """mAP at an overlap of 0.5: the mean over classes of the area below precision against recall (all points)."""
    kinds = sorted({line[0] for image in images for line in image["wanted"]})
    return float(np.mean([_average_precision(images, kind) for kind in kinds])) if kinds else 0.0


def _average_precision(images: list[dict[str, list[list[float]]]], kind: float) -> float:
    wanted = {n: [line[1:] for line in image["wanted"] if line[0] == kind] for n, image in enumerate(images)}
    total = sum(map(len, wanted.values()))
    ranked = sorted(
        ((line[1], n, line[2:]) for n, image in enumerate(images) for line in image["found"] if line[0] == kind),
        key=lambda item: -item[0],
    )
    taken: set[tuple[int, int]] = set()
    right = []
    for _, n, box in ranked:
        overlaps = [(_overlap(box, other), place) for place, other in enumerate(wanted[n]) if (n, place) not in taken]
        best, place = max(overlaps, default=(0.0, -1))
        right.append(best >= 0.5)
        if right[-1]:
            taken.add((n, place))
    hits = np.cumsum(right)
    precision = hits / np.arange(1, len(hits) + 1)
    recall = hits / total
    best_from_here = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * best_from_here))


def _overlap(one: list[float], other: list[float]) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return width * height / (sum(areas) - width * height)
