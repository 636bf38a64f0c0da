"""Which tensors can be shown without a change to what OpenVINO runs.

Only what survives in the plain runtime graph is a candidate: what a layer gives, not what is inside one. A tap beside
such a tensor is one more reader of it, and that alone can end a fusion (a sum that is written over one of its terms, a
scale that was moved into the product before it). So the runtime graph with taps is compared with the plain one, and
what is not the same any more loses its taps, then its neighbours theirs, until both are the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from precision_debug.errors import BackendError

from ..make import Built, Maker
from .graph import CODES, DEQUANTISES, Graph, Key, Value
from .layers import Layer

__all__ = ["Marked", "build_marked", "build_undisturbed", "find_disturbed", "list_surviving", "put_behind_codes"]

_ROUNDS = 10
_TYPES = 6
_TRIES = 2
_FAR = 5  # edges from a layer that is another one to the tap that makes it so
_COPIES = frozenset({"Reorder", "Reference"})


@dataclass(frozen=True, kw_only=True)
class Marked:
    """built: with taps at ``keys``. dropped: what could be shown only in another graph. changed: operators whose layers
    are others in spite of all."""

    built: Built | None
    keys: tuple[Key, ...]
    dropped: frozenset[Key]
    changed: tuple[str, ...]


def list_surviving(graph: Graph, layers: Sequence[Layer]) -> list[Key]:
    """Return what the plain graph's layers give, in execution order."""
    home = {op: number for number, layer in enumerate(layers) for op in layer.ops}
    readers: dict[Key, set[str]] = {}
    for value in graph.computed():
        for key in value.reads:
            readers.setdefault(key, set()).add(value.key[0])
    found = []
    for value in graph.computed():
        name = value.key[0]
        if name not in home or value.dtype == "str":
            continue
        mine = home[name]
        last = max(layers[mine].ops, key=lambda op: graph.rank.get(op, -1)) == name
        if last or any(home.get(reader, mine) != mine for reader in readers.get(value.key, ())):
            found.append(value.key)
    return found


def put_behind_codes(graph: Graph, keys: Sequence[Key]) -> list[Key]:
    """Return where to tap in place of tensors of codes: at the numbers that are made of each, and nowhere for codes of
    which none are made. Other tensors stay as they are."""
    readers: dict[Key, Value] = {}
    for value in graph.computed():
        for key in value.reads if value.op_type in DEQUANTISES else ():
            readers.setdefault(key, value)
    found: list[Key] = []
    for first in keys:
        key, codes = first, graph.values[first].dtype in CODES
        while codes and key in readers:
            key = readers[key].key
        if not codes or graph.values[key].dtype not in CODES:
            found.append(key)
    return list(dict.fromkeys(found))


def build_marked(
    graph: Graph, plain: Sequence[Layer], maker: Maker, make: Callable[[Maker, Collection[Key]], Built]
) -> tuple[Marked, Maker]:
    """Return the model with taps at all that survives compiling, and the maker that built it.

    Kernels that take no further reader of codes are tapped behind what makes numbers of these; where that is refused,
    too, weights are floats in place of codes. Raises BackendError.
    """
    surviving = list_surviving(graph, plain)
    for keys in (surviving, put_behind_codes(graph, surviving)):
        with contextlib.suppress(BackendError):
            return build_undisturbed(graph, plain, functools.partial(make, maker), keys, exact=True), maker
    folding = dataclasses.replace(maker, folds=True)
    return build_undisturbed(graph, plain, functools.partial(make, folding), surviving, exact=True), folding


def build_undisturbed(
    graph: Graph, plain: Sequence[Layer], build: Callable[[Collection[Key]], Built], keys: Sequence[Key],
    *, exact: bool,
) -> Marked:  # fmt: skip
    """Build with taps until the layers are the plain graph's.

    exact: kernels and layouts too; otherwise only what decides the arithmetic.
    """

    def changes(wanted: Collection[Key]) -> tuple[Built, set[str]]:
        built = build(frozenset(wanted))
        return built, find_disturbed(plain, built.layers(graph.rank), exact=exact)

    wanted, reach = list(keys), 0
    if not wanted:
        return Marked(built=None, keys=(), dropped=frozenset(), changed=())
    built, changed = changes(wanted)
    for _ in range(_ROUNDS):
        fewer = wanted
        while changed and len(fewer) == len(wanted) and reach < _FAR:
            near = _find_near(graph, changed, reach)
            fewer = [key for key in wanted if key[0] not in near]
            reach += len(fewer) == len(wanted)
        if len(fewer) == len(wanted) or not fewer:
            break
        wanted = fewer
        built, changed = changes(wanted)
    if not changed:
        built, wanted = _regain_taps(graph, wanted, {*keys} - {*wanted}, changes, built)
    return Marked(
        built=built, keys=tuple(wanted), dropped=frozenset(keys) - set(wanted), changed=tuple(sorted(changed))
    )


def _regain_taps(
    graph: Graph, wanted: list[Key], lost: Collection[Key],
    changes: Callable[[Collection[Key]], tuple[Built, set[str]]], built: Built,
) -> tuple[Built, list[Key]]:  # fmt: skip
    """Give back the taps that were taken for another's fault, a type of operator at a time: blocks are alike. Of a type
    of which some are at fault, those that are not beside what they change."""
    kinds: dict[str, list[Key]] = {}
    for key in sorted(lost, key=lambda key: graph.rank[key[0]]):
        kinds.setdefault(graph.values[key].op_type, []).append(key)
    for keys in sorted(kinds.values(), key=len, reverse=True)[:_TYPES]:
        some, near = keys, set[str]()
        for _ in range(_TRIES):
            some = [key for key in some if key[0] not in near]
            if not some:
                break
            more, changed = changes([*wanted, *some])
            if not changed:
                built, wanted = more, [*wanted, *some]
                break
            near = _find_near(graph, changed, 1)
    return built, wanted


def find_disturbed(plain: Sequence[Layer], there: Sequence[Layer], *, exact: bool) -> set[str]:
    """Source operators whose layers are not the same in both."""

    def counted(layers: Sequence[Layer], undecided: set[str]) -> Counter[tuple[object, ...]]:
        busy = [layer for layer in layers if layer.ops and layer.kind not in _COPIES]
        return Counter(
            (*layer.arithmetic, layer.layout, "" if undecided & set(layer.ops) else layer.kernel) if exact
            else layer.arithmetic
            for layer in busy
        )  # fmt: skip

    undecided = {op for layer in (*plain, *there) if layer.undecided for op in layer.ops}
    first, second = counted(plain, undecided), counted(there, undecided)
    return {op for identity in ((first - second) | (second - first)) for op in identity[1]}  # type: ignore[attr-defined]


def _find_near(graph: Graph, ops: Collection[str], reach: int) -> set[str]:
    """Return operators that are at most so many edges away from some."""
    edges: dict[str, set[str]] = {}
    for value in graph.computed():
        for name, _ in value.reads:
            edges.setdefault(value.key[0], set()).add(name)
            edges.setdefault(name, set()).add(value.key[0])
    near = set(ops)
    for _ in range(reach):
        near |= {name for one in near for name in edges.get(one, ())}
    return near
