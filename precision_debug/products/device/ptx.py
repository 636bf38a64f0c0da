"""The kernels as the driver takes them, compiled beforehand: ``python -m precision_debug.products.device.ptx``.

The archive lies in the package, so that neither a compiler nor CUDA's toolkit is needed where the kernels run. It holds
machine code for cards of compute capability 8.x and 9.0, and for all others a text (PTX) that the driver turns into
their own instructions at the first use. Compiling needs NVIDIA's compiler library alone
(``pip install nvidia-cuda-nvrtc-cu12``), and no card.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import re
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...errors import BackendError
from ...safety.compiled import fingerprint_sources

__all__ = ["ARCHIVE", "PAIRS", "SOURCES", "compile_modules", "load_kernel_code", "write"]

ARCHIVE = Path(__file__).with_name("kernels.zip")
SOURCES = ("compare.cu", "device.h", "scan.h", "settle.h", "../../numbers/held.h")
PAIRS = ("f32_f32", "f16_f16", "bf16_bf16", "f32_f16", "f32_bf16")
"""Types of the baseline and the target for which there is a scan."""

_STRUCTS = {"f32": "Float", "f16": "Half", "bf16": "Brain"}
_CODE = (80, 90)
"""Machine code of a capability runs on cards of the same first figure from there on."""
_TEXT = (80, 70)
"""A text's instructions are those of every later card."""
_VERSION = "7.0"
"""Of PTX: drivers of CUDA 11.0 and later read it. The compiler writes its own newest one, of which nothing is used."""


def load_kernel_code(name: str, capability: int) -> tuple[str, Iterator[bytes]]:
    """Return the module that has a kernel, and what the driver may load for it on a card of this compute capability
    (90: 9.0).

    The machine code first, then the text, since a driver may be older than the machine code's format.
    """
    module = next((pair for pair in PAIRS if name.startswith(f"scan_{pair}_")), "common")
    code = [f"{one}/{module}.cubin" for one in _CODE if one // 10 == capability // 10 and one <= capability]
    text = [f"{one}/{module}.ptx" for one in _TEXT if one <= capability]
    if not text:
        raise BackendError(f"a card of compute capability {capability / 10}", hint="7.0 (Volta) or later is needed")
    return module, map(_read_member, (*code[-1:], text[0]))


@functools.cache
def _read_member(member: str) -> bytes:
    """One module of one architecture. Raises BackendError where the archive is of other sources."""
    try:
        with zipfile.ZipFile(ARCHIVE) as archive:
            if archive.comment.decode() == fingerprint_sources(ARCHIVE.parent, SOURCES):
                return archive.read(member)
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise BackendError(f"cannot be read ({error})", where=ARCHIVE.name, hint="reinstall precision_debug") from error
    hint = "python -m precision_debug.products.device.ptx compiles them again"
    raise BackendError("the kernels were compiled of other sources", where=ARCHIVE.name, hint=hint)


def compile_modules(modules: Sequence[str] = ("common", *PAIRS)) -> dict[str, bytes]:
    """Members of the archive, compiled anew. Raises BackendError."""
    compiler = _find_compiler()
    folder = ARCHIVE.parent
    headers = {Path(name).name: (folder / name).read_bytes() for name in SOURCES[1:]}
    source = (folder / SOURCES[0]).read_bytes()
    found = {}
    for module, (kind, architectures) in itertools.product(modules, (("cubin", _CODE), ("ptx", _TEXT))):
        defined = []
        if module != "common":
            base, target = (_STRUCTS[name] for name in module.split("_"))
            defined = [f"-DPAIR={module}", f"-DBASE={base}", f"-DTARGET={target}"]
        for one in architectures:
            virtual = "sm" if kind == "cubin" else "compute"
            made = _compile(compiler, source, headers, kind, f"--gpu-architecture={virtual}_{one}", *defined)
            if kind == "ptx":
                made = re.sub(rb"^//.*\n", b"", made.rstrip(b"\0"), flags=re.MULTILINE).strip() + b"\n"
                made = re.sub(rb"^\.version .*$", f".version {_VERSION}".encode(), made, flags=re.MULTILINE)
            found[f"{one}/{module}.{kind}"] = made
    return found


def write() -> None:
    """Compile, and put the archive beside the sources."""
    members = compile_modules()
    with zipfile.ZipFile(ARCHIVE, "w", zipfile.ZIP_LZMA) as archive:
        for member, content in members.items():
            archive.writestr(zipfile.ZipInfo(member), content, zipfile.ZIP_LZMA)
        archive.comment = fingerprint_sources(ARCHIVE.parent, SOURCES).encode()
    _read_member.cache_clear()


def _find_compiler() -> Any:
    import importlib.util

    found = importlib.util.find_spec("nvidia")
    folders = [Path(place) for place in (found.submodule_search_locations or ())] if found else []
    names = [path for folder in folders for path in sorted(folder.glob("*/lib/libnvrtc.so.*"))]
    for name in (*map(str, names), "libnvrtc.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise BackendError("NVIDIA's compiler library is missing", hint="pip install nvidia-cuda-nvrtc-cu12==12.8.*")


def _compile(compiler: Any, source: bytes, headers: dict[str, bytes], kind: str, *options: str) -> bytes:
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    names = (ctypes.c_char_p * len(headers))(*(name.encode() for name in headers))
    texts = (ctypes.c_char_p * len(headers))(*headers.values())
    compiler.nvrtcCreateProgram(ctypes.byref(program), source, b"compare.cu", len(headers), texts, names)
    # as the host decides an element, so it is decided here: no product is contracted with a sum but where fmaf says so
    words = [*options, "--fmad=false", "--std=c++17", "--diag-suppress=128"]
    status = compiler.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*map(str.encode, words)))
    wanted = "ProgramLog" if status else kind.upper()
    getattr(compiler, f"nvrtcGet{wanted}Size")(program, ctypes.byref(size))
    room = ctypes.create_string_buffer(size.value)
    getattr(compiler, f"nvrtcGet{wanted}")(program, room)
    compiler.nvrtcDestroyProgram(ctypes.byref(program))
    if status:
        raise BackendError(f"compare.cu does not compile: {room.value.decode()[:2000]}")
    return room.raw


if __name__ == "__main__":
    write()
    sys.exit(0)
