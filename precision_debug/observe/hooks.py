"""The two hooks: one keeps the baseline's tensors, the other compares the target's with them while they live.

Both have Paddle's signature, ``hook(op_type, tensor_name, tensor)``; for scripts see ``run.script_hooks``.
"""

from __future__ import annotations

import collections
import functools
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol, cast

import numpy as np

from ..errors import UsageError
from ..numbers import judge
from ..numbers.arrays import HostComparer, MapValues
from ..numbers.born import make_infinite
from ..numbers.cores import count_cores_of_each
from ..numbers.merged import drop_totals
from ..numbers.slices import with_slices
from ..pairing.align import Alignment, Pair, strip_iteration
from ..pairing.packed import find_packed_parts
from ..protocols import BaselineStore, Comparer
from ..reasons import Reason, as_reason, say
from ..reasons.ways import NO_WAY, Way, way
from ..records import Comparison, Row, Side, Status, TensorMeta, TensorStats, Tolerance
from ..settings.options import check_tolerance
from .lockstep import Meeting
from .loops import ENDS, KEPT, MergedRows, MergedStats, Turns
from .store import Store

__all__ = ["BorrowedBaseline", "CheckTarget", "PairObserver", "PrecisionWarning", "SaveBaseline"]


# What may look at a pair of tensors right after it was compared.

class PairObserver(Protocol):
    """An observer that is shown every pair of a run, in the order in which the results come."""

    def look(self, row: Row, base: Any, target: Any, /) -> None:
        """A finished row and its two tensors, in the host's memory or on a device; both may be overwritten later."""


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


def _warn_of_layout(op_type: str, tensor: Any) -> None:
    """Warn where a raw hook shows a tensor in an order of elements that is not the model's."""
    if _is_blocked(str(getattr(tensor, "layout", ""))):
        warnings.warn(
            f"{op_type}: oneDNN holds this tensor in a layout of its own, and a raw hook shows the elements in that "
            "order; compare predictors that precision_debug.watch(config) gives",
            PrecisionWarning, stacklevel=4,
        )  # fmt: skip


_Seen = tuple[str, str, str, tuple[int, ...]]
"""Name, operator type, type and shape of what was shown: of every tensor, so that no more is made of it than that."""


def _make_meta(seen: _Seen) -> TensorMeta:
    key, op_type, dtype, shape = seen
    return TensorMeta(name=key, op_type=op_type, dtype=dtype, shape=shape)


class SaveBaseline:
    """A hook that keeps the baseline's tensors.

    names: keep only these (None: all). store: where to keep it; in memory by default, freed by ``close``.
    wanted: asked once for each tensor; where it says no, only the tensor's statistics are kept.
    on_saved: called with the key after each tensor. comparer: where numbers are computed; the host's memory by default.
    merge: of a loop of many iterations note the first ones alone, and tell numbers over all of them (see loops).
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
        merge: bool = False,
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
        self.map_keys: dict[str, tuple[Any, ...]] = {}
        self._alone: set[str] = set()
        self._turns = Turns() if merge else None
        self._late: set[str] = set()
        self._merged = MergedStats()

    @property
    def tensors(self) -> tuple[TensorMeta, ...]:
        """What was seen, in order."""
        return tuple(map(_make_meta, self._tensors))

    def op_type(self, key: str, otherwise: str = "") -> str:
        """Return the type of the operator that produced a tensor."""
        return self._types.get(key, otherwise)

    def announce(self, tensors: Sequence[TensorMeta], side: Side) -> None:
        """What the run that was shown has, and who it is; a watched predictor says it after each run."""
        self.announced, self.side = tuple(tensors), side

    def __iter__(self) -> Iterator[str]:
        """Yield the names of what was seen, in order: what ``assign_mark_names`` takes as its baseline."""
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
        value = self.comparer.take(tensor, tensor_name)
        _warn_of_layout(op_type, tensor)
        key = self._keys.key(tensor_name)
        if self._turns is not None and self._turns.of(key)[1] >= KEPT:
            self._late.add(key)
        else:
            self._tensors.append((key, op_type, self.comparer.dtype(value), tuple(value.shape)))
        self._types[key] = op_type
        if isinstance(value, MapValues):
            self.map_keys[key] = value.keys
        if self._wanted is not None and not self._wanted(key):
            self._alone.add(key)
        return key, value

    def _describe(self, key: str, value: Any) -> None:
        self.comparer.describe(value, lambda stats: self._described(key, stats))

    def _saved(self, key: str) -> None:
        if self._on_saved is not None and key not in self._late:
            self._on_saved(key, None)

    def was_not_kept(self, key: str) -> bool:
        """Return whether only the statistics of this tensor are kept."""
        return key in self._alone

    def _described(self, key: str, stats: TensorStats) -> None:
        if self._turns is not None and (name := strip_iteration(key)) != key:
            self._merged.add(name, self._types.get(key, ""), stats)
            if key in self._late:
                return
        self.stats[key] = stats
        if self._on_saved is not None:
            self._on_saved(key, stats)

    def finish_loops(self) -> None:
        """Tell the numbers of tensors with many iterations, once the run is over."""
        for name, _, _, stats in self._merged:
            self.stats[name] = stats
            if self._on_saved is not None:
                self._on_saved(name, stats)

    def close(self) -> None:
        """Free the tensors. What was already compared stays in its AssertClose."""
        self.store.close()


def _do_nothing() -> None:
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
            return _do_nothing
        if isinstance(self.comparer, HostComparer):
            self.comparer.threads = count_cores_of_each()  # from now on both runs go on meanwhile
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


def _find_parts(
    pair: Pair | None, alignment: Alignment | None, baseline: Sequence[TensorMeta], target: Sequence[TensorMeta]
) -> Mapping[int, tuple[int, ...]]:
    """Return what an output was put together from, as the baseline's graph has it; else as the target's. Both: as
    seen."""
    if pair is None or alignment is None:
        return {}
    sides = (pair.base.name, alignment.baseline, baseline), (pair.target.name, alignment.target, target)
    for name, metas, seen in sides:
        shapes: dict[str, Any] = {meta.name: meta.shape for meta in seen}
        if found := find_packed_parts(name, {meta.name: meta for meta in metas}, shapes.get):
            return found
    return {}


def _under_keys(value: Any, keys: Sequence[Any] | None) -> tuple[Any, Mapping[str, str]]:
    """Return a tensor as it is compared, of a map's values those under the baseline's keys; and what its row tells."""
    if not isinstance(value, MapValues) or keys is None:
        return value, {}
    return value.under(keys), judge.tell_keys(keys, value.keys) if tuple(keys) != value.keys else {}


class CheckTarget:
    """A hook that compares what it is shown with the baseline and keeps one row a tensor.

    tolerance, or atol and rtol: when a tensor passes (see Tolerance).
    alignment: the pairing where both sides' tensors are known beforehand; None pairs by name.
    consume: free each baseline tensor once it was compared.
    on_row: called with each row as it is finished. observers: shown each pair that was compared, while it lives; of a
    loop of many iterations the first ones. merge: of such a loop, one row a tensor and one of the worst iteration.
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
        merge: bool = False,
    ) -> None:
        given: object = baseline
        if not isinstance(given, SaveBaseline):
            said = say("no_saved_baseline", kind=type(given).__name__)
            raise UsageError(said, where="baseline", hint=say("pass_the_hook"))
        usual = check_tolerance(Tolerance() if tolerance is None else tolerance)
        self.tolerance = check_tolerance(
            Tolerance(
                atol=usual.atol if atol is None else atol,
                rtol=usual.rtol if rtol is None else rtol,
                rule=usual.rule,
                check_error_stat=usual.check_error_stat,
                quantile=usual.quantile,
                equal_nan=usual.equal_nan,
                given=usual.given,
            )
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
        able = merge and isinstance(baseline.comparer, HostComparer)
        self._turns = Turns() if able else None
        self._merged = MergedRows(self.tolerance)

    @property
    def rows(self) -> tuple[Row, ...]:
        """The finished rows, in the target's order; of a loop of many iterations the first ones, too."""
        return tuple(self._rows)

    @property
    def tensors(self) -> tuple[TensorMeta, ...]:
        """What was seen, in order."""
        return tuple(map(_make_meta, self._tensors))

    def __call__(self, op_type: str, tensor_name: str, tensor: Any, /) -> None:
        op_type, tensor_name = str(op_type), str(tensor_name)  # a number, or None, in a script of somebody's
        comparer = self.baseline.comparer
        value = comparer.take(tensor, tensor_name)
        _warn_of_layout(op_type, tensor)
        key = self._keys.key(tensor_name)
        looped, before = self._turns.of(key) if self._turns is not None else ("", 0)
        if before < KEPT:
            self._tensors.append((key, op_type, comparer.dtype(value), tuple(value.shape)))
        elif self._added(looped, key[len(looped) :], value):
            return
        pair = self._alignment.partner(key) if self._alignment is not None else None
        base_name, how = (pair.base.name, pair.how) if pair is not None else (key, way("exact"))
        rival = self._alignment.rivals.get(key) if self._alignment is not None else None
        known = self._alignment is None or pair is not None
        base = self.baseline.store.get(base_name) if known and rival is None else None
        value, extra = _under_keys(value, self.baseline.map_keys.get(base_name))
        if base is None:
            reason = self._why_alone(key, base_name, rival)

            def described(stats: TensorStats) -> None:
                if looped:
                    self._merged.alone.add(looped, op_type, stats)
                if before < KEPT:
                    self._unmatched(op_type, key, reason, stats)

            comparer.describe(value, described)
            return

        def compared(numbers: Comparison) -> None:
            row = self._compared(self._row_of(op_type, key, base_name, how, pair).replace(extra=extra), numbers)
            if getattr(comparer, "keeps_pairs", False):  # else they may be overwritten by now
                for observer in self._observers:
                    observer.look(row, base, value)

        if looped and isinstance(comparer, HostComparer):
            over = self._merged.of(looped, lambda: self._row_of(op_type, key, base_name, how, pair))
            found = over.add_in_full(key[len(looped) + 1 :], base, value, comparer.threads)
            if before < KEPT:
                compared(found if comparer.totals else drop_totals(found))
        else:
            # of a training step outputs are gradients, whose parts differ in size as they please
            ends = pair is not None and not pair.base.phase and (pair.base.is_output or pair.target.is_output)
            sliced = functools.partial(self._sliced, pair, base, value, compared)
            comparer.compare(base, value, self.tolerance, sliced if ends else compared)
        if self._consume:
            self.baseline.store.drop(base_name)

    def _added(self, name: str, turn: str, value: Any) -> bool:
        """Return whether one of many iterations was taken in, as those before it; turn: "@17"."""
        before, comparer = self._merged.get(name), self.baseline.comparer
        if before is None or not isinstance(comparer, HostComparer):
            return False
        if self._alignment is not None and name + turn in self._alignment.pairs:
            return False
        base = self.baseline.store.get(before[0] + turn)
        if base is None:
            return False
        before[1].add(turn[1:], base, value, comparer.threads)
        if self._consume:
            self.baseline.store.drop(before[0] + turn)
        if self._merged.due:
            self._tell_merged()
        return True

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
            if strip_iteration(key) in self._baseline_names:
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

    def _row_of(self, op_type: str, key: str, base_name: str, how: Way, pair: Pair | None) -> Row:
        """Of a pair, without numbers."""
        base = pair.base if pair is not None else None
        return Row(
            index=len(self._rows),
            op_type=self.baseline.op_type(base_name, op_type) if base is None else base.given_by or base.op_type,
            name=base_name,
            status=Status.PASS,
            target_name=key,
            target_op_type=op_type,
            paired_by=how,
            view=pair.target.view if pair is not None else NO_WAY,
        )

    def _sliced(
        self, pair: Pair | None, base: Any, value: Any, then: Callable[[Comparison], None], found: Comparison
    ) -> None:
        """Go on with the numbers of a final output, those of its slices among them where both sides are here."""
        if isinstance(base, np.ndarray) and isinstance(value, np.ndarray):
            found = with_slices(
                found, base, value, _find_parts(pair, self._alignment, self.baseline.tensors, self.tensors)
            )
        then(found)

    def _compared(self, row: Row, comparison: Comparison) -> Row:
        row = judge.judge_row(row.replace(comparison=make_infinite(comparison)), self.tolerance)
        self._keep(row)
        return row

    def _judged(self, row: Row) -> Row:
        if row.comparison is None:
            return row.replace(reason=self._why_alone(row.target_name, row.name, None))
        found = row.comparison if getattr(self.baseline.comparer, "totals", False) else drop_totals(row.comparison)
        return judge.judge_row(row.replace(comparison=make_infinite(found)), self.tolerance)

    def _tell_merged(self) -> tuple[Row, ...]:
        """Return the merged rows of loops of many iterations, so far, and show each to ``on_row``."""
        found = []
        for row in map(self._judged, self._merged.rows()):
            found.append(row)
            if self._on_row is not None:
                self._on_row(row)
        return tuple(found)

    def merged_rows(self) -> tuple[Row, ...]:
        """Return all finished rows, of loops of many iterations the merged ones in place of the first; once the run is
        over.

        ``on_row`` is called with what was merged.
        """
        merged = self._tell_merged()
        many = {row.target_name for row in merged}
        return (*(row for row in self._rows if strip_iteration(row.target_name) not in many), *merged)

    def ends(self) -> tuple[tuple[Row, ...], frozenset[str]]:
        """Return all finished rows; of loops of many iterations those of the first and the last ones.

        Where some lie in between, the names of what the last begin with are returned, too."""
        count: collections.Counter[str] = collections.Counter()
        gaps, found = self._merged.gaps, []
        for row in self._rows:
            name = strip_iteration(row.name)
            count[name] += 1
            if name not in gaps or count[name] <= ENDS:
                found.append(row)
        known = {row.name for row in found}
        last = [self._judged(row) for row in self._merged.last() if row.name not in known]
        before = {strip_iteration(row.name): row.name for row in reversed(last) if strip_iteration(row.name) in gaps}
        return (*found, *last), frozenset(before.values())

    @property
    def iterations(self) -> Mapping[str, int]:
        """How many iterations the tensors had of which ``ends`` leaves some out, by the baseline's name."""
        return self._merged.gaps

    def _keep(self, row: Row) -> None:
        self._rows.append(row)
        if self._on_row is not None:
            self._on_row(row)
