"""What the difference does to the answer, where that is asked for: top-1 agreement, and accuracy with labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..reasons import Reason, say
from ..records import TensorMeta
from ..safety.untrusted import refuse_special

__all__ = ["ClassScores", "check_labels", "choose_class_counts", "load_labels", "read_labels", "score_classes"]

_HINT = say("labels_form")


@dataclass(frozen=True, kw_only=True)
class ClassScores:
    """shares: from 0 to 1, by name. samples: of how many."""

    shares: Mapping[str, float]
    samples: int


def read_labels(path: str, *, hint: Reason) -> np.ndarray[Any, Any]:
    """Return the array of a .npy file, or the only one of a .npz. Raises InputError."""
    refuse_special(path, InputError)
    try:
        with Path(path).open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded
            if len(loaded.files) != 1:
                raise InputError(say("labels_in_one", count=len(loaded.files)), where=path, hint=hint)
            labels: np.ndarray[Any, Any] = loaded[loaded.files[0]]
            return labels
    except InputError:
        raise
    except Exception as error:  # numpy and zipfile raise many kinds on a damaged file
        what = say("no_labels", error=str(getattr(error, "strerror", None) or error))
        raise InputError(what, where=path, hint=hint) from error


def load_labels(path: str) -> np.ndarray[Any, Any]:
    """Class indices, shape [N], from a .npy file or from the only array of a .npz. Raises InputError."""
    labels = read_labels(path, hint=_HINT)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise InputError(
            f"labels must be one class index a sample, not {labels.dtype} of shape {list(labels.shape)}", where=path
        )
    if not labels.size or labels.min() < 0:
        what = f"class {labels.min()}" if labels.size else "no label"
        raise InputError(f"there is {what} among the labels, whose classes count from 0", where=path, hint=_HINT)
    return labels


def check_labels(labels: np.ndarray[Any, Any], feeds: Mapping[str, Any], outputs: Sequence[TensorMeta] = ()) -> None:
    """Raise InputError where the labels cannot belong to these inputs, or to any of these outputs.

    outputs: what is known of them before the run; without one, only the number of samples is checked, which is the
    first dimension of some input.
    """
    counts = {np.shape(value)[0] for value in feeds.values() if np.ndim(value)}
    if counts and len(labels) not in counts:
        samples = " or ".join(map(str, sorted(counts)))
        what = say("labels_of_samples", count=len(labels), samples=samples)
        raise InputError(what, where="--labels", hint=_HINT)
    shapes = [meta.shape for meta in outputs]
    if not shapes or None in shapes:
        return
    fitting = [shape for shape in shapes if shape is not None and len(shape) == 2 and shape[1] != 1]
    if not fitting:
        raise InputError("no output of shape [N, classes] to hold the labels against", where="--labels")
    most = max((shape[1] if isinstance(shape[1], int) else np.inf for shape in fitting), default=np.inf)
    if labels.max() >= most:
        raise InputError(f"class {labels.max()} among the labels, and the model has {most}", where="--labels")


def choose_class_counts(top1: bool, most: int | None) -> tuple[int, ...]:
    """Return how many first classes are looked at: 1, the number that was asked for, or both."""
    return tuple(sorted({1} & {int(top1)} | ({most} if most else set())))


def score_classes(
    baseline: Mapping[str, Any], target: Mapping[str, Any], labels: np.ndarray[Any, Any] | None = None,
    classes: Sequence[int] = (1,),
) -> ClassScores | None:  # fmt: skip
    """Top-k agreement, and with labels both accuracies; None where no output holds class scores.

    Class scores are the first float output of shape [N, classes] that both sides have, classes > 1. With labels
    their number must be N, else InputError. classes: each k: both sides agree where the same k classes come first,
    in any order; a label is right where it is among them. Of equal scores the first class goes before; NaN is last.
    """
    for name, base in baseline.items():
        other = target.get(name)
        if not (_is_scores(base) and _is_scores(other)) or base.shape != other.shape:  # type: ignore[union-attr]
            continue
        if labels is not None and len(labels) != len(base):
            raise InputError(f"{len(labels)} labels for {len(base)} samples of output '{name}'", where="--labels")
        shares: dict[str, float] = {}
        for k in classes:
            ours, theirs = _find_first_classes(base, k), _find_first_classes(other, k)
            shares[say("score_agreement", k=k)] = float(np.mean((np.sort(ours) == np.sort(theirs)).all(axis=1)))
            if labels is not None:
                wanted = np.reshape(labels, (-1, 1))
                shares[say("score_baseline", what=say("score_accuracy", k=k))] = float(
                    np.mean((ours == wanted).any(axis=1))
                )
                shares[say("score_target", what=say("score_accuracy", k=k))] = float(
                    np.mean((theirs == wanted).any(axis=1))
                )
        return ClassScores(shares=shares, samples=len(base))
    if labels is not None:
        raise InputError("no output of shape [N, classes] to hold the labels against", where="--labels")
    return None


def _find_first_classes(values: Any, k: int) -> np.ndarray[Any, Any]:
    """Return the k first classes of each line, the best first: [N, k], or fewer where there are fewer classes."""
    array = np.asarray(values)
    order: np.ndarray[Any, Any] = (
        np.argmax(array, axis=1)[:, None] if k == 1
        else np.argsort(-array.astype(np.float64), axis=1, kind="stable")[:, :k]
    )  # fmt: skip
    return order


def _is_scores(value: Any) -> bool:
    return (
        isinstance(value, np.ndarray)
        and value.ndim == 2
        and value.shape[0] > 0
        and value.shape[1] > 1
        and value.dtype.kind in "fV"
    )
