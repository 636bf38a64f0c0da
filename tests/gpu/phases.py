"""Where the seconds of a comparison in this process go, by the clock: what is timed costs a microsecond a call."""

from __future__ import annotations

import functools
import gc
import importlib
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

PHASES = {
    "precision_debug.run.open_pair": ("open_both", "align"),
    "precision_debug.run.pipeline": ("explain_sample",),
    "precision_debug.run.open_pair_run:OpenPair": ("run",),
    "precision_debug.run.explaining": ("try_fix",),
    "precision_debug.products.training.step_fix": ("try_scale",),
    "precision_debug.run.samples:OneSample": ("compare", "finish"),
    "precision_debug_torch.session:TorchSession": ("_execute", "_forward", "run_replacing", "operator", "close"),
    "precision_debug_torch.session": ("make_twin", "wrap"),
    "precision_debug_torch.on_device:DeviceComparer": ("compare", "describe", "settle", "_tell"),
    "precision_debug_torch.engine.loans:Loans": ("end",),
    "precision_debug_torch.workbench:TorchWorkbench": ("compare", "squares", "host", "settle", "with_error", "shaken"),
    "precision_debug.numbers.cuda:Event": ("wait",),
    "precision_debug.numbers.cuda:Device": ("pinned", "allocate", "_loaded", "download", "synchronise"),
    "precision_debug.observe.portraits:Portraits": ("look",),
    "precision_debug.observe.lockstep:Meeting": ("_wait",),
    "precision_debug.run.journal:Journal": ("write",),
    "precision_debug.explain.explain_run": (
        "find_first_failing", "list_early_suspects", "run_alone", "measure_inherited_errors", "list_candidates",
        "run_plain_sinks", "carry_errors",
        "rank", "predict_errors", "find_unsteady", "blame_unsteady", "_draw",
    ),
    "precision_debug.products.training.explain_step": (
        "list_early_suspects", "list_sinks", "read_known_sinks", "run_plain_sinks", "predict_step_errors",
        "run_alone", "list_candidates",
        "blame_outputs", "find_lost_updates", "find_first_failing",
    ),
    "precision_debug.explain.culprits": ("find_cause", "list_kept_through", "_find_amplifier"),
    "precision_debug.explain.effects": ("_run", "_measure_effect"),
}  # fmt: skip
"""Module, or module and class, to what is timed. Of what calls itself or another, each has its whole time."""


@contextmanager
def phases() -> Iterator[dict[str, Any]]:
    """Times what runs inside; at its end: name to [calls, seconds], the longest first, both threads' together."""
    spent: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    put_back, told, begun = [], dict[str, Any](), [0.0]

    def collected(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            begun[0] = time.perf_counter()
        else:
            spent[f"collector, generation {info['generation']}"][0] += 1
            spent[f"collector, generation {info['generation']}"][1] += time.perf_counter() - begun[0]

    for place, names in PHASES.items():
        module, _, kind = place.partition(":")
        owner = importlib.import_module(module)
        owner = getattr(owner, kind) if kind else owner
        for name in names:
            plain = getattr(owner, name)
            put_back.append((owner, name, plain))
            setattr(owner, name, _timed(plain, spent[f"{place.rpartition('.')[2]}.{name}"]))
    cuda = torch.cuda.is_available()
    before = torch.cuda.memory_stats() if cuda else {}
    gc.callbacks.append(collected)
    try:
        yield told
    finally:
        gc.callbacks.remove(collected)
        for owner, name, plain in reversed(put_back):
            setattr(owner, name, plain)
        after = torch.cuda.memory_stats() if cuda else {}
        found = sorted(spent.items(), key=lambda pair: -pair[1][1])
        told.update({name: [int(calls), round(seconds, 3)] for name, (calls, seconds) in found if calls})
        for name in ("num_device_alloc", "num_device_free", "num_alloc_retries", "num_sync_all_streams"):
            if name in after:
                told[name] = after[name] - before.get(name, 0)


def _timed(plain: Any, spent: list[float]) -> Any:
    @functools.wraps(plain)
    def call(*given: Any, **more: Any) -> Any:
        begun = time.perf_counter()
        try:
            return plain(*given, **more)
        finally:
            spent[0] += 1
            spent[1] += time.perf_counter() - begun

    return call
