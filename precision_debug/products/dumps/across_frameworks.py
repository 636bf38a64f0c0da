"""Across frameworks: pair the tensors of a model and of a file that was exported from it, and find where it is wrong.

Both are run once in float32, on the same input, before the comparison proper: there, values that belong together are
equal to rounding, whatever the target's own arithmetic does to them later. A recorded baseline needs no framework: its
values are those of the recording.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ... import recording, registry
from ...numbers.arrays import as_array
from ...observe.store import Store
from ...pairing.weights import compare_weights, summarise_weights
from ...protocols import (
    Backend,
    Exporter,
    Feeds,
    Layer,
    LayerKeeper,
    Matches,
    Operators,
    Replacer,
    Session,
)
from ...reasons import Reason, say
from ...reasons.ways import Way, way
from ...records import SessionSpec, TensorMeta
from ...run.plan import Opening, find_maker
from .pairing.attributes import list_attribute_notes
from .pairing.fingerprint import Fingerprint, pair_by_value, take
from .pairing.graph import BaseGraph, TargetGraph
from .pairing.likeness import Names, agree
from .pairing.repairs import Causes
from .pairing.same_layer import pair_layers
from .pairing.verdict import describe_coverage, find_swapped_inputs, list_fault_notes, note_swapped_inputs, pair_outputs
from .pairing.walk import FoundPairs, walk

__all__ = ["match_values"]

_NEAR = 1e-3
"""How far two float32 runs of a whole model may be apart where an element is taken for equal."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Run:
    """One side's run: what its session lists, the values that a hook saw, and with what operators were built."""

    metas: tuple[TensorMeta, ...]
    values: _Kept
    built: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    def prints(self) -> list[tuple[TensorMeta, Fingerprint]]:
        return _prints(self.metas, self.values)


class _Kept(Mapping[str, Any]):
    """The arrays of a store, as a mapping."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __getitem__(self, name: str) -> Any:
        value = self.store.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        return name in self.store

    def __iter__(self) -> Iterator[str]:
        return iter(self.store)

    def __len__(self) -> int:
        return len(self.store)


def match_values(
    first: Opening, second: Opening, feeds: Feeds, *, target_feeds: Feeds | None = None,
    folder: str | Path | None = None, memory_budget: int | None = None,
) -> tuple[Matches, tuple[Reason, ...]]:  # fmt: skip
    """Return the pairs, and what to say of them and of the exported weights.

    target_feeds: the same values under the target's own input names. folder, memory_budget: see Store. Raises
    PrecisionDebugError.
    """
    maker, path = find_maker(first), second.spec.model.path
    assert maker is not None
    able = maker.capabilities
    exporter, keeper = able.exporter, able.layer_keeper
    assert exporter is not None
    assert second.mode is not None
    reference = second.mode.baseline
    backend, _ = registry.find(second.spec.model, reference)
    with contextlib.ExitStack() as stack:

        def kept() -> Store:
            return stack.enter_context(Store(folder=folder, memory_budget=memory_budget))

        if first.recording:
            replayed = recording.open_recording(first.recording)
            weights: Mapping[str, Any] = replayed.weights()
            known = replayed.mode
            layers = keeper.layers_named(weights) if keeper is not None else {}
            ours = _run(replayed, feeds, kept())
        else:
            assert first.backend is not None
            assert first.mode is not None
            known = first.mode.baseline
            weights = able.weight_keeper.weights(first.spec) if able.weight_keeper is not None else {}
            layers = keeper.layers(first.spec) if keeper is not None else {}
            ours = _run(_open_side(first.backend, first.spec, known, feeds), feeds, kept(), built=True)
        fed = feeds if target_feeds is None else target_feeds
        theirs = _run(_open_side(backend, second.spec, reference, fed), fed, kept())
        runner = backend.capabilities.operator_runner
        operators = runner.operators(second.spec) if runner is not None else None
        other = backend.capabilities.layer_keeper
        found, said, differ = _pair_sides(exporter, keeper, other, ours, theirs, operators, path, layers, weights)
        notes = [
            *_compare_weights(weights, _list_constants(operators, backend, second.spec), layers, path, right=not said),
            describe_coverage(found, (known, reference), path, len(theirs.values), len(ours.values)), *said, *differ,
        ]  # fmt: skip
    return Matches(found=found.pairs, refused=found.refused), tuple(notes)


def _pair_sides(
    exporter: Exporter, keeper: LayerKeeper | None, other: LayerKeeper | None, ours: _Run, theirs: _Run,
    operators: Operators | None, path: str, layers: Mapping[str, Layer], weights: Mapping[str, Any],
) -> tuple[FoundPairs, Sequence[Reason], Sequence[Reason]]:  # fmt: skip
    """Return the pairs, what is wrong, and which attributes differ. keeper, other: of the baseline's and target's
    layers."""
    modules = exporter.modules_in(path)
    ends = pair_outputs(ours.metas, theirs.metas, ours.values, theirs.values)
    if operators is None:
        pairs, refused = _pair_by_value(ours.prints(), theirs.prints(), modules)
        taken = {base for base, _ in ends.values()}
        pairs = {**{name: pair for name, pair in pairs.items() if name not in ends and pair[0] not in taken}, **ends}
        if keeper is not None and other is not None:
            known = {name: pair[0] for name, pair in pairs.items()}
            pairs |= pair_layers(ours.metas, theirs.metas, known, keeper.layer_of, other.layer_of)
        return (
            FoundPairs(pairs=pairs, refused={name: why for name, why in refused.items() if name not in pairs}),
            (),
            (),
        )
    base, target = BaseGraph(ours.metas, ours.values), TargetGraph(operators, theirs.metas, theirs.values)
    exchanged = find_swapped_inputs(base, target, ends)
    if exchanged:
        target.own = {**theirs.values, **exchanged.values}
    mine = [(meta, base.prints[meta.name]) for meta in ours.metas if meta.name in base.prints]
    pairs, refused = _pair_by_value(mine, _prints(theirs.metas, target.own), modules)

    def layer_of(name: str) -> str:
        meta = base.metas.get(name)
        return keeper.layer_of(meta) if meta is not None and keeper is not None else ""

    shapes = {name: tuple(value.shape) for name, value in weights.items()}
    names = Names(modules=modules, layer_of=layer_of, layers=layers, shapes=shapes)
    inputs = {name for name in target.own if name not in target.producer}
    sure = {
        name: pair for name, pair in pairs.items()
        if names.may_be(name, pair[0]) and (name in inputs or agree(target.own[name], ours.values[pair[0]], _NEAR))
    }  # fmt: skip
    ends = {name: pair for name, pair in ends.items() if name not in sure or sure[name][0] != pair[0]}
    found = walk(base, target, sure, names=names, outputs=ends, refused=refused)
    causes = Causes(base=base, target=target, found=found, layers=layers, weights=weights, layer_of=layer_of)
    faults = list_fault_notes(causes, path)
    differ = list_attribute_notes(
        base, target, found, lambda name: ours.built.get(name, {}), layers, layer_of, path, said=faults
    )
    return found, (*note_swapped_inputs(exchanged, path), *faults), differ


def _pair_by_value(
    ours: Sequence[tuple[TensorMeta, Fingerprint]], theirs: Sequence[tuple[TensorMeta, Fingerprint]],
    modules: Mapping[str, str],
) -> tuple[dict[str, tuple[str, Way]], Mapping[str, Reason]]:  # fmt: skip
    found = pair_by_value(ours, theirs, modules=modules)
    return {
        name: (match.baseline, way("{how}, confidence {number}", how=match.how, number=f"{match.confidence:.4f}"))
        for name, match in found.matches.items()
    }, found.refused


def _prints(metas: Sequence[TensorMeta], values: Mapping[str, Any]) -> list[tuple[TensorMeta, Fingerprint]]:
    found = [(meta, take(values[meta.name])) for meta in metas if meta.name in values]
    return [(meta, print_) for meta, print_ in found if print_ is not None]


def _list_constants(operators: Operators | None, backend: Backend, spec: SessionSpec) -> Mapping[str, Any]:
    if operators is not None:
        return operators.constants
    keeper = backend.capabilities.weight_keeper
    return keeper.weights(spec) if keeper is not None else {}


def _compare_weights(
    weights: Mapping[str, Any], file: Mapping[str, Any], layers: Mapping[str, Layer], path: str, *, right: bool
) -> Sequence[Reason]:
    """right: nothing in the file was found wrong."""
    if not weights:
        return [say("weights_unchecked")]
    if not file:
        return [say("weights_unreadable", path=path)]
    return summarise_weights(compare_weights(weights, file, layers.values()), path, agrees=right)


def _open_side(backend: Backend, spec: SessionSpec, mode: str, feeds: Feeds) -> Session:
    return backend.open(dataclasses.replace(spec, mode=mode), [feeds])


def _run(session: Session, feeds: Feeds, store: Store, *, built: bool = False) -> _Run:
    """built: with what each operator was built is asked too, where the session can tell."""

    def keep(op_type: str, name: str, tensor: Any, /) -> None:  # noqa: ARG001
        array = as_array(tensor, name=name)
        if name not in store and array.dtype.kind not in "OUSTMm":
            store.put(name, array)

    try:
        session.run(feeds, keep)
        values = _list_build_arguments(session.replacer, feeds) if built and session.replacer is not None else {}
        return _Run(metas=tuple(session.tensors), values=_Kept(store), built=values)
    finally:
        session.close()


def _list_build_arguments(session: Replacer, feeds: Feeds) -> Mapping[str, Mapping[str, Any]]:
    """By tensor. A session may know the arguments of its calls only after a run that could have replaced them."""
    if not session.replaces:
        return {}
    names = [meta.name for meta in session.tensors if not meta.unseen]
    if all(session.operator(name) is None for name in names):
        session.run_replacing(feeds, lambda kind, name, tensor: None, names=())  # noqa: ARG005
    found = {name: session.operator(name) for name in names}
    return {name: operator.attributes for name, operator in found.items() if operator is not None}
