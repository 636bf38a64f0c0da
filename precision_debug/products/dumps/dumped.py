"""A dump of another tool's tensors becomes a recording of a model's: paired, in its layouts, in its order."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ... import recording, registry
from ...errors import RecordingError, UsageError
from ...feeds import FeedSet, find_channel_transpose
from ...numbers.narrowing import narrow_type, round_values
from ...observe.store import Store
from ...pairing.arrangement import arrange, list_arrangements
from ...protocols import Feeds, Session
from ...reasons import Reason, say
from ...reasons.ways import way
from ...records import InputMeta, TensorMeta
from ...run.content import digest_model
from ...run.plan import Opening, RunPlan
from .dump import Dump, DumpedTensor, is_dump, read_dump
from .match_tensors import TensorMatches, match_tensors
from .pairing.found_tensor import FoundTensor
from .pairing.likeness import match_names

__all__ = ["RecordedDump", "is_dump", "read_dumped_inputs", "record_dump", "with_recorded_dumps"]

Array = np.ndarray[Any, Any]

_LARGE = 256
"""Elements of a tensor whose values tell a type."""

_FEW, _LEVELS, _OFF = 64, 16, 0.02
"""Elements and levels from which even steps are no accident, and how far, in steps, a value may be off."""


@dataclass(frozen=True, kw_only=True)
class RecordedDump:
    """precision: what the values show that the tool computed in; "" where they do not."""

    dump: Dump
    matches: TensorMatches
    tensors: Sequence[TensorMeta]
    precision: str = ""


def with_recorded_dumps(plan: RunPlan, feed_set: FeedSet, folder: Path) -> RunPlan:
    """Return a plan whose dumps are recordings. Raises PrecisionDebugError."""
    sides = {"baseline": plan.baseline, "target": plan.target}
    if not any(side is not None and side.dump for side in sides.values()):
        return plan
    live = next((side for side in sides.values() if side is not None and side.backend is not None), None)
    if live is None:
        raise UsageError(say("no_model_to_pair"), where="--baseline", hint=say("dumps_first"))
    fed = feed_set if live is plan.baseline else feed_set.for_target()
    made: dict[str, Opening | None] = dict(sides)
    for role, side in sides.items():
        if side is not None and side.dump:
            path = folder / f"dump-{role}"
            record_dump(side.recording, live, fed.feeds[0], path)
            made[role] = dataclasses.replace(side, recording=str(path), dump=False, called=side.recording)
    target = made["target"]
    assert target is not None
    return dataclasses.replace(plan, baseline=made["baseline"], target=target)


def record_dump(
    path: str, live: Opening, feeds: Feeds, folder: Path | None, *, dtype: str = "float32"
) -> RecordedDump:  # fmt: skip
    """Pair a dump's tensors with a model's, and keep them as a recording. live: how the model would run here.

    folder: None: nothing is written. dtype: of raw bytes. Raises PrecisionDebugError.
    """
    dump = read_dump(path, dtype)
    others = [
        FoundTensor(
            name=one.name, value=np.asarray(one.value), shape=one.shape, op_type=one.op_type, parts=one.parts,
            ranks=one.ranks,
        )
        for one in dump.tensors
    ]  # fmt: skip
    with contextlib.ExitStack() as stack:
        session = stack.enter_context(contextlib.closing(_open_in_float32(live, feeds)))
        store = stack.enter_context(Store(folder=folder.parent if folder is not None else None, memory_budget=1 << 31))
        matches = match_tensors(session, feeds, others, store)
        metas = tuple(session.tensors)
    if not matches.found:
        raise RecordingError(
            f"none of its {len(others)} tensors is one of {live.spec.model.path}", where=path,
            hint="feed the model what the dump was made from: --inputs FILE",
        )  # fmt: skip
    named = matches.tensors
    values = {
        match.base: arrange(_to_real_array(named[name].forms[match.form].value), match.arrangement)
        for name, match in matches.found.items()
    }
    precision = _find_shown_precision(_list_telling_tensors(dump, matches, metas))
    recorded = RecordedDump(dump=dump, matches=matches, tensors=metas, precision=precision)
    if folder is not None:
        _write(recorded, live, feeds, values, folder)
    return recorded


def read_dumped_inputs(path: str, metas: Sequence[InputMeta]) -> dict[str, Array]:
    """Return the model's inputs, where the dump holds all of them under their names; {} otherwise. Raises
    RecordingError."""
    dump = read_dump(path)
    by_name = {one.name: one for one in dump.tensors}
    found: dict[str, Array] = {}
    names = match_names(list(by_name), [meta.name for meta in metas])
    there = {base: name for name, (base, _) in names.items()}
    for meta in metas:
        one = by_name.get(there.get(meta.name, ""))
        if one is None or meta.shape is None:
            return {}
        value = np.asarray(one.value)
        if not all(isinstance(size, int) for size in meta.shape):  # open sizes are what the dump has
            if one.shape is None or len(one.shape) != len(meta.shape):
                return {}
            axes = find_channel_transpose(one.shape, meta)
            found[meta.name] = np.ascontiguousarray(value.transpose(axes)) if axes else value
            continue
        wanted = tuple(int(size) for size in meta.shape)
        fits = list_arrangements(one.shape, wanted) if value.size == int(np.prod(wanted)) else []
        if len(fits) != 1:
            return {}
        found[meta.name] = arrange(value, fits[0])
    return found


def _open_in_float32(live: Opening, feeds: Feeds) -> Session:
    assert live.mode is not None
    backend, mode = registry.find(live.spec.model, live.mode.baseline)
    return backend.open(dataclasses.replace(live.spec, mode=mode.name), [feeds])


def _to_real_array(value: Array) -> Array:
    return value.astype(np.float32) if value.dtype == np.float64 else value


def _write(recorded: RecordedDump, live: Opening, feeds: Feeds, values: Mapping[str, Array], folder: Path) -> None:
    dump, matches = recorded.dump, recorded.matches
    by_base = {match.base: (name, match) for name, match in matches.found.items()}
    files = {one.name: one for one in dump.tensors}
    listed = []
    with recording.RecordingWriter(folder) as writer:
        for meta in recorded.tensors:
            if meta.name not in by_base:
                listed.append(dataclasses.replace(meta, unseen=meta.unseen or say("not_in_dump")))
                continue
            name, match = by_base[meta.name]
            file, value = files[matches.tensors[name].of or name], values[meta.name]
            writer(meta.op_type, meta.name, value)
            held = "int8" if recorded.precision == "int8" and are_on_steps(value) else file.held
            quantised = held in {"int8", "uint8"} and value.dtype.kind == "f"
            listed.append(
                dataclasses.replace(
                    meta, dtype=held if quantised else str(value.dtype),
                    view=way("dequantised") if quantised else meta.view,
                    extra={"Dump": file.file, "Found by": match.how},
                )
            )  # fmt: skip
        ends = {meta.name: values[meta.name] for meta in recorded.tensors if meta.is_output and meta.name in values}
        writer.finish(
            mode="dump", precision=recorded.precision, model=live.spec.model.path, feeds=feeds, tensors=listed,
            digest=digest_model(live.spec.model),
            backend=live.backend.name if live.backend is not None else "", outputs=ends, notes=_list_notes(recorded),
        )  # fmt: skip


def _list_notes(recorded: RecordedDump) -> list[Reason]:
    dump, matches = recorded.dump, recorded.matches
    notes = [
        say(
            "dump_paired", path=dump.path, count=len(matches.found), all=len(matches.tensors),
            missing=len(matches.missing), layout=f" ({dump.layout})" if dump.layout else "",
        )
    ]  # fmt: skip
    left = [name for name in matches.tensors if name not in matches.found]
    if left:
        notes.append(say("dump_left", count=len(left), some=", ".join(left[:4])))
    if dump.skipped:
        file, why = next(iter(dump.skipped.items()))
        notes.append(say("dump_skipped", count=len(dump.skipped), file=file, why=why))
    if recorded.precision:
        notes.append(say("dump_precision", precision=recorded.precision))
    return notes


def _list_telling_tensors(
    dump: Dump, matches: TensorMatches, metas: Sequence[TensorMeta]
) -> list[DumpedTensor]:
    """Return the tensors that the tool computed and that belong to the model.

    What it was fed shows nothing of how it computes: an image of 256 greys lies on even steps, and so does what an
    operator only picks from it. Nor does what has no number."""
    paired = {matches.tensors[name].of or name: match.base for name, match in matches.found.items()}
    fed = {meta.name for meta in metas if meta.op_type == "Input"}
    given = [np.unique(np.asarray(one.value)) for one in dump.tensors if paired.get(one.name) in fed]

    def computed(one: DumpedTensor) -> bool:
        levels = np.unique(np.asarray(one.value).reshape(-1)[: 1 << 16])
        if paired.get(one.name, one.name) in fed or one.name not in paired:
            return False
        some = levels.dtype.kind not in "fV" or bool((np.isfinite(levels) & (levels != 0)).any())
        return some and not any(np.isin(levels, values).all() for values in given)

    return [one for one in dump.tensors if computed(one)]


def _find_shown_precision(tensors: Sequence[DumpedTensor]) -> str:
    """Return the precision that the values of the float tensors show.

    It is what they can only come from: the even steps of INT8 (in a third of them, as what an operator adds up inside
    is wide), or in most of them FP16's or BF16's values."""
    telling = [one for one in tensors if one.held in {"int8", "uint8"} or one.value.size >= _FEW]
    if sum(one.held in {"int8", "uint8"} or are_on_steps(one.value) for one in telling) * 3 > len(telling):
        return "int8"
    large = [np.asarray(one.value).reshape(-1)[: 1 << 16] for one in tensors if one.value.size >= _LARGE]
    floats = [value.astype(np.float32) for value in large if value.dtype.kind == "f" or "float" in value.dtype.name]
    for name in ("bfloat16", "float16"):
        kept = [np.array_equal(one, round_values(one, narrow_type(name)), equal_nan=True) for one in floats]
        if floats and sum(kept) > 0.9 * len(kept):
            return name
    return ""


def are_on_steps(value: Any) -> bool:
    """Return whether all values are whole multiples of one step apart, 255 of them at most, as quantised to 8 bits."""
    flat = np.asarray(value).reshape(-1)
    if flat.dtype.kind != "f" or flat.size < _FEW:
        return False
    levels = np.unique(flat[: 1 << 20].astype(np.float64))
    if levels.size < _LEVELS or not np.isfinite(levels).all():
        return False
    span = levels[-1] - levels[0]
    gaps = np.diff(levels)
    step = float(gaps[gaps > span / 1024].min(initial=span))  # a text's rounding makes two levels of one
    places = (levels - levels[0]) / step
    step = span / max(1.0, float(np.rint(places[-1])))  # of the whole span, which knows it better than one gap does
    places = (levels - levels[0]) / step
    return bool(np.rint(places[-1]) <= 255 and np.abs(places - np.rint(places)).max() < _OFF)
