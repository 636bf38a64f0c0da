"""Each side once more on the same inputs: what gives something else then is known by one of its answers alone.

The sessions are those that were compared, still open, and show their tensors to nobody: it costs at most one run of
each. Two outputs that are equal bit for bit say that the run repeats; of others the size counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from ..errors import PrecisionDebugError
from ..explain import allowed_by
from ..numbers import compare
from ..numbers.arrays import as_array
from ..onnx.without_weights import draws_numbers
from ..protocols import Feeds, Hook
from ..records import Comparison, Doubt, RunSpec
from .open_pair_run import OpenPair, SampleResult
from .repetition import distance
from .side import DRAWS, OpenSide, guarded

__all__ = ["run_again"]

_MOST = 1 << 30
"""Elements of all compared tensors up to which a side is run again; beyond, one run is most of the work."""


def run_again(spec: RunSpec, both: OpenPair, ran: SampleResult, feeds: Feeds, target_feeds: Feeds) -> None:
    """Doubt a side whose outputs differ from those that it gave, by more than the verdict allows.

    ran: what the sides gave, and still hold. Where both sides agreed to the bit, any difference is too much.
    """
    work = sum(row.comparison.base.elements for row in ran.rows if row.comparison is not None)
    if spec.run_once or work > _MOST:
        return
    finals = [row.comparison for row in ran.rows if row.is_output and row.comparison is not None]
    judge = _Judge(spec, both.target.opening.precision, exact=bool(finals) and all(one.identical for one in finals))
    alone = both.base is both.target
    sides: list[tuple[OpenSide, Mapping[str, Any], Feeds, Collection[str] | None, Hook]] = []
    if not alone:
        hook: Hook = _Lent() if both.together else _Unseen()
        sides.append((both.base, ran.base_outputs, feeds, both.names, hook))
    sides.append((both.target, ran.target_outputs, feeds if alone else target_feeds,
                  both.names if alone else both.of_target, _Unseen()))  # fmt: skip
    for side, outputs, fed, names, unseen in sides:
        if _may(side):
            side.doubt(_differing(side, outputs, fed, names, unseen, judge))


def _may(side: OpenSide) -> bool:
    """Return whether a second run says anything.

    Not of a recording, of a step, which goes on from the one before, or of what draws numbers, which is known."""
    if side.opening.backend is None or side.draws or any(meta.phase for meta in side.tensors):
        return False
    file = side.opening.spec.model.model_file
    if not file.lower().endswith(".onnx"):
        return not any(DRAWS.match(meta.op_type) for meta in side.tensors)
    try:
        return not draws_numbers(file, seeded=True)  # whose generator goes on in a second run of one session
    except PrecisionDebugError:
        return True


def _differing(
    side: OpenSide, outputs: Mapping[str, Any], feeds: Feeds, names: Collection[str] | None, unseen: Hook,
    judge: _Judge,
) -> list[Doubt]:  # fmt: skip
    label = side.opening.label
    before = {name: _copied(value, name) for name, value in outputs.items()}  # an engine may use its memory again
    try:
        after = guarded(label, lambda: side.session.run(feeds, unseen, names))
    except PrecisionDebugError as error:
        return [Doubt(code="fails_again", values={"mode": label, "detail": str(error)})]
    worst, size = "", 0.0
    for name, one in before.items():
        if one is None or name not in after:
            continue
        found = compare(one, as_array(after[name], name=name), judge.tolerance)
        if not judge.allows(found) and distance(found) >= size:
            worst, size = name, distance(found)
    return [Doubt(code="differs_from_itself", values={"mode": label, "name": worst, "between": size})] if worst else []


class _Judge:
    """What the verdict allows between two answers. exact: nothing."""

    def __init__(self, spec: RunSpec, precision: str, *, exact: bool) -> None:
        self.tolerance, self._exact = spec.tolerance, exact
        self._allowed = None if spec.tolerance.given else allowed_by(None, precision)

    def allows(self, found: Comparison) -> bool:
        if found.identical or not found.base.elements:
            return True
        if not found.shapes_match or found.apart:
            return False
        if self._exact:
            return not distance(found) and not found.max_abs  # 0 and -0
        return not found.mismatched if self._allowed is None else distance(found) <= self._allowed


def _copied(value: Any, name: str) -> Any:
    """None of what is no array."""
    array = as_array(value, name=name)
    return np.array(array) if array.dtype != object else None


class _Unseen:
    """A hook that looks at nothing, so that the run goes where the compared one went."""

    borrows = True

    def __call__(self, _op_type: str, _name: str, _tensor: Any, /) -> None:
        pass


class _Lent(_Unseen):
    """The same for a session that lends its tensors until another run has compared them."""

    def borrow(self, _op_type: str, _name: str, _tensor: Any, /) -> Callable[[], None]:
        return _nothing


def _nothing() -> None:
    pass
