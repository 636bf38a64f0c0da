"""Two runs of a live module side by side: each pair of tensors is compared on its own device and then forgotten."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from precision_debug.numbers.host import HostComparer
from precision_debug.observe.hooks import SaveBaseline
from precision_debug.observe.lockstep import Meeting, run_both
from precision_debug.observe.store import Store
from precision_debug.pairing.align import Alignment, align
from precision_debug.reasons import say
from precision_debug.records import ModelFiles, Row, RunSpec, Side, Tolerance
from precision_debug.report.complete_table import complete_table
from precision_debug.report.machine import machine, now
from precision_debug.run.script_hooks import AssertClose

from . import modes
from .backend import on_device, open_model
from .engine.pairing import pair
from .model import example_feeds, from_module

if TYPE_CHECKING:
    from precision_debug.protocols import BaselineStore, Comparer, Feeds
    from precision_debug.report.model import Report

    from .session import TorchSession

__all__ = ["compare_module"]


def compare_module(
    module: Any,
    inputs: Any,
    *,
    run_mode: str,
    baseline: str = "torch_fp32",
    level: str = "op",
    device: str = "",
    seed: int = 0,
    tolerance: Tolerance | None = None,
    on_row: Callable[[Row], None] | None = None,
    compare_on: str = "",
) -> Report:
    """Run a live ``nn.Module`` in two modes in lockstep and compare every tensor.

    inputs: a tensor, a tuple of arguments, or a dict of keyword arguments. level: "op" or "module".
    compare_on: "device" or "host"; "" compares on a GPU where the runs are, and otherwise in the host's memory.
    Memory is the two models plus the tensors of a few operators. Raises PrecisionDebugError.
    """
    from precision_debug.report.model import Report

    begun = time.monotonic()
    tolerance = tolerance or Tolerance()
    model = from_module(module, inputs)
    options: dict[str, Any] = {"level": level, "device": device, "seed": seed, "compare_on": compare_on}
    comparer: Comparer
    store: BaselineStore
    tools = on_device(options, options)
    comparer, store = tools if tools is not None else (HostComparer(), Store())
    opening = {**options, "comparer": comparer} if tools is not None else options
    feeds = example_feeds(model)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_old_objects_at_rest())
        base: Any = open_model(model, baseline, opening, [feeds])
        stack.callback(base.close)
        target: Any = open_model(model, run_mode, opening, [feeds])
        stack.callback(target.close)
        with ThreadPoolExecutor(1) as beside:  # each list takes a run of its own
            listed = beside.submit(lambda: base.tensors)
            theirs = target.tensors
        alignment = align(listed.result(), theirs, matches=pair(listed.result(), theirs))
        alone = base.alone or target.alone
        run = _one_after_the_other if alone else _meet
        save, check = run(base, target, feeds, alignment, tolerance, on_row, comparer, store)
        if not alone and (base.alone or target.alone):
            alone = base.alone or target.alone
            alignment = align(base.tensors, target.tensors, matches=pair(base.tensors, target.tensors))
            save, check = _one_after_the_other(base, target, feeds, alignment, tolerance, on_row, comparer, store)
        table = complete_table(check.rows, alignment, stats=save.stats)
        spec = RunSpec(
            model=ModelFiles(), run_mode=run_mode, baseline=baseline, tolerance=tolerance, seed=seed,
            options=options, command="precision_debug_torch.lockstep.compare_module",
        )  # fmt: skip
        return Report(
            rows=table, spec=spec, baseline=_side(baseline, base, model.path),
            target=_side(run_mode, target, model.path), machine=machine(), started=now(),
            seconds=time.monotonic() - begun, notes=(say("apart", why=alone),) if alone else (),
        )  # fmt: skip


def _meet(
    base: TorchSession, target: TorchSession, feeds: Feeds, alignment: Alignment, tolerance: Tolerance,
    on_row: Callable[[Row], None] | None, comparer: Comparer, store: BaselineStore,
) -> tuple[SaveBaseline, AssertClose]:  # fmt: skip
    paired = {pair.base.name for pair in alignment.pairs.values() if not pair.target.unseen}
    meeting = Meeting(store)
    save = SaveBaseline(store=meeting, wanted=paired.__contains__, comparer=comparer)
    check = AssertClose(save, tolerance=tolerance, alignment=alignment, consume=True, on_row=on_row)
    try:
        run_both(meeting, lambda: base.run(feeds, save), lambda: target.run(feeds, check))
        comparer.settle()
    finally:
        meeting.close()
    return save, check


def _one_after_the_other(
    base: TorchSession, target: TorchSession, feeds: Feeds, alignment: Alignment, tolerance: Tolerance,
    on_row: Callable[[Row], None] | None, comparer: Comparer, store: BaselineStore,
) -> tuple[SaveBaseline, AssertClose]:  # fmt: skip
    paired = {pair.base.name for pair in alignment.pairs.values() if not pair.target.unseen}
    save = SaveBaseline(store=store, wanted=paired.__contains__, comparer=comparer)
    check = AssertClose(save, tolerance=tolerance, alignment=alignment, consume=True, on_row=on_row)
    try:
        base.run(feeds, save)
        target.run(feeds, check)
        comparer.settle()
    finally:
        store.close()
    return save, check


@contextlib.contextmanager
def _old_objects_at_rest() -> Iterator[None]:
    """What the process had before is no garbage of ours: without this, looking for some among it takes a third of the
    time."""
    if gc.get_freeze_count():  # somebody else's
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _side(mode: str, session: TorchSession, path: str) -> Side:
    return Side(
        mode=mode, backend="torch", model=path, versions=session.versions, notes=tuple(session.notes),
        simulation=modes.recipe(mode).mode.simulation, tensors=len(session.tensors),
    )  # fmt: skip
