"""A loaded model, and the context in which it runs so many tokens."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .engine.library import Batch, Callback, Library

__all__ = ["Loaded", "Maker"]

_FLASH = {"auto": -1, "off": 0, "on": 1}
_CACHE = {"f32": 0, "f16": 1, "q8_0": 8, "bf16": 30}

Visit = Callable[[int, bool], bool]
"""(address of a ggml_tensor, whether llama.cpp asks if it is wanted) to whether it is, or whether to go on."""


@dataclass(frozen=True, kw_only=True)
class Maker:
    """path: of the file that is loaded. flash: "auto", "on", "off". cache: of keys and values. threads: 0: one."""

    path: str
    threads: int
    flash: str
    cache: str
    repack: bool
    vocabulary: int

    def load(self, library: Library) -> Loaded:
        """Raises RuntimeError with what llama.cpp says."""
        library.said()
        parameters = library.llama_model_default_params()
        parameters.put(library.layout.n_gpu_layers, "i", 0)
        parameters.put(library.layout.use_extra_bufts, "B", self.repack)
        model = library.llama_model_load_from_file(self.path.encode(), parameters)
        if not model:
            raise RuntimeError(library.said())
        if library.llama_model_has_encoder(model):
            library.llama_model_free(model)
            raise RuntimeError("it has an encoder; models that only decode can be run here")
        return Loaded(library, self, model)


class Loaded:
    """Runs rows of tokens; ``visit`` may be changed between runs. Not for two threads at once."""

    def __init__(self, library: Library, maker: Maker, model: int) -> None:
        self._library, self._maker, self._model = library, maker, model
        self._context, self._room = 0, 0
        self.visit: Visit | None = None
        self._callback = Callback(self._visited)

    def run(self, tokens: Sequence[int]) -> Any:
        """Return the logits of each token, float32 [tokens, vocabulary]. Raises RuntimeError with what llama.cpp
        says."""
        library, count = self._library, len(tokens)
        self._fit(count)
        library.llama_memory_clear(library.llama_get_memory(self._context), True)
        zero = ctypes.c_int32(0)
        batch = Batch(
            count, (ctypes.c_int32 * count)(*tokens), None, (ctypes.c_int32 * count)(*range(count)),
            (ctypes.c_int32 * count)(*[1] * count),
            (ctypes.POINTER(ctypes.c_int32) * count)(*[ctypes.pointer(zero)] * count),
            (ctypes.c_int8 * count)(*[1] * count),
        )  # fmt: skip
        code = library.llama_decode(self._context, batch)
        if code:
            raise RuntimeError(f"llama_decode gave {code}: {library.said()}")
        shape = (count, self._maker.vocabulary)
        return np.ctypeslib.as_array(library.llama_get_logits(self._context), shape).copy()

    def close(self) -> None:
        self._leave_context()
        if self._model:
            self._library.llama_model_free(self._model)
        self._model = 0

    def _fit(self, count: int) -> None:
        """All tokens go through at once: a context has as much room as they need, and is made anew for others."""
        if self._room == count:
            return
        self._leave_context()
        library, layout, maker = self._library, self._library.layout, self._maker
        parameters = library.llama_context_default_params()
        for place in (0, 4, 8):  # n_ctx, n_batch, n_ubatch
            parameters.put(place, "I", count)
        for place in (layout.n_threads, layout.n_threads + 4):  # and n_threads_batch
            parameters.put(place, "i", maker.threads or 1)
        parameters.put(layout.flash_attn_type, "i", _FLASH[maker.flash])
        for place in (layout.type_k, layout.type_k + 4):  # and type_v
            parameters.put(place, "i", _CACHE[maker.cache])
        parameters.put(layout.cb_eval, "Q", ctypes.cast(self._callback, ctypes.c_void_p).value or 0)
        library.said()
        self._context = library.llama_init_from_model(self._model, parameters) or 0
        if not self._context:
            raise RuntimeError(library.said())
        self._room = count

    def _leave_context(self) -> None:
        if self._context:
            self._library.llama_free(self._context)
        self._context = self._room = 0

    def _visited(self, address: int, asks: bool, _: Any) -> bool:
        return self.visit(address, asks) if self.visit is not None else not asks
