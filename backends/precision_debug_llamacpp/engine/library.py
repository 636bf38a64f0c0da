"""llama.cpp's C functions in the wheel ``xllamacpp``, by ctypes: the package itself is not imported.

Its structures are C++'s of one build and no stable interface, so only releases are loaded whose layout was looked at
(``LAYOUTS``), and the defaults that a build fills in are compared with them before anything is written there.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata, util
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["LAYOUTS", "Batch", "Callback", "Layout", "Library", "Parameters", "Tensor", "check_layout", "load_library"]

_PACKAGE = "xllamacpp"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the fields of llama_model_params and llama_context_params stand, in bytes, and what the build fills in.

    model_defaults, context_defaults: (offset, format of ``struct``) to the value; any other says that it is another
    layout. types: of ggml_type, how many numbers a block of Q8_0 has, and its bytes. tensor: of ggml_tensor.
    """

    n_gpu_layers: int = 16
    use_extra_bufts: int = 74
    n_threads: int = 28
    flash_attn_type: int = 52
    cb_eval: int = 88
    type_k: int = 104
    model_defaults: Mapping[tuple[int, str], int | float] = field(default_factory=lambda: {
        (16, "i"): -1, (20, "i"): 1, (72, "B"): 0, (73, "B"): 0, (74, "B"): 1, (75, "B"): 0,
    })  # fmt: skip
    context_defaults: Mapping[tuple[int, str], int | float] = field(default_factory=lambda: {
        (0, "I"): 512, (4, "I"): 2048, (8, "I"): 512, (12, "I"): 1, (40, "i"): -1, (44, "i"): -1, (48, "i"): -1,
        (52, "i"): -1, (64, "f"): -1.0, (88, "Q"): 0, (96, "Q"): 0, (104, "i"): 1, (108, "i"): 1,
    })  # fmt: skip


LAYOUTS: Mapping[str, Layout] = {"2026.10.11549": Layout()}
"""By release of the wheel, each looked at by hand and run."""


class Tensor(ctypes.Structure):
    """ggml_tensor of ggml.h: 4 dimensions, 10 sources, names of 64 bytes."""


Tensor._fields_ = [
    ("type", ctypes.c_int), ("buffer", ctypes.c_void_p), ("ne", ctypes.c_int64 * 4), ("nb", ctypes.c_size_t * 4),
    ("op", ctypes.c_int), ("op_params", ctypes.c_int32 * 16), ("flags", ctypes.c_int32), ("src", ctypes.c_void_p * 10),
    ("view_src", ctypes.c_void_p), ("view_offs", ctypes.c_size_t), ("data", ctypes.c_void_p),
    ("name", ctypes.c_char * 64), ("extra", ctypes.c_void_p), ("padding", ctypes.c_char * 8),
]  # fmt: skip


class Parameters(ctypes.Structure):
    """Room for llama_model_params or llama_context_params of any build.

    Both are returned through a hidden pointer and handed over in memory as the last argument, so more room harms not.
    """

    _fields_ = [("bytes", ctypes.c_uint8 * 512)]

    def put(self, offset: int, kind: str, value: float) -> None:
        struct.pack_into(kind, self.bytes, offset, value)

    def get(self, offset: int, kind: str) -> Any:
        return struct.unpack_from(kind, self.bytes, offset)[0]


class Batch(ctypes.Structure):
    """llama_batch of llama.h."""

    _fields_ = [
        ("n_tokens", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)), ("embd", ctypes.c_void_p),
        ("pos", ctypes.POINTER(ctypes.c_int32)), ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))), ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]  # fmt: skip


class _Traits(ctypes.Structure):
    """The beginning of ggml_type_traits of ggml.h."""

    _fields_ = [
        ("type_name", ctypes.c_char_p), ("blck_size", ctypes.c_int64), ("blck_size_interleave", ctypes.c_int64),
        ("type_size", ctypes.c_size_t), ("is_quantized", ctypes.c_bool), ("to_float", ctypes.c_void_p),
    ]  # fmt: skip


Callback = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)
"""ggml_backend_sched_eval_callback: (tensor, whether it asks, ours) to whether it is wanted, or whether to go on."""

_Log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_ToFloat = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)

_WARN, _Q8_0, _KNOWN_TYPES = 3, 8, 256

_P, _I, _S = ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p
_FUNCTIONS: Mapping[str, tuple[Any, tuple[Any, ...]]] = {
    "ggml_nbytes": (ctypes.c_size_t, (_P,)),
    "ggml_op_name": (_S, (ctypes.c_int,)),
    "ggml_op_desc": (_S, (_P,)),
    "ggml_type_name": (_S, (ctypes.c_int,)),
    "ggml_get_type_traits": (ctypes.POINTER(_Traits), (ctypes.c_int,)),
    "ggml_tensor_overhead": (ctypes.c_size_t, ()),
    "ggml_version": (_S, ()),
    "ggml_backend_tensor_get": (None, (_P, _P, ctypes.c_size_t, ctypes.c_size_t)),
    "ggml_backend_tensor_set": (None, (_P, _P, ctypes.c_size_t, ctypes.c_size_t)),
    "llama_backend_init": (None, ()),
    "llama_log_set": (None, (_Log, _P)),
    "llama_model_default_params": (Parameters, ()),
    "llama_context_default_params": (Parameters, ()),
    "llama_model_load_from_file": (_P, (_S, Parameters)),
    "llama_model_free": (None, (_P,)),
    "llama_model_has_encoder": (ctypes.c_bool, (_P,)),
    "llama_init_from_model": (_P, (_P, Parameters)),
    "llama_free": (None, (_P,)),
    "llama_decode": (_I, (_P, Batch)),
    "llama_get_logits": (ctypes.POINTER(ctypes.c_float), (_P,)),
    "llama_get_memory": (_P, (_P,)),
    "llama_memory_clear": (None, (_P, ctypes.c_bool)),
    "llama_print_system_info": (_S, ()),
}


class Library:
    """The functions by their own names, as attributes, and what the library said of late (``said``)."""

    def __init__(self, path: str, layout: Layout, version: str) -> None:
        """Raises OSError where it cannot be loaded, ValueError where it is another layout."""
        self._library = ctypes.CDLL(path)
        self.layout, self.version = layout, version
        for name, (result, arguments) in _FUNCTIONS.items():
            try:
                function = getattr(self._library, name)
            except AttributeError as error:
                raise ValueError(f"xllamacpp {version} has no function {name}") from error
            function.restype, function.argtypes = result, arguments
        check_layout(self)
        self._said: list[str] = []
        self._log = _Log(self._hear)
        self.llama_log_set(self._log, None)
        self.llama_backend_init()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def _hear(self, level: int, text: bytes | None, _: Any) -> None:
        if level >= _WARN and text:
            self._said.append(text.decode("utf-8", "replace").strip())

    def said(self) -> str:
        """Return what it warned of since this was asked last, on one line."""
        lines, self._said[:] = list(self._said), []
        return " ".join(filter(None, lines)) or "it does not say why"

    def type_name(self, kind: int) -> str:
        """Return "Q4_K", "F16"; what is not known by its number."""
        known = self.ggml_type_name(kind) if 0 <= kind < _KNOWN_TYPES else None
        return known.decode().upper() if known else f"type {kind}"

    def op_name(self, op: int) -> str:
        return str(self.ggml_op_name(op).decode())

    def data_size(self, kind: int, elements: int) -> int:
        """Return bytes that so many numbers take. Raises ValueError."""
        traits = self._traits(kind)
        if elements % traits.blck_size:
            raise ValueError(f"{elements} numbers are no whole blocks of {self.type_name(kind)}")
        return int(elements // traits.blck_size * traits.type_size)

    def decode(self, kind: int, data: Any, elements: int) -> Any:
        """Blocks, a contiguous array of uint8, to float32. Raises ValueError."""
        traits = self._traits(kind)
        if not traits.to_float:
            raise ValueError(f"llama.cpp does not dequantise {self.type_name(kind)}")
        out = np.empty(elements, np.float32)
        _ToFloat(traits.to_float)(data.ctypes.data, out.ctypes.data, elements)
        return out

    def is_quantised(self, kind: int) -> bool:
        return bool(self._traits(kind).is_quantized)

    def _traits(self, kind: int) -> Any:
        if not 0 <= kind < _KNOWN_TYPES or not (traits := self.ggml_get_type_traits(kind)) or not traits[0].blck_size:
            raise ValueError(f"ggml's type {kind} is not known to xllamacpp {self.version}")
        return traits[0]


def check_layout(made: Library) -> None:
    """Raises ValueError where a structure is not what ``Layout`` says, before a wrong byte is written."""
    layout = made.layout
    for what, filled, wanted in (
        ("llama_model_params", made.llama_model_default_params(), layout.model_defaults),
        ("llama_context_params", made.llama_context_default_params(), layout.context_defaults),
    ):
        for (offset, kind), value in wanted.items():
            if (found := filled.get(offset, kind)) != value:
                raise ValueError(
                    f"{what} of xllamacpp {made.version} has {found} at byte {offset}, where {value} is expected:"
                    f" another layout; install one of {', '.join(LAYOUTS)}"
                )
    head = made.ggml_tensor_overhead() - ctypes.sizeof(Tensor)
    traits = made.ggml_get_type_traits(_Q8_0)[0]
    if head != 32 or (traits.type_name, traits.blck_size, traits.type_size) != (b"q8_0", 32, 34):
        raise ValueError(
            f"ggml_tensor of xllamacpp {made.version} has another layout; install one of {', '.join(LAYOUTS)}"
        )


def find(package: str = _PACKAGE) -> tuple[str, str]:
    """Where the library is, and the release of its wheel. Raises ModuleNotFoundError or ValueError."""
    found = util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named '{package}'")
    version = metadata.version(package)
    if version not in LAYOUTS:
        raise ValueError(f"{package} {version} is not known here: install {package}=={next(iter(LAYOUTS))}")
    places = [path for place in found.submodule_search_locations for path in Path(place).glob("xllamacpp*.so")]
    if not places:
        raise ValueError(f"{package} {version} has no xllamacpp*.so")
    return str(places[0]), version


@functools.cache
def load_library() -> Library:
    """Return the one of this process. Raises ModuleNotFoundError, OSError or ValueError, in one line."""
    path, version = find()
    return Library(path, LAYOUTS[version], version)
