"""Two runs of a live module side by side: each pair of tensors is compared on its own device and then forgotten."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from precision_debug import judge
from precision_debug.align import align
from precision_debug.assemble import complete_table
from precision_debug.machine import machine, now
from precision_debug.meeting import Meeting, run_both
from precision_debug.records import ModelFiles, Row, RunSpec, Side, Status, TensorStats, Tolerance

from . import modes
from .backend import open_model
from .device_compare import compare_on_device, describe_on_device
from .model import example_feeds, from_module

if TYPE_CHECKING:
    from precision_debug.report.model import Report

    from .session import TorchSession

__all__ = ["DeviceStore", "compare_module"]


class DeviceStore:
    """The few tensors whose partner comes in another order, as copies on their own device."""

    def __init__(self) -> None:
        self._held: dict[str, Any] = {}
        self.largest = 0

    def put(self, key: str, tensor: Any) -> None:
        self._held[key] = tensor.clone()
        self.largest = max(self.largest, len(self._held))

    def get(self, key: str) -> Any:
        return self._held.get(key)

    def drop(self, key: str) -> None:
        self._held.pop(key, None)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._held))

    def close(self) -> None:
        self._held.clear()


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
) -> Report:
    """Run a live ``nn.Module`` in two modes in lockstep and compare every tensor.

    inputs: a tensor, a tuple of arguments, or a dict of keyword arguments. level: "op" or "module".
    Memory is the two models plus the tensors of one operator. Raises PrecisionDebugError.
    """
    from precision_debug.report.model import Report

    begun = time.monotonic()
    tolerance = tolerance or Tolerance()
    model = from_module(module, inputs)
    options = {"level": level, "device": device, "seed": seed, "device_tensors": True}
    feeds = example_feeds(model)
    base: Any = open_model(model, baseline, options, [feeds])
    target: Any = open_model(model, run_mode, options, [feeds])
    try:
        rows, stats = _meet(base, target, feeds, tolerance, on_row)
        table = complete_table(rows, align(base.tensors, target.tensors), stats=stats)
        spec = RunSpec(
            model=ModelFiles(), run_mode=run_mode, baseline=baseline, tolerance=tolerance, seed=seed,
            options={"level": level, "device": device}, command="precision_debug_torch.lockstep.compare_module",
        )  # fmt: skip
        return Report(
            rows=table, spec=spec, baseline=_side(baseline, base, model.path),
            target=_side(run_mode, target, model.path), machine=machine(), started=now(),
            seconds=time.monotonic() - begun,
        )  # fmt: skip
    finally:
        base.close()
        target.close()


def _meet(
    base: TorchSession, target: TorchSession, feeds: Mapping[str, Any], tolerance: Tolerance,
    on_row: Callable[[Row], None] | None,
) -> tuple[list[Row], dict[str, TensorStats]]:  # fmt: skip
    ours = {meta.name for meta in base.tensors if not meta.unseen}
    theirs = {meta.name for meta in target.tensors if not meta.unseen}
    kinds = {meta.name: meta.op_type for meta in base.tensors}
    shared = ours & theirs
    store = DeviceStore()
    meeting = Meeting(store)  # type: ignore[arg-type]
    rows: list[Row] = []
    stats: dict[str, TensorStats] = {}

    def offer(op_type: str, name: str, tensor: Any, /) -> None:  # noqa: ARG001
        if name in shared:
            meeting.put(name, tensor)
        else:
            stats[name] = describe_on_device(tensor)

    def check(op_type: str, name: str, tensor: Any, /) -> None:
        partner: Any = meeting.get(name) if name in shared else None
        if partner is None:
            row = Row(
                index=0, op_type=op_type, name=name, status=Status.UNMATCHED, target_name=name, target_op_type=op_type,
                reason="the baseline has no tensor of this name", target=describe_on_device(tensor),
            )  # fmt: skip
        else:
            comparison = compare_on_device(partner, tensor, tolerance)
            meeting.drop(name)
            passes, reason = judge.verdict(comparison, tolerance)
            row = Row(
                index=len(rows), op_type=kinds[name], name=name, status=Status.PASS if passes else Status.FAIL,
                reason=reason, target_name=name, target_op_type=op_type, paired_by="exact", comparison=comparison,
            )  # fmt: skip
        rows.append(row)
        if on_row is not None:
            on_row(row)

    try:
        run_both(meeting, lambda: base.run(feeds, offer), lambda: target.run(feeds, check))
    finally:
        meeting.close()
    return rows, stats


def _side(mode: str, session: TorchSession, path: str) -> Side:
    return Side(
        mode=mode, backend="torch", model=path, versions=session.versions, notes=tuple(session.notes),
        simulation=modes.recipe(mode).mode.simulation, tensors=len(session.tensors),
    )  # fmt: skip
