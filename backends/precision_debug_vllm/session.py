"""One folder in one run mode: lists its tensors, shows them to a hook, returns the logits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from precision_debug.errors import InputError
from precision_debug.feeds.check import engine_arrays
from precision_debug.numbers.narrowing import narrow_type, round_values
from precision_debug.protocols import Feeds, Hook, OneRun, Replace, Replacer
from precision_debug.reasons import Reason
from precision_debug.records import Doubt, InputMeta, Operator, TensorMeta

from .failures import make_not_run_error
from .make import Server, give_back
from .model import Folder
from .naming import symbolic
from .reasons import say

__all__ = ["VllmSession", "travel"]

INPUT, MASK, LOGITS = "input_ids", "attention_mask", "output.logits"

_WEIGHTED = frozenset({"Embedding", "Linear"})

_IN_STEPS = frozenset({"decode", "chunks"})

Take = Callable[[str, str, Any], Any]
"""(operator type, name, array) to what goes into its place, or None."""


class VllmSession:
    """See protocols.Session. A run puts all rows through in one step of the engine, and asks for every token's logits.

    look: rows and tokens of the run that finds the tensors."""

    alone = ""
    arithmetic = ""
    layers = ()
    doubts: Sequence[Doubt] = ()
    replaces = True

    def __init__(
        self, *, server: Server, folder: Folder, inputs: Sequence[InputMeta], dtype: str, look: tuple[int, int]
    ) -> None:
        """Takes over ``server``. Raises BackendError."""
        self._server, self._folder, self._inputs, self._dtype = server, folder, inputs, dtype
        self._one_run, self._closed = OneRun(folder.path), False
        self.versions: Mapping[str, str] = server.versions
        unties = (say("keeps_its_head"),) if folder.unties else ()
        self.notes: Sequence[Reason] = (say("head_of_all"), say("elsewhere", python=server.python), *unties)
        self.tensors: Sequence[TensorMeta] = self._look(*look)
        self._types = {meta.name: meta.dtype for meta in self.tensors}

    @property
    def replacer(self) -> Replacer | None:
        return self

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """See protocols.Session."""
        with self._one_run:
            return self._run(_tokens(self._folder, self._inputs, feeds)[0], hook, names, puts=False)

    def run_replacing(self, feeds: Feeds, replace: Replace, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """See protocols.Replacer: what is put in place is what the engine's next module is given."""
        with self._one_run:
            return self._run(_tokens(self._folder, self._inputs, feeds)[0], replace, names, puts=True)

    def held(self, name: str, value: Any) -> Any:
        """See protocols.Replacer."""
        kind = self._types.get(name)
        if kind is None:
            return None
        array = np.asarray(value)
        return round_values(array, narrow_type(kind)) if kind in {"float16", "bfloat16"} else array

    def operator(self, name: str) -> Operator | None:
        """See protocols.Replacer."""
        meta = next((one for one in self.tensors if one.name == name), None)
        if meta is None:
            return None
        parameters = {}
        if meta.op_type in _WEIGHTED or meta.op_type.endswith("Norm"):
            self._server.ask({"do": "weight", "name": f"{name}.weight"})
            _, weight = self._server.hear()
            parameters = {} if weight is None else {f"{name}.weight": weight}
        return Operator(op_type=meta.op_type, parameters=parameters, reads=meta.inputs)

    def close(self) -> None:
        with self._one_run.closing():
            if not self._closed:
                give_back(self._server)
            self._closed = True

    def _look(self, rows: int, tokens: int) -> tuple[TensorMeta, ...]:
        """Return the graph, of a run over a few tokens."""
        seen: list[TensorMeta] = []
        self._server.load(rows, tokens)
        asked = {"do": "run", "rows": rows, "tokens": tokens, "shows": True, "puts": False, "names": None}
        asked["looks"] = True
        self._server.ask(asked, np.zeros((rows, tokens), np.int64).tobytes())
        while True:
            told, _ = self._server.hear()
            if told["is"] == "done":
                break
            seen.append(
                TensorMeta(
                    name=told["name"], op_type=told["op_type"], node=told["name"], dtype=told["dtype"],
                    shape=symbolic(told["shape"], told["form"]), inputs=tuple(told["reads"]),
                    is_output=told["op_type"] == "Output",
                )
            )  # fmt: skip
        for _ in told["outputs"]:
            self._server.hear()
        return tuple(seen)

    def _run(self, tokens: Any, take: Take | None, names: Collection[str] | None, *, puts: bool) -> Mapping[str, Any]:
        rows, count = tokens.shape
        self._server.load(rows, count)
        wanted = None if names is None else sorted(names)
        asked = {"do": "run", "rows": rows, "tokens": count, "shows": take is not None, "puts": puts, "names": wanted}
        self._server.ask(asked, tokens.tobytes())
        raised: BaseException | None = None
        while True:
            told, value = self._server.hear()
            if told["is"] == "done":
                break
            new = None
            if raised is None and take is not None:
                try:
                    new = take(told["op_type"], told["name"], np.array(value))
                except BaseException as error:  # the engine goes on to its end, and nobody is shown anything any more
                    raised = error
            if puts:
                self._put(new, value)
        outputs = {}
        for name in told["outputs"]:
            told, value = self._server.hear()
            outputs[name] = np.array(value)
        if raised is not None:
            raise raised
        return outputs

    def _put(self, new: Any, value: Any) -> None:
        fits = new is not None and np.shape(new) == value.shape
        data = np.ascontiguousarray(np.asarray(new).astype(value.dtype)).tobytes() if fits else b""
        self._server.ask({"put": fits}, data)


def travel(
    server: Server, folder: Folder, inputs: Sequence[InputMeta], road: str, feeds: Feeds, hook: Hook
) -> Mapping[str, Any]:  # fmt: skip
    """See protocols.Roads: rows without their padding, which a serving engine never sees. What modules are given is
    called as transformers' roads call it. Raises InputError, ModelError and BackendError."""
    tokens, mask = _tokens(folder, inputs, feeds, padded=True)
    real = [row[kept] for row, kept in zip(tokens, mask, strict=True)]
    lengths = [len(row) for row in real]
    server.load(len(real), max(lengths))
    server.ask({"do": "travel", "road": road, "lengths": lengths}, np.concatenate(real).tobytes())
    found: dict[str, tuple[str, Any]] = {}
    while True:
        told, value = server.hear()
        if told["is"] == "done":
            break
        whole = np.full((*tokens.shape, *value.shape[2:]), np.nan, np.float32)
        for row, kept in enumerate(mask):
            whole[row, kept] = value[row, : lengths[row]]
        name = f"{told['name'].removesuffix('.input')} (input)" if told["name"].endswith(".input") else told["name"]
        found["logits" if name == LOGITS else name] = told["op_type"], whole
    if road in _IN_STEPS and told["steps"] < min(2, max(lengths)):  # then it went another road than it says
        raise make_not_run_error(folder.path, road, f"it ran {max(lengths)} tokens in {told['steps']} step")
    for name, (op_type, whole) in found.items():
        hook(op_type, name, whole)
    return {"logits": found["logits"][1]}


def _tokens(
    folder: Folder, inputs: Sequence[InputMeta], feeds: Feeds, *, padded: bool = False
) -> tuple[Any, Any]:  # fmt: skip
    """Return the ids, and which of them are no padding. Raises InputError."""
    where = folder.path
    arrays = engine_arrays(feeds, [meta for meta in inputs if meta.name == INPUT or meta.name in feeds], where=where)
    tokens, limit = np.ascontiguousarray(arrays[INPUT]), folder.vocabulary
    if not tokens.size or int(tokens.min()) < 0 or int(tokens.max()) >= limit:
        raise InputError(
            f"{INPUT} has to hold token ids from 0 to {limit - 1}", where=where,
            hint="feed what the model's tokenizer makes of a text",
        )  # fmt: skip
    mask = arrays[MASK] != 0 if MASK in arrays else np.ones(tokens.shape, bool)
    if (not padded and not mask.all()) or not mask.any(axis=1).all():
        raise InputError(
            "a serving engine is given no padding", where=where,
            hint=f"feed rows of one length without {MASK}, or each row as a sample of its own",
        )  # fmt: skip
    return tokens, mask
