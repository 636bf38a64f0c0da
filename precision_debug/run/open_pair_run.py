"""Run samples through both open sides: each run gives its rows, wherever the numbers are computed."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ..events import Saved
from ..numbers.arrays import HostComparer
from ..numbers.told import Tokens
from ..observe.hooks import BorrowedBaseline, CheckTarget, PairObserver, SaveBaseline
from ..observe.lockstep import Meeting, run_both
from ..observe.store import Store
from ..pairing.align import Alignment, strip_iteration
from ..protocols import BaselineStore, Comparer, Feeds, Hook
from ..reasons import Reason
from ..records import Row, RunSpec, TensorMeta, TensorStats
from .journal import Journal
from .plan import Opening
from .side import OpenSide

__all__ = ["HookChain", "OpenPair", "SampleResult", "choose_placement", "place_on_host", "settle_at_end"]


# Where numbers are computed: on the tensors' own device where a backend can, otherwise in the host's memory.

@dataclass(frozen=True, kw_only=True)
class Placement:
    """Both sides, which know of the comparer that they show to.

    store: where the baseline's tensors wait on their own device; None: in the host's memory. why: it is the host's
    memory though a backend compares on its device; "" where there is nothing to tell.
    """

    comparer: Comparer
    baseline: Opening
    target: Opening
    store: BaselineStore | None = None
    why: Reason | str = ""

    @property
    def on_host(self) -> bool:
        """Whether numbers are computed in the host's memory."""
        return isinstance(self.comparer, HostComparer)


def choose_placement(baseline: Opening, target: Opening, *, together: bool) -> Placement:
    """Choose the comparer. together: both runs advance side by side."""
    able = target.capabilities
    if together and baseline.backend is target.backend and able.on_device is not None:
        tools = able.on_device.on_device(baseline.spec, target.spec)
        if isinstance(tools, Reason):
            return place_on_host(baseline, target, tools)
        if tools is not None:
            comparer, store = tools
            return Placement(
                comparer=comparer, baseline=_show_to(comparer, baseline), target=_show_to(comparer, target),
                store=store,
            )  # fmt: skip
    if not together and able.on_device_alone is not None:
        alone = able.on_device_alone.on_device_alone(baseline.spec, target.spec)
        if isinstance(alone, Reason):
            return place_on_host(baseline, target, alone)
        if alone is not None:
            return Placement(comparer=alone, baseline=baseline, target=_show_to(alone, target))
    return place_on_host(baseline, target)


def place_on_host(baseline: Opening, target: Opening, why: Reason | str = "") -> Placement:
    """Compare in the host's memory, whatever the backends can. why: see Placement."""
    return Placement(comparer=HostComparer(), baseline=baseline, target=target, why=why)


@contextlib.contextmanager
def settle_at_end(comparer: Comparer) -> Iterator[None]:
    """What was under way at the end is finished and told, also where a run failed."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            comparer.settle()
        raise
    comparer.settle()


def _show_to(comparer: Comparer, side: Opening) -> Opening:
    return dataclasses.replace(side, comparer=comparer)


# Both sides, open and paired: one sample after the other runs through them, and each run gives its rows.

_QUIETLY = (4 << 20, 1 << 62)
"""Bytes that a run passes on before it wakes the other one: in the host's memory, where both compute at the same time,
and on a device, where they take turns at filling its queue."""


@dataclass(frozen=True, kw_only=True)
class SampleResult:
    """One sample's run. rows: in the target's order. left: of the baseline's tensors that no partner came for.

    ends: the rows, of loops of many iterations those of the first and last ones in place of the merged ones.
    bearers: of those, the ones before the last (see explain.Subject). iterations: how many the tensors of such loops
    have.
    paired_outputs: the target's outputs, under the baseline's names where they have partners.
    moved_bytes: of tensors that waited in the host's memory for want of the card's. tokens: of a language model.
    """

    rows: tuple[Row, ...]
    ends: tuple[Row, ...]
    bearers: frozenset[str]
    iterations: Mapping[str, int]
    base_outputs: Mapping[str, Any]
    target_outputs: Mapping[str, Any]
    paired_outputs: Mapping[str, Any]
    left: Mapping[str, TensorStats]
    spilled_bytes: int
    moved_bytes: int = 0
    tokens: Tokens | None = None


@dataclass(frozen=True, kw_only=True)
class HookChain:
    """Shows each tensor to several hooks in turn; all are ours, and keep nothing of it."""

    hooks: tuple[Hook, ...]
    borrows: ClassVar[bool] = True

    def __call__(self, op_type: str, name: str, tensor: Any, /) -> None:
        for hook in self.hooks:
            hook(op_type, name, tensor)


@dataclass(kw_only=True)
class OpenPair:
    """A baseline and a target that are open together.

    names: of the baseline's tensors that are wanted; None: all. seen: what the last run showed, on each side. merges: a
    loop of many iterations has one row a tensor (see observe.loops); not where a single row decides."""

    spec: RunSpec
    base: OpenSide
    target: OpenSide
    names: frozenset[str] | None
    alignment: Alignment
    place: Placement
    together: bool
    folder: Path
    seen: tuple[tuple[TensorMeta, ...], tuple[TensorMeta, ...]] = ((), ())
    merges: bool = field(init=False)
    _known: frozenset[str] = field(init=False)
    _paired: frozenset[str] = field(init=False)
    _of_target: frozenset[str] | None = field(init=False)

    def __post_init__(self) -> None:
        pairs, spec = self.alignment.pairs, self.spec
        self.merges = not (spec.every_iteration or spec.fail_fast or spec.repeat)
        self.base.merges = self.target.merges = self.merges
        self._known = frozenset(meta.name for meta in self.base.tensors)
        self._paired = frozenset(pair.base.name for pair in pairs.values() if not pair.target.unseen)
        names = self.names
        self._of_target = None if names is None else frozenset(n for n, p in pairs.items() if p.base.name in names)

    @property
    def of_target(self) -> frozenset[str] | None:
        """The target's names that are wanted; None: all."""
        return self._of_target

    def with_totals(self) -> Comparer:
        """Return what compares, from now on with totals that can be merged."""
        comparer: Any = self.place.comparer
        if not hasattr(comparer, "totals"):  # another wheel's: its tensors are compared in the host's memory
            comparer = HostComparer()
        comparer.totals = True
        return comparer  # type: ignore[no-any-return]

    def run(
        self, feeds: Feeds, target_feeds: Feeds, *, journal: Journal | None = None,
        on_row: Callable[[Row], None] | None = None, also: Hook | None = None, comparer: Comparer | None = None,
        observers: Sequence[PairObserver] = (),
    ) -> SampleResult:  # fmt: skip
        """Run one sample on both sides, and compare.

        journal: is told of each tensor and stage. also: a hook that sees the target's tensors too. comparer: in place
        of the run's own. observers: shown each pair that was compared, while it lives.
        """
        place, comparer = self.place, comparer or self.place.comparer
        budget = self.spec.memory_budget

        def told(key: str, stats: TensorStats | None) -> None:
            if journal is not None:
                journal.write(Saved(name=key, stats=stats))

        with Store(folder=self.folder, memory_budget=budget) as store, ThreadPoolExecutor(1) as beside:
            meeting = (
                Meeting(place.store or store, quietly=_QUIETLY[place.store is not None]) if self.together else None
            )
            settings: dict[str, Any] = {"wanted": self._may_have_a_partner, "on_saved": told, "comparer": comparer,
                                        "merge": self.merges}  # fmt: skip
            save = BorrowedBaseline(meeting, beside, **settings) if meeting else SaveBaseline(store=store, **settings)
            check = CheckTarget(
                save,
                tolerance=self.spec.tolerance,
                alignment=self.alignment,
                consume=True,
                on_row=on_row,
                observers=observers,
                merge=self.merges,
            )
            hook: Hook = check if also is None else HookChain(hooks=(check, also))
            try:
                with settle_at_end(comparer):
                    outputs = self._run_sides(save, hook, meeting, feeds, target_feeds, quiet=journal is None)
            finally:  # what was compared till a failure, too
                save.finish_loops()
                rows = check.merged_rows()
            self.seen = save.tensors, check.tensors
            ends, bearers = check.ends()
            left = {**save.stats, **_describe_left_over(place.store or store, comparer)}
            return SampleResult(
                rows=rows, ends=ends, bearers=bearers, iterations=check.iterations,
                base_outputs=outputs[0], target_outputs=outputs[1],
                paired_outputs=_Renamed(outputs[1], {self._baseline_name(name): name for name in outputs[1]}),
                left=left, spilled_bytes=store.spilled_bytes, moved_bytes=getattr(place.store, "spilled_bytes", 0),
            )  # fmt: skip

    def _run_sides(
        self, save: Hook, hook: Hook, meeting: Meeting | None, feeds: Feeds, target_feeds: Feeds, *, quiet: bool
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return both sides' outputs: of one session that is both, of two in lockstep, or of one after the other."""
        if self.base is self.target:  # each tensor meets itself
            outputs = self.target.run(HookChain(hooks=(save, hook)), self.names, feeds, quiet=quiet)
            return outputs, outputs

        def baseline() -> Mapping[str, Any]:
            return self.base.run(save, self.names, feeds, quiet=quiet)

        def target() -> Mapping[str, Any]:
            return self.target.run(hook, self._of_target, target_feeds, quiet=quiet)

        return (baseline(), target()) if meeting is None else run_both(meeting, baseline, target)

    def _baseline_name(self, name: str) -> str:
        pair = self.alignment.pairs.get(name)
        return name if pair is None or pair.target.view else pair.base.name

    def _may_have_a_partner(self, key: str) -> bool:
        return key not in self._known or key in self._paired or strip_iteration(key) in self._paired


class _Renamed(Mapping[str, Any]):
    """Outputs under other names; where they lie on a device, each comes from there when it is asked for.

    names: the new ones to the old ones.
    """

    def __init__(self, outputs: Mapping[str, Any], names: Mapping[str, str]) -> None:
        self._outputs, self._names = outputs, names

    def __getitem__(self, name: str) -> Any:
        return self._outputs[self._names[name]]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _describe_left_over(store: BaselineStore, comparer: Comparer) -> dict[str, TensorStats]:
    """Return numbers of the baseline's tensors that no partner came for; they are freed."""
    found: dict[str, TensorStats] = {}
    for name in store:
        held = store.get(name)
        if held is not None:
            comparer.describe(held, lambda stats, name=name: found.update({name: stats}))  # type: ignore[misc]
    comparer.settle()
    store.close()
    return found
