"""The kernels' text for the driver (PTX), compiled from compare.cu beforehand: ``python -m precision_debug.numbers.cuda.ptx``.

The archive lies in the package, so that neither a compiler nor CUDA's toolkit is needed where the kernels run; the
driver turns the text into its card's own instructions, and keeps those. Compiling needs NVIDIA's compiler library alone
(``pip install nvidia-cuda-nvrtc-cu12``), and no card.
"""

from __future__ import annotations

import ctypes
import functools
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

from ...errors import BackendError
from ...safety.compiled import fingerprint

__all__ = ["ARCHIVE", "PAIRS", "SOURCES", "compiled", "kernel_texts", "write"]

ARCHIVE = Path(__file__).with_name("kernels.zip")
SOURCES = ("compare.cu", "device.h", "scan.h", "settle.h", "../metrics.h")
PAIRS = ("f32_f32", "f16_f16", "bf16_bf16", "f32_f16", "f32_bf16")
"""Types of the baseline and the target for which there is a scan."""

_STRUCTS = {"f32": "Float", "f16": "Half", "bf16": "Brain"}
_ARCHITECTURES = (80, 70)
_VERSION = "7.0"
"""Of PTX: drivers of CUDA 11.0 and later read it. The compiler writes its own newest one, of which nothing is used."""


def kernel_texts(name: str, capability: int) -> tuple[str, bytes]:
    """The module that has a kernel, and its text, for a device of this compute capability (90 for 9.0)."""
    module = next((pair for pair in PAIRS if name.startswith(f"scan_{pair}_")), "common")
    architecture = next((one for one in _ARCHITECTURES if one <= capability), 0)
    if not architecture:
        raise BackendError(f"a card of compute capability {capability / 10}", hint="7.0 (Volta) or later is needed")
    return module, _text(f"{architecture}/{module}.ptx")


@functools.cache
def _text(member: str) -> bytes:
    """One module of one architecture. Raises BackendError where the archive is of other sources."""
    try:
        with zipfile.ZipFile(ARCHIVE) as archive:
            if archive.comment.decode() == fingerprint(ARCHIVE.parent, SOURCES):
                return archive.read(member)
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise BackendError(f"cannot be read ({error})", where=ARCHIVE.name, hint="reinstall precision_debug") from error
    hint = "python -m precision_debug.numbers.cuda.ptx compiles them anew"
    raise BackendError("the kernels were compiled of other sources", where=ARCHIVE.name, hint=hint)


def compiled() -> dict[str, str]:
    """Every member of the archive, compiled anew. Raises BackendError."""
    compiler = _compiler()
    folder = ARCHIVE.parent
    headers = {Path(name).name: (folder / name).read_bytes() for name in SOURCES[1:]}
    source = (folder / SOURCES[0]).read_bytes()
    texts = {}
    for architecture in _ARCHITECTURES:
        for module in ("common", *PAIRS):
            defined = []
            if module != "common":
                base, target = (_STRUCTS[name] for name in module.split("_"))
                defined = [f"-DPAIR={module}", f"-DBASE={base}", f"-DTARGET={target}"]
            made = _compile(compiler, source, headers, f"--gpu-architecture=compute_{architecture}", *defined)
            made = re.sub(r"^//.*\n", "", made, flags=re.MULTILINE)
            made = re.sub(r"^\.version .*$", f".version {_VERSION}", made, flags=re.MULTILINE)
            texts[f"{architecture}/{module}.ptx"] = made.strip() + "\n"
    return texts


def write() -> None:
    """Compile, and put the archive beside the sources."""
    texts = compiled()
    with zipfile.ZipFile(ARCHIVE, "w", zipfile.ZIP_LZMA) as archive:
        for member, text in texts.items():
            archive.writestr(zipfile.ZipInfo(member), text, zipfile.ZIP_LZMA)
        archive.comment = fingerprint(ARCHIVE.parent, SOURCES).encode()
    _text.cache_clear()


def _compiler() -> Any:
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


def _compile(compiler: Any, source: bytes, headers: dict[str, bytes], *options: str) -> str:
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    names = (ctypes.c_char_p * len(headers))(*(name.encode() for name in headers))
    texts = (ctypes.c_char_p * len(headers))(*headers.values())
    compiler.nvrtcCreateProgram(ctypes.byref(program), source, b"compare.cu", len(headers), texts, names)
    # as the host decides an element, so it is decided here: no product is contracted with a sum but where fmaf says so
    words = [*options, "--fmad=false", "--std=c++17", "--diag-suppress=128"]
    status = compiler.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*map(str.encode, words)))
    kind = "ProgramLog" if status else "PTX"
    getattr(compiler, f"nvrtcGet{kind}Size")(program, ctypes.byref(size))
    room = ctypes.create_string_buffer(size.value)
    getattr(compiler, f"nvrtcGet{kind}")(program, room)
    compiler.nvrtcDestroyProgram(ctypes.byref(program))
    if status:
        raise BackendError(f"compare.cu does not compile: {room.value.decode()[:2000]}")
    return room.value.decode()


if __name__ == "__main__":
    write()
    sys.exit(0)
