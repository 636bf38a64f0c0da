"""What the difference does to the answer: top-1 agreement of both runs, and accuracy where labels are given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .errors import InputError

__all__ = ["load_labels", "score"]


def load_labels(path: str) -> np.ndarray[Any, Any]:
    """Class indices, shape [N], from a .npy file or from the only array of a .npz. Raises InputError."""
    try:
        loaded = np.load(Path(path), allow_pickle=False)
        labels = loaded if isinstance(loaded, np.ndarray) else loaded[loaded.files[0]]
    except (OSError, ValueError, IndexError) as error:
        raise InputError(f"no labels can be read ({error})", where=path, hint="give a .npy of class indices") from error
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise InputError(
            f"labels must be one class index a sample, not {labels.dtype} of shape {list(labels.shape)}", where=path
        )
    return labels


def score(
    baseline: Mapping[str, Any], target: Mapping[str, Any], labels: np.ndarray[Any, Any] | None = None
) -> dict[str, float]:
    """Shares from 0 to 1, by name; empty where no output holds class scores.

    Class scores are the first float output of shape [N, classes] that both sides have, classes > 1. With labels
    their number must be N, else InputError.
    """
    for name, base in baseline.items():
        other = target.get(name)
        if not (_is_scores(base) and _is_scores(other)) or base.shape != other.shape:  # type: ignore[union-attr]
            continue
        ours, theirs = np.argmax(np.asarray(base), axis=1), np.argmax(np.asarray(other), axis=1)
        scores = {"top-1 agreement": float(np.mean(ours == theirs))}
        if labels is not None:
            if len(labels) != len(ours):
                raise InputError(f"{len(labels)} labels for {len(ours)} samples of output '{name}'", where="--labels")
            scores["top-1 accuracy, baseline"] = float(np.mean(ours == labels))
            scores["top-1 accuracy, target"] = float(np.mean(theirs == labels))
        return scores
    if labels is not None:
        raise InputError("no output of shape [N, classes] to hold the labels against", where="--labels")
    return {}


def _is_scores(value: Any) -> bool:
    return (
        isinstance(value, np.ndarray)
        and value.ndim == 2
        and value.shape[0] > 0
        and value.shape[1] > 1
        and value.dtype.kind in "fV"
    )
