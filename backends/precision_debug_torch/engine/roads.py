"""The same tokens through one language model by other roads: decoded with a KV cache, in chunks, alone, padded.

Whatever the road, what each module made of each token is put back to where the whole batch at once has it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from precision_debug.errors import InputError, ModelError, UsageError
from precision_debug.numbers.arrays import as_array
from precision_debug.protocols import Feeds, Hook

from ..make import Built, make_twin, tensors_of
from ..modes import ROADS

__all__ = ["travel"]

_CHUNKS = 3


@dataclass(frozen=True, kw_only=True)
class _Call:
    """One call of the model. rows: of the batch. places: where its tokens stand, a line a row; -1: padding, which is
    forgotten. mask: of all tokens up to its last, None where the model is given none. continues: with the KV cache."""

    rows: tuple[int, ...]
    ids: Any
    places: Any
    mask: Any = None
    continues: bool = False


@dataclass(kw_only=True)
class _Seen:
    """What modules made of tokens, by name, in the order in which they first came."""

    rows: int
    length: int
    values: dict[str, Any] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)

    def put(self, name: str, kind: str, value: Any, call: _Call) -> None:
        """Put a module's result where its tokens stand; what has no axis of tokens is passed over."""
        count, width = call.places.shape
        if value.ndim < 2 or not value.is_floating_point():
            return
        if value.shape[:2] == (1, width):  # the same of every row, as embedded positions
            value = value.expand(count, *value.shape[1:])
        if value.shape[0] == count * width and value.shape[:2] != (count, width):
            value = value.reshape(count, width, *value.shape[1:])
        if value.shape[:2] != (count, width):
            return
        held = self.values.get(name)
        if held is None:
            shape = (self.rows, self.length, *value.shape[2:])
            held = self.values[name] = torch.full(shape, torch.nan, dtype=value.dtype, device=value.device)
            self.kinds[name] = kind
        if held.shape[2:] != value.shape[2:]:
            return
        for line, row in enumerate(call.rows):
            kept = call.places[line] >= 0
            held[row, call.places[line][kept]] = value[line][kept].to(held.dtype)


def travel(built: Built, road: str, feeds: Feeds, hook: Hook) -> dict[str, Any]:
    """Run a transformers model by a road. The hook is shown what each module with weights makes, [rows, tokens, …], NaN
    where a token is masked. Returns {"logits": …}. Raises InputError, ModelError and UsageError."""
    if road not in ROADS:
        raise UsageError(f"there is no road '{road}'", where="--roads", hint=f"there are {', '.join(ROADS)}")
    module = make_twin(built.module, frozenset())
    if not hasattr(module, "config") or not hasattr(module, "get_output_embeddings"):
        raise ModelError("is no language model of transformers", where=built.model.path, hint="name its folder")
    strange = [name for name in feeds if name not in ("input_ids", "attention_mask")]
    if strange or "input_ids" not in feeds:
        what = f"roads are of input_ids and attention_mask, not of '{strange[0]}'" if strange else "needs input_ids"
        raise InputError(what, where=built.model.path)
    inputs = tensors_of(built, feeds)
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    seen = _Seen(rows=ids.shape[0], length=ids.shape[1])
    with torch.no_grad(), _change_module(module, road):
        cache = None
        for call in _iterate_calls(road, ids, mask):
            more = {"attention_mask": call.mask} if call.mask is not None else {}
            if call.continues and cache is not None:
                more["past_key_values"] = cache
            with _watch_module(module, call, seen):
                result = module(input_ids=call.ids, use_cache=road in ("decode", "chunks"), **more)
            cache = getattr(result, "past_key_values", None)
            seen.put("logits", "Output", result.logits, call)
    for name, value in seen.values.items():
        hook(seen.kinds[name], name, as_array(value, name=name))
    return {"logits": as_array(seen.values["logits"], name="logits")}


def _iterate_calls(road: str, ids: Any, mask: Any) -> Iterator[_Call]:
    rows, length = ids.shape
    every = torch.arange(length, device=ids.device).expand(rows, length)
    counted = every if mask is None else torch.where(mask != 0, every, -1)
    if road in ("decode", "chunks"):
        step = -(-length // _CHUNKS)
        cuts = [0, *range(max(1, length // 2), length + 1)] if road == "decode" else [*range(0, length, step), length]
        for first, last in itertools.pairwise(cuts):
            yield _Call(
                rows=tuple(range(rows)), ids=ids[:, first:last], places=counted[:, first:last], continues=first > 0,
                mask=None if mask is None else mask[:, :last],
            )  # fmt: skip
    elif road == "alone":
        for row in range(rows):
            real = counted[row][counted[row] >= 0]
            yield _Call(rows=(row,), ids=ids[row : row + 1, real], places=real[None])
    elif road in ("padded_left", "padded_right"):
        more = max(1, length // 4)
        own = torch.ones_like(ids) if mask is None else mask
        pad, hidden, nowhere = (torch.full((rows, more), value, dtype=like.dtype, device=ids.device)
                                for value, like in ((0, ids), (0, own), (-1, counted)))  # fmt: skip
        both = [(pad, ids), (nowhere, counted), (hidden, own)]
        if road == "padded_right":
            both = [(second, first) for first, second in both]
        joined = [torch.cat(pair, dim=1) for pair in both]
        yield _Call(rows=tuple(range(rows)), ids=joined[0], places=joined[1], mask=joined[2])
    else:
        yield _Call(rows=tuple(range(rows)), ids=ids, places=counted, mask=mask)


@contextlib.contextmanager
def _change_module(module: Any, road: str) -> Iterator[None]:
    """The module as the road has it; it is a twin, which nobody uses after."""
    if road in ("eager", "sdpa"):
        try:
            module.set_attn_implementation(road)
        except (AttributeError, ValueError, ImportError) as error:
            raise ModelError(f"has no attention '{road}' ({error})", where=type(module).__name__) from error
    head = module.get_output_embeddings() if road == "head_fp32" else None
    if head is not None:
        head.forward = _run_in_float32(head)
    yield


def _run_in_float32(head: Any) -> Callable[[Any], Any]:
    def forward(states: Any) -> Any:
        bias = None if head.bias is None else head.bias.float()
        return torch.nn.functional.linear(states.float(), head.weight.float(), bias)

    return forward


@contextlib.contextmanager
def _watch_module(module: Any, call: _Call, seen: _Seen) -> Iterator[None]:
    """Modules with weights of their own, or inside them: what they return, the first tensor of several, and what they
    read where no module returned it (attention, between two projections)."""
    came: dict[str, int] = {}
    returned: dict[int, Any] = {}

    def watch(path: str, kind: str, *, reads: bool) -> Callable[..., None]:
        def shown(_module: Any, inputs: Any, result: Any = None) -> None:
            came[path] = came.get(path, 0) + reads
            name = path if came[path] == 1 else f"{path}#{came[path]}"
            first = inputs if reads else result
            first = first[0] if isinstance(first, Sequence) and first else first
            if isinstance(first, torch.Tensor) and not (reads and id(first) in returned):
                seen.put(f"{name} (input)" if reads else name, kind, first, call)
                returned[id(first)] = first  # held, so that no other has its id

        return shown

    handles = []
    for path, part in module.named_modules():
        if path and next(part.parameters(), None) is not None:
            kind = type(part).__name__
            handles.append(part.register_forward_pre_hook(watch(path, kind, reads=True)))
            handles.append(part.register_forward_hook(watch(path, kind, reads=False)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
