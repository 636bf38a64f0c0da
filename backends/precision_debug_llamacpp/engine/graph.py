"""The graph that llama.cpp runs, as its callback goes through it: what each node is, reads, and is called here.

llama.cpp gives one name to several tensors (the query before and after its rotation), and none to some. Nodes that only
look at another tensor's data (RESHAPE, VIEW, PERMUTE, TRANSPOSE) are no tensors of their own here, and what nothing
reads that leads to the logits is left out: it holds whatever was in memory.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from .library import Library, Tensor

__all__ = ["INPUT", "OUTPUT", "TYPES", "Key", "Node", "NodeCounter", "Seen", "attributes_of", "list_nodes", "read_node"]

INPUT, OUTPUT = "input_ids", "result_output"

_TOKENS, _CACHES = "inp_tokens", ("cache_k", "cache_v")
_VIEWS = frozenset({"RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE", "NONE"})
_UNNAMED = re.compile(r"(node|leaf)_\d+| *(\((view|copy|cont|reshaped|permuted|transposed)\) *)*")
_SUFFIXES = re.compile(r"( \((view|copy|cont|reshaped|permuted|transposed)\))+$")

TYPES: Mapping[int, np.dtype[Any]] = {
    0: np.dtype(np.float32), 1: np.dtype(np.float16), 24: np.dtype(np.int8), 25: np.dtype(np.int16),
    26: np.dtype(np.int32), 27: np.dtype(np.int64), 28: np.dtype(np.float64), 30: np.dtype(ml_dtypes.bfloat16),
}  # fmt: skip
"""ggml's types whose numbers stand one by one."""

Key = tuple[str, str, int]
"""llama.cpp's name of a node, its operator, and how many of both came before."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One node as the callback was asked for it. sources, view_of: addresses of other tensors, by which they are known
    during one run. weight: of the first source, "" where it has no name."""

    address: int
    key: Key
    kind: int
    shape: tuple[int, ...]
    sources: tuple[tuple[int, str], ...]
    view_of: int
    view_name: str
    numbers: tuple[int, ...]

    @property
    def op(self) -> str:
        return self.key[1]


@dataclass(frozen=True, kw_only=True)
class Node:
    """A tensor of the graph.

    name: one of its own. op_type: "MUL_MAT quantised" where its weight is of blocks. inputs: names of other nodes.
    weights: names of the file's tensors that it reads. form: "" as it stands, "padded": the last axis has room for more
    tokens than there are, "rows", "columns": of a cache that has, "flat": all of a token in one row. rank: of its
    shape. numbers: its op_params.
    """

    name: str
    key: Key
    op_type: str
    dtype: str
    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    form: str = ""
    rank: int = 2
    numbers: tuple[int, ...] = field(default=(), repr=False)

    @property
    def op(self) -> str:
        return self.key[1]


class NodeCounter:
    """Gives each node of a run its key."""

    def __init__(self) -> None:
        self._count: Counter[tuple[str, str]] = Counter()

    def key(self, name: str, op: str) -> Key:
        self._count[name, op] += 1
        return name, op, self._count[name, op] - 1


def read_node(library: Library, address: int, counter: NodeCounter) -> Seen:
    """Return a node while the callback has it."""
    tensor = Tensor.from_address(address)
    sources = [(int(one), _name(Tensor.from_address(one))) for one in tensor.src if one]
    root = tensor
    while root.view_src:
        root = Tensor.from_address(root.view_src)
    return Seen(
        address=address, key=counter.key(_name(tensor), library.op_name(tensor.op)), kind=tensor.type,
        shape=tuple(tensor.ne)[::-1], sources=tuple(sources), view_of=ctypes.addressof(root), view_name=_name(root),
        numbers=tuple(tensor.op_params),
    )  # fmt: skip


def _name(tensor: Tensor) -> str:
    return str(tensor.name.decode("utf-8", "replace"))


def list_nodes(seen: Sequence[Seen], quantised: frozenset[str], weights: frozenset[str], many: int) -> tuple[Node, ...]:
    """Return the tensors of a graph in the order in which they are computed.

    quantised, weights: names of the file's tensors, those of blocks, and all. many: how many tokens the run had.
    """
    walk = _Walk(seen, weights)
    names = walk.names()
    alive = walk.alive()
    padded: set[int] = set()
    nodes = []
    for one in seen:
        if one.op in _VIEWS or one.address not in alive:
            continue
        read = [walk.resolve(address) for address, _ in one.sources]
        sources = [place for place in read if place is not None and place != one.address]
        own = tuple(name for _, name in one.sources if name in weights)
        if one.op == "SET_ROWS":
            form = "columns" if one.shape[-1] == 1 else "rows"
        elif one.shape[-1] > many and (_reads_keys(one, walk) or (sources and sources[0] in padded)):
            form = "padded"
            padded.add(one.address)
        elif one.op == "FLASH_ATTN_EXT":  # as the product that it stands for is read: [tokens, heads * size]
            form = "flat"
        else:
            form = ""
        inputs = [names[place] for place in sources if place in names]
        inputs += [INPUT for _, name in one.sources if name == _TOKENS]
        shape = one.shape
        nodes.append(
            Node(
                name=names[one.address], key=one.key, inputs=tuple(dict.fromkeys(inputs)), weights=own, form=form,
                op_type=f"{one.op} quantised" if quantised & {*own} else one.op,
                dtype=TYPES[one.kind].name if one.kind in TYPES else "",
                rank=2 if form in {"rows", "columns", "flat"} else max(2, 4 - _count_leading_axes(shape)),
                numbers=one.numbers,
            )
        )  # fmt: skip
    return tuple(nodes)


def _count_leading_axes(shape: tuple[int, ...]) -> int:
    return next((place for place, size in enumerate(shape) if size != 1), len(shape))


def _reads_keys(one: Seen, walk: _Walk) -> bool:
    """Return whether it is the product of queries with a cache's keys."""
    return one.op == "MUL_MAT" and bool(one.sources) and walk.root_name(one.sources[0][0]).startswith("cache_k")


class _Walk:
    """Who computes what, through nodes that only look at another's data."""

    def __init__(self, seen: Sequence[Seen], weights: frozenset[str]) -> None:
        self.seen, self.weights = seen, weights
        self.by_address = {one.address: one for one in seen}
        self.writers: dict[int, int] = {one.view_of: one.address for one in seen if one.op == "SET_ROWS"}

    def resolve(self, address: int) -> int | None:
        """Return the node that computed what a source holds; None of weights and inputs."""
        one = self.by_address.get(address)
        while one is not None and one.op in _VIEWS:
            if one.view_of in self.writers:
                return self.writers[one.view_of]
            if not one.sources:
                return None
            address = one.sources[0][0]
            one = self.by_address.get(address)
        return None if one is None else one.address

    def root_name(self, address: int) -> str:
        one = self.by_address.get(address)
        return one.view_name if one is not None else ""

    def alive(self) -> set[int]:
        """Return those that lead to the logits."""
        last = next((one for one in reversed(self.seen) if one.key[0] == OUTPUT and one.op not in _VIEWS), None)
        found: set[int] = set()
        waiting = [last.address] if last is not None else []
        while waiting:
            address = waiting.pop()
            if address in found:
                continue
            found.add(address)
            waiting += [place for source, _ in self.by_address[address].sources
                        if (place := self.resolve(source)) is not None]  # fmt: skip
        return found

    def names(self) -> dict[int, str]:
        """Return a name of each node that no other has, the same whatever else the graph has: llama.cpp's own, with the
        operator where another one's result has it first, and a number where one operator's had it before."""
        found: dict[int, str] = {}
        taken: set[str] = set()
        first: dict[str, str] = {}
        for one, own in self._own_names(found):
            name = own if first.setdefault(own, one.op) == one.op else f"{own} ({one.op})"
            count = 1
            unique = name
            while unique in taken:
                count += 1
                unique = f"{name}#{count}"
            taken.add(unique)
            found[one.address] = unique
        return found

    def _own_names(self, found: Mapping[int, str]) -> Iterator[tuple[Seen, str]]:
        last = next((one for one in reversed(self.seen) if one.key[0] == OUTPUT and one.op not in _VIEWS), None)
        alive = self.alive()
        for one in self.seen:
            if one.op in _VIEWS or one.address not in alive:
                continue
            own = one.key[0]
            if one.op == "SET_ROWS" and one.view_name.startswith(_CACHES):
                own = one.view_name
            elif _UNNAMED.fullmatch(own):
                own = self._by_view(one) or self._by_source(one, found)
            if own == OUTPUT and one is not last:
                own = f"{OUTPUT} ({one.op})"
            yield one, _SUFFIXES.sub("", own)

    def _by_view(self, one: Seen) -> str:
        """Return what a node without a name is called where another one looks at it."""
        for other in self.seen:
            name = other.key[0]
            looks = other.op in _VIEWS and other.sources and other.sources[0][0] == one.address
            if looks and not _UNNAMED.fullmatch(name) and not _SUFFIXES.search(name):
                return name
        return ""

    def _by_source(self, one: Seen, found: Mapping[int, str]) -> str:
        """Return what a node without a name is called after its weight, or after what it reads."""
        if weight := next((name for _, name in one.sources if name in self.weights), ""):
            return weight.removesuffix(".weight")
        places = [self.resolve(address) for address, _ in one.sources]
        named = next((found[place] for place in places if place is not None and place in found), "")
        return f"{named}/{one.op}" if named else one.op


def attributes_of(node: Node) -> Mapping[str, Any]:
    """Return what an operator was told, of those whose numbers are known (ggml.h, and ggml.c where it writes them)."""
    packed = struct.pack("<16i", *node.numbers)

    def real(place: int) -> float:
        return float(struct.unpack_from("<f", packed, 4 * place)[0])

    if node.op in {"NORM", "RMS_NORM", "L2_NORM", "GROUP_NORM"}:
        return {"epsilon": real(1 if node.op == "GROUP_NORM" else 0)}
    if node.op == "ROPE":
        return {
            "n_dims": node.numbers[1], "mode": node.numbers[2], "freq_base": real(5), "freq_scale": real(6),
            "ext_factor": real(7), "attn_factor": real(8), "beta_fast": real(9), "beta_slow": real(10),
        }  # fmt: skip
    if node.op == "SOFT_MAX":
        return {"scale": real(0), "max_bias": real(1)}
    if node.op == "FLASH_ATTN_EXT":
        return {"scale": real(0), "max_bias": real(1), "logit_softcap": real(2)}
    if node.op in {"SCALE", "CLAMP"}:
        first, second = ("scale", "bias") if node.op == "SCALE" else ("min", "max")
        return {first: real(0), second: real(1)}
    if node.op in {"UNARY", "GLU"}:
        return {"function": node.numbers[0], **({"swapped": node.numbers[1]} if node.op == "GLU" else {})}
    return {}
