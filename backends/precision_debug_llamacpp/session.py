"""One file in one run mode: lists its tensors, shows them to a hook, returns the logits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from precision_debug.errors import BackendError, InputError
from precision_debug.feeds.check import engine_arrays
from precision_debug.numbers.narrowing import narrow_type, round_values
from precision_debug.protocols import Feeds, Hook, OneRun, Replace, Replacer
from precision_debug.reasons import NOTHING, Reason
from precision_debug.records import Doubt, InputMeta, Operator, TensorMeta

from .engine.file import GgufFile, Weight
from .engine.graph import INPUT, OUTPUT, TYPES, Node, NodeCounter, Seen, attributes_of, list_nodes, read_node
from .engine.library import Library, Tensor
from .failures import running
from .make import Loaded, Maker
from .naming import find_arithmetic, name_node
from .reasons import say

__all__ = ["LlamaCppSession"]

_LOOK = 3
"""Tokens of the run that shows the graph before the first real one: no other axis is so short."""

Take = Callable[[str, str, Any], Any]
"""(operator type, name, array) to what goes into its place, or None."""


class LlamaCppSession:
    """See protocols.Session. model: the file that runs. mode: of this run. numbers: a weight's in float32.

    A run puts all tokens through at once, and asks for the logits of each. What llama.cpp computes is the same with and
    without a hook: its callback is called between operators, which run one by one where it is asked to.
    """

    alone = ""
    layers = ()

    def __init__(
        self, *, library: Library, model: GgufFile, maker: Maker, mode: str, loaded: Loaded,
        inputs: Sequence[InputMeta], numbers: Callable[[Weight], Any], widened: bool, notes: Sequence[Reason],
        where: str,
    ) -> None:  # fmt: skip
        """Takes over ``loaded``. where: the file that the user named, for errors. Raises BackendError."""
        self._library, self._model, self._maker, self._mode = library, model, maker, mode
        self._inputs, self._numbers, self._widened, self._where = inputs, numbers, widened, where
        self._loaded: Loaded | None = loaded
        self._one_run = OneRun(where)
        self._kinds = {name: library.type_name(one.kind) for name, one in model.weights.items()}
        self._quantised = frozenset() if widened else frozenset(
            name for name, one in model.weights.items() if library.is_quantised(one.kind)
        )  # fmt: skip
        self._nodes = self._look()
        self._by_name = {node.name: node for node in self._nodes}
        self._by_key = {node.key: node for node in self._nodes}
        self._fused = any(node.op == "FLASH_ATTN_EXT" for node in self._nodes)
        self.arithmetic = "" if widened else self._computes()
        self.notes: Sequence[Reason] = (*notes, *self._told())
        self.doubts: Sequence[Doubt] = ()
        self.versions: Mapping[str, str] = {
            "xllamacpp": library.version, "ggml": library.ggml_version().decode(),
            "processor": " ".join(library.llama_print_system_info().decode().replace("|", " ").split()),
        }  # fmt: skip
        self.tensors: Sequence[TensorMeta] = self._metas()

    @property
    def replacer(self) -> Replacer | None:
        return self

    replaces = True

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """See protocols.Session."""
        with self._one_run:
            return self._run(feeds, hook, names, puts=False)

    def run_replacing(self, feeds: Feeds, replace: Replace, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """See protocols.Replacer: what is put in place is written where llama.cpp keeps the tensor."""
        with self._one_run:
            return self._run(feeds, replace, names, puts=True)

    def held(self, name: str, value: Any) -> Any:
        """See protocols.Replacer."""
        node = self._by_name.get(name)
        if node is None:
            return np.asarray(value) if name == INPUT else None
        array = np.asarray(value)
        return round_values(array, narrow_type(node.dtype)) if node.dtype in {"float16", "bfloat16"} else array

    def operator(self, name: str) -> Operator | None:
        """See protocols.Replacer."""
        node = self._by_name.get(name)
        if node is None:
            return None
        parameters = {one: self._numbers(self._model.weights[one]) for one in node.weights}
        return Operator(op_type=node.op, attributes=attributes_of(node), parameters=parameters, reads=node.inputs)

    def close(self) -> None:
        with self._one_run.closing():
            if self._loaded is not None:
                self._loaded.close()
            self._loaded = None

    def _run(self, feeds: Feeds, take: Take | None, names: Collection[str] | None, *, puts: bool) -> Mapping[str, Any]:
        tokens = self._tokens(feeds)
        shows = take is not None and (names is None or INPUT in names)
        if shows and take is not None:
            new = take("Input", INPUT, tokens.copy())
            if puts and new is not None and np.shape(new) == tokens.shape:
                tokens = self._checked(np.asarray(new).astype(np.int64))
        assert self._loaded is not None
        visitor = _Visitor(self._library, self._by_key, tokens.size, take, names, puts=puts)
        self._loaded.visit = visitor if take is not None else None
        try:
            with running(self._where, self._mode):
                logits = self._loaded.run(tokens.reshape(-1).tolist())
        except BackendError:
            if visitor.raised is None:
                raise
        finally:
            self._loaded.visit = None
        if visitor.raised is not None:
            raise visitor.raised
        return {OUTPUT: logits}

    def _tokens(self, feeds: Feeds) -> Any:
        return self._checked(engine_arrays(feeds, self._inputs, where=self._where)[INPUT])

    def _checked(self, tokens: Any) -> Any:
        limit = self._inputs[0].limit or 0
        if not tokens.size or int(tokens.min()) < 0 or int(tokens.max()) >= limit:
            raise InputError(
                f"{INPUT} has to hold token ids from 0 to {limit - 1}", where=self._where,
                hint="feed what the model's tokenizer makes of a text",
            )  # fmt: skip
        return tokens

    def _look(self) -> tuple[Node, ...]:
        """Return the graph, of a run that shows nothing."""
        assert self._loaded is not None
        seen: list[Seen] = []
        counter = NodeCounter()

        def visit(address: int, asks: bool) -> bool:
            if asks:
                seen.append(read_node(self._library, address, counter))
            return not asks

        self._loaded.visit = visit
        with running(self._where, self._mode):
            self._loaded.run([0] * _LOOK)
        self._loaded.visit = None
        return list_nodes(seen, self._quantised, frozenset(self._model.weights), _LOOK)

    def _computes(self) -> str:
        products = {name for node in self._nodes if "MUL_MAT" in node.op for name in node.weights}
        types = [(self._kinds[name], self._model.weights[name].elements) for name in products]
        return find_arithmetic(types, self._maker.cache.upper(), fused=self._fused)

    def _told(self) -> list[Reason]:
        if self._widened:
            return []
        told = []
        if self._maker.cache != "f32":
            told.append(say("cache", type=self._maker.cache.upper()))
        if self._fused:
            told.append(say("flash"))
        return told

    def _metas(self) -> tuple[TensorMeta, ...]:
        ids = TensorMeta(name=INPUT, op_type="Input", dtype="int64", shape=(1, "tokens"))
        return (ids, *(
            TensorMeta(
                name=node.name, op_type=node.op_type, node=name_node(node.weights), dtype=node.dtype,
                inputs=node.inputs,
                is_output=node.name == OUTPUT, extra=self._extra(node),
                unseen=NOTHING if node.dtype else say("blocks"),
            )
            for node in self._nodes
        ))  # fmt: skip

    def _extra(self, node: Node) -> Mapping[str, str]:
        if self._widened or not node.weights:
            return {}
        return {"Weight": ", ".join(node.weights), "Weight Type": ", ".join(self._kinds[one] for one in node.weights)}


class _Visitor:
    """The callback of one run: shows each tensor when it was computed, and puts another in its place."""

    def __init__(
        self, library: Library, nodes: Mapping[Any, Node], count: int, take: Take | None,
        names: Collection[str] | None, *, puts: bool,
    ) -> None:  # fmt: skip
        self._library, self._nodes, self._count, self._names = library, nodes, count, names
        self._take, self._puts = take, puts
        self._counter = NodeCounter()
        self._node: Node | None = None
        self.raised: BaseException | None = None

    def __call__(self, address: int, asks: bool) -> bool:
        if self.raised is not None:
            return False
        try:
            if asks:
                return self._is_wanted(address)
            if self._node is not None and self._take is not None:
                self._show(self._node, address)
        except BaseException as error:  # nothing may pass through llama.cpp; whoever runs it raises this
            self.raised = error
        return self.raised is None

    def _is_wanted(self, address: int) -> bool:
        tensor = Tensor.from_address(address)
        key = self._counter.key(tensor.name.decode("utf-8", "replace"), self._library.op_name(tensor.op))
        self._node = self._nodes.get(key)
        wanted = self._node is not None and bool(self._node.dtype)
        return wanted and (self._names is None or self._node.name in self._names)  # type: ignore[union-attr]

    def _show(self, node: Node, address: int) -> None:
        tensor = Tensor.from_address(address)
        memory = np.empty(self._library.ggml_nbytes(address), np.uint8)
        self._library.ggml_backend_tensor_get(address, memory.ctypes.data, 0, memory.size)
        whole = np.ndarray(tuple(tensor.ne)[::-1], TYPES[tensor.type], memory, strides=tuple(tensor.nb)[::-1])
        part = self._part(node, whole, tensor)
        assert self._take is not None
        new = self._take(node.op_type, node.name, np.array(part))
        if self._puts and new is not None and np.shape(new) == part.shape:
            part[...] = np.asarray(new).astype(part.dtype)
            self._library.ggml_backend_tensor_set(address, memory.ctypes.data, 0, memory.size)

    def _part(self, node: Node, whole: Any, tensor: Tensor) -> Any:
        """Return what of a node's memory is the tensor of so many tokens, as a view."""
        if node.form == "rows":
            return whole.reshape(-1, whole.shape[-1])[: self._count]
        if node.form == "columns":  # of a cache that is kept transposed: each channel has its tokens side by side
            wide = int(np.prod(tuple(Tensor.from_address(tensor.src[0]).ne))) // self._count
            return whole.reshape(wide, -1)[:, : self._count].T
        if node.form == "flat":
            return whole.reshape(self._count, -1)
        if node.form == "padded":
            whole = whole[..., : self._count]
        return whole.reshape(whole.shape[4 - node.rank :]) if node.rank < 4 else whole
