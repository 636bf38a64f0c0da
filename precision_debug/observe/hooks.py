"""The two hooks: one keeps the baseline's tensors, the other compares the target's with them while they live.

Both have Paddle's signature, ``hook(op_type, tensor_name, tensor)``; for scripts see ``run.script_hooks``.
"""

from __future__ import annotations

import collections
import functools
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, cast

import numpy as np

from ..numbers import judge
from ..numbers.born import infinite
from ..numbers.host import HostComparer
from ..numbers.native import cores_of_each
from ..pairing.align import Alignment, Pair, stem
from ..protocols import BaselineStore, Comparer
from ..reasons import Reason, as_reason, say
from ..records import Comparison, Row, Side, Status, TensorMeta, TensorStats, Tolerance
from .lockstep import Meeting
from .pair_observer import PairObserver
from .store import Store

__all__ = ["BorrowedBaseline", "CheckTarget", "PrecisionWarning", "SaveBaseline"]


_BLOCKED = re.compile(r"onednn|mkldnn", re.IGNORECASE)


_BESIDE = 1 << 20
"""Bytes from which a tensor's statistics are worth another thread."""


class PrecisionWarning(UserWarning):
    """What a script's own hooks were shown cannot be compared as it is."""


class _Names:
    """A name that comes again (a loop, an operator in place) gets "#2", "#3", … on both sides alike."""

    def __init__(self) -> None:
        self._seen: collections.Counter[str] = collections.Counter()
        self._taken: set[str] = set()

    def key(self, name: str) -> str:
        self._seen[name] += 1
        key = name if self._seen[name] == 1 else f"{name}#{self._seen[name]}"
        while key in self._taken:  # a tensor that is itself called "name#2"
            self._seen[name] += 1
            key = f"{name}#{self._seen[name]}"
        self._taken.add(key)
        return key


@functools.lru_cache(maxsize=256)
def _is_blocked(layout: str) -> bool:
    return _BLOCKED.search(layout) is not None


def _distrust(op_type: str, tensor: Any) -> None:
    """Warn where a raw hook shows a tensor in an order of elements that is not the model's."""
    if _is_blocked(str(getattr(tensor, "layout", ""))):
        warnings.warn(
            f"{op_type}: oneDNN holds this tensor in a layout of its own, and a raw hook shows the elements in that "
            "order; compare predictors that precision_debug.watch(config) gives",
            PrecisionWarning, stacklevel=4,
        )  # fmt: skip


_Seen = tuple[str, str, str, tuple[int, ...]]
"""Name, operator type, type and shape of what was shown: of every tensor, so that no more is made of it than that."""


def _meta(seen: _Seen) -> TensorMeta:
    key, op_type, dtype, shape = seen
    return TensorMeta(name=key, op_type=op_type, dtype=dtype, shape=shape)


class SaveBaseline:
    """Keeps what it is shown.

    names: keep only these (None: all). store: where to keep it; in memory by default, freed by ``close``.
    wanted: asked once for each tensor; where it says no, only the tensor's statistics are kept.
    on_saved: called with the key after each tensor. comparer: where numbers are computed; the host's memory by default.
    """

    borrows = True

    def __init__(
        self,
        names: Collection[str] | None = None,
        *,
        store: BaselineStore | None = None,
        wanted: Callable[[str], bool] | None = None,
        on_saved: Callable[[str, TensorStats | None], None] | None = None,
        comparer: Comparer | None = None,
    ) -> None:
        self.comparer: Comparer = comparer or HostComparer()
        self.store: BaselineStore = store if store is not None else Store()
        self.stats: dict[str, TensorStats] = {}
        self.announced: tuple[TensorMeta, ...] = ()
        self.side: Side | None = None
        self._names = None if names is None else frozenset(names)
        self._wanted = wanted
        self._on_saved = on_saved
        self._keys = _Names()
        self._tensors: list[_Seen] = []
        self._types: dict[str, str] = {}
        self._alone: set[str] = set()

    @property
    def tensors(self) -> tuple[TensorMeta, ...]:
        """What was seen, in order."""
        return tuple(map(_meta, self._tensors))

    def op_type(self, key: str, otherwise: str = "") -> str:
        """Type of the operator that produced a tensor."""
        return self._types.get(key, otherwise)

    def announce(self, tensors: Sequence[TensorMeta], side: Side) -> None:
        """What the run that was shown has, and who it is; a watched predictor says it after each run."""
        self.announced, self.side = tuple(tensors), side

    def __iter__(self) -> Iterator[str]:
        """The names of what was seen, in order: what ``assign_mark_names`` takes as its baseline."""
        return iter(key for key, *_ in self._tensors)

    def __call__(self, op_type: str, tensor_name: str, tensor: Any, /) -> None:
        if self._names is not None and tensor_name not in self._names:
            return
        key, value = self._seen(op_type, tensor_name, tensor)
        if key in self._alone:
            self._describe(key, value)
        else:
            self.store.put(key, value)
            self._saved(key)

    def _seen(self, op_type: str, tensor_name: str, tensor: Any) -> tuple[str, Any]:
        """Note a tensor; returns its key, and the tensor as the comparer takes it."""
        op_type, tensor_name = str(op_type), str(tensor_name)  # a number, or None, in a script of somebody's
        _distrust(op_type, tensor)
        value = self.comparer.take(tensor, tensor_name)
        key = self._keys.key(tensor_name)
        dtype, shape = self.comparer.dtype(value), tuple(value.shape)
        self._tensors.append((key, op_type, dtype, shape))
        self._types[key] = op_type
        if self._wanted is not None and not self._wanted(key):
            self._alone.add(key)
        return key, value

    def _describe(self, key: str, value: Any) -> None:
        self.comparer.describe(value, lambda stats: self._described(key, stats))

    def _saved(self, key: str) -> None:
        if self._on_saved is not None:
            self._on_saved(key, None)

    def was_not_kept(self, key: str) -> bool:
        """Whether only the statistics of this tensor are kept."""
        return key in self._alone

    def _described(self, key: str, stats: TensorStats) -> None:
        self.stats[key] = stats
        if self._on_saved is not None:
            self._on_saved(key, stats)

    def close(self) -> None:
        """Free the tensors. What was already compared stays in its AssertClose."""
        self.store.close()


def _nothing() -> None:
    """A tensor that is not kept is given back at once."""


class BorrowedBaseline(SaveBaseline):
    """A SaveBaseline that uses what it is shown while the run goes on, where the run lends it for so long (Borrower).

    meeting: the store. beside: where the statistics of what is not wanted are computed. The others: see SaveBaseline.
    """

    def __init__(self, meeting: Meeting, beside: Executor, **settings: Any) -> None:
        super().__init__(store=meeting, **settings)
        self._meeting, self._beside = meeting, beside

    def borrow(self, op_type: str, tensor_name: str, tensor: Any, /) -> Callable[[], None]:
        """See Borrower."""
        if self._names is not None and tensor_name not in self._names:
            return _nothing
        if isinstance(self.comparer, HostComparer):
            self.comparer.threads = cores_of_each()  # from now on both runs go on meanwhile
        key, value = self._seen(op_type, tensor_name, tensor)
        if key in self._alone:
            if not isinstance(value, np.ndarray) or value.nbytes < _BESIDE:
                return functools.partial(self._describe, key, value)
            described = self._beside.submit(self._describe, key, value)
            return cast("Callable[[], None]", described.result)
        take_back = self._meeting.lend(key, value)

        def finish() -> None:
            take_back()
            self._saved(key)

        return finish


class CheckTarget:
    """Compares what it is shown with the baseline and keeps one row a tensor.

    tolerance, or atol and rtol: when a tensor passes (see Tolerance).
    alignment: the pairing where both sides' tensors are known beforehand; None pairs by name.
    consume: free each baseline tensor once it was compared.
    on_row: called with each row as it is finished. observers: shown each pair that was compared, while it lives.
    """

    borrows = True

    def __init__(
        self,
        baseline: SaveBaseline,
        *,
        atol: float | None = None,
        rtol: float | None = None,
        tolerance: Tolerance | None = None,
        alignment: Alignment | None = None,
        consume: bool = False,
        on_row: Callable[[Row], None] | None = None,
        observers: Sequence[PairObserver] = (),
    ) -> None:
        usual = tolerance or Tolerance()
        self.tolerance = Tolerance(
            atol=usual.atol if atol is None else atol,
            rtol=usual.rtol if rtol is None else rtol,
            rule=usual.rule,
            check_error_stat=usual.check_error_stat,
            quantile=usual.quantile,
            equal_nan=usual.equal_nan,
        )
        self.baseline = baseline
        self.announced: tuple[TensorMeta, ...] = ()
        self.side: Side | None = None
        self._alignment = alignment
        metas = alignment.target if alignment is not None else ()
        self._part_of = {meta.name: part for meta in metas if (part := meta.extra.get("Part of"))}
        self._baseline_names = {meta.name for meta in alignment.baseline} if alignment is not None else frozenset()
        self._consume = consume
        self._on_row = on_row
        self._observers = tuple(observers)
        self._keys = _Names()
        self._tensors: list[_Seen] = []
        self._rows: list[Row] = []

    @property
    def rows(self) -> tuple[Row, ...]:
        """The finished rows, in the target's order."""
        return tuple(self._rows)

    @property
    def tensors(self) -> tuple[TensorMeta, ...]:
        """What was seen, in order."""
        return tuple(map(_meta, self._tensors))

    def __call__(self, op_type: str, tensor_name: str, tensor: Any, /) -> None:
        op_type, tensor_name = str(op_type), str(tensor_name)  # a number, or None, in a script of somebody's
        _distrust(op_type, tensor)
        comparer = self.baseline.comparer
        value = comparer.take(tensor, tensor_name)
        key = self._keys.key(tensor_name)
        dtype, shape = comparer.dtype(value), tuple(value.shape)
        self._tensors.append((key, op_type, dtype, shape))
        pair = self._alignment.partner(key) if self._alignment is not None else None
        base_name, how = (pair.base.name, pair.how) if pair is not None else (key, "exact")
        rival = self._alignment.rivals.get(key) if self._alignment is not None else None
        known = self._alignment is None or pair is not None
        base = self.baseline.store.get(base_name) if known and rival is None else None
        if base is None:
            reason = self._why_alone(key, base_name, rival)
            comparer.describe(value, lambda stats: self._unmatched(op_type, key, reason, stats))
            return

        def compared(numbers: Comparison) -> None:
            row = self._compared(op_type, key, base_name, how, pair, numbers)
            if getattr(comparer, "keeps_pairs", False):  # else they may be overwritten by now
                for observer in self._observers:
                    observer.look(row, base, value)

        comparer.compare(base, value, self.tolerance, compared)
        if self._consume:
            self.baseline.store.drop(base_name)

    def announce(self, tensors: Sequence[TensorMeta], side: Side) -> None:
        """See SaveBaseline."""
        self.announced, self.side = tuple(tensors), side

    def _why_alone(self, key: str, base_name: str, rival: str | None) -> Reason:
        refused = self._alignment.refused.get(key) if self._alignment is not None else None
        if refused is not None:
            return as_reason(refused)
        if rival is not None:
            return say("taken", rival=rival)
        if self._alignment is not None and self._alignment.partner(key) is None:
            # nothing here may depend on how far the baseline has come
            if key in self._part_of:
                return say("baseline_does", part=self._part_of[key])
            if stem(key) in self._baseline_names:
                return say("baseline_stems")
        elif self.baseline.was_not_kept(base_name):
            return say("not_kept")
        return say("no_such_name")

    def _unmatched(self, op_type: str, key: str, reason: Reason, stats: TensorStats) -> None:
        self._keep(
            Row(
                index=len(self._rows), op_type=op_type, name=key, status=Status.UNMATCHED, reason=reason,
                target_name=key, target_op_type=op_type, target=stats,
            )
        )  # fmt: skip

    def _compared(
        self, op_type: str, key: str, base_name: str, how: str, pair: Pair | None, comparison: Comparison
    ) -> Row:
        base_type = pair.base.op_type if pair is not None else self.baseline.op_type(base_name, op_type)
        row = Row(
            index=len(self._rows),
            op_type=base_type,
            name=base_name,
            status=Status.PASS,
            target_name=key,
            target_op_type=op_type,
            paired_by=how,
            view=pair.target.view if pair is not None else "",
            comparison=infinite(comparison),
        )
        row = judge.judged(row, self.tolerance)
        self._keep(row)
        return row

    def _keep(self, row: Row) -> None:
        self._rows.append(row)
        if self._on_row is not None:
            self._on_row(row)
