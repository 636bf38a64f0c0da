"""Build hook: compiles the C libraries where there is a compiler, else builds a pure wheel.

A library is put beside its sources, so that an editable install finds it too; a wheel that holds one is tagged for its
platform, on Linux for the oldest glibc that the libraries ask for (manylinux), so that pip takes it wherever they run:
neither the libraries nor the tag know a version of Python. Nothing fails without a compiler: numbers are then computed
in numpy, and onnxruntime-extensions taps.

`python hatch_build.py` compiles them again in a checkout, after a change of their sources.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ModuleNotFoundError:  # only a build has it; `python hatch_build.py` compiles in a checkout without it
    BuildHookInterface = None

PURE = "PRECISION_DEBUG_PURE"
"""In the environment: compile nothing, so that the wheel is one for every platform."""


class Library(NamedTuple):
    """A library, its sources beside it (the first is compiled), and flags to try one after the other."""

    path: Path
    sources: tuple[str, ...]
    flags: tuple[str, ...]
    variants: tuple[tuple[str, ...], ...] = ((),)


LIBRARIES = (
    Library(
        Path("precision_debug", "numbers", "_kernel.so"),
        ("kernel.c", "kernel_core.h", "held.h"),
        # No fast-math: every decision must equal numpy's float64 one. Only the sums that kernel.c names may be
        # reordered. Older compilers refuse several versions of one function: one plain version is then better.
        ("-O3", "-fopenmp-simd", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
        ((), ("-DPLAIN",)),
    ),
    Library(
        Path("precision_debug", "numbers", "_rounding.so"),
        ("rounding.c",),
        ("-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
        ((), ("-DPLAIN",)),
    ),
    Library(
        Path("precision_debug", "numbers", "_slices.so"),
        ("slices.c",),
        ("-O3", "-fopenmp-simd", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
        ((), ("-DPLAIN",)),
    ),
    Library(Path("backends", "precision_debug_onnxruntime", "_tap.so"), ("tap.c",), ("-O2", "-pthread")),
)


if BuildHookInterface is not None:

    class KernelHook(BuildHookInterface[Any]):
        PLUGIN_NAME = "custom"

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            if self.target_name != "wheel" or os.environ.get(PURE):
                return
            made, problem = compiled(Path(self.root))
            if problem:
                slower = f"not all C code is compiled ({problem}): commands will be several times slower"
                self.app.display_warning(f"{slower}; `precision_debug doctor` tells it, too")
            if made and version != "editable":
                build_data["artifacts"] += [path.as_posix() for path in made]
                build_data["pure_python"] = False
                build_data["tag"] = f"py3-none-{platform_of([Path(self.root, path) for path in made])}"


def build(root: Path) -> str:
    """Compile the libraries in a source tree; the reason why one could not be, or ""."""
    return compiled(root)[1]


def compiled(root: Path) -> tuple[list[Path], str]:
    """The libraries that were compiled in a source tree, and the first reason why one could not be, or ""."""
    compiler = shlex.split(os.environ.get("CC", "")) or next(
        ([name] for name in ("cc", "gcc", "clang") if shutil.which(name)), []
    )
    if not compiler:
        return [], "no C compiler on PATH"
    tell = _module(root)
    problems = {library.path: _compile(root, library, compiler, tell) for library in LIBRARIES}
    made = [path for path, problem in problems.items() if not problem]
    return made, next((problem for problem in problems.values() if problem), "")


def platform_of(libraries: list[Path]) -> str:
    """The platform tag of a wheel with these libraries: manylinux (PEP 600) where they need glibc and nothing else."""
    own = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    machine = own.removeprefix("linux_")
    if machine not in _OLDEST_GLIBC or sys.maxsize < 2**32:
        return own
    texts = [path.read_bytes() for path in libraries]
    needed = {name.decode() for text in texts for name in re.findall(rb"\0(lib[\w+-]+\.so[.\d]*)(?=\0)", text)}
    asked = [(int(a), int(b)) for text in texts for a, b in re.findall(rb"GLIBC_(\d+)\.(\d+)", text)]
    if not asked or not needed <= _GLIBC:
        return own
    major, minor = max(*asked, _OLDEST_GLIBC[machine])
    return f"manylinux_{major}_{minor}_{machine}"


_OLDEST_GLIBC = {"x86_64": (2, 17), "aarch64": (2, 17)}
"""The oldest that indexes and auditwheel know as a tag for both machines (manylinux2014)."""

_GLIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"}


def _compile(root: Path, library: Library, compiler: list[str], tell: ModuleType) -> str:
    folder = root / library.path.parent
    source = tell.fingerprint_sources(folder, library.sources)
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch, library.path.name)
        common = [*compiler, "-std=gnu11", "-fPIC", "-shared", *library.flags, f'-DSOURCE="{source}"']
        common += ["-o", str(made), str(folder / library.sources[0]), "-lm"]
        for extra in library.variants:
            try:
                result = subprocess.run([*common, *extra], capture_output=True, text=True, check=False)
            except OSError as error:
                return str(error)
            if result.returncode == 0:
                break
        else:
            return (result.stderr.strip().splitlines() or ["the compiler failed"])[0]
        try:
            opened = ctypes.CDLL(str(made))
            opened.pd_source.restype = ctypes.c_char_p
            if opened.pd_source().decode() != source:
                return f"{library.path.name} does not name its sources"
            beside = folder / f".{library.path.name}.{os.getpid()}"
            shutil.copy2(made, beside)
            beside.replace(root / library.path)
        except OSError as error:
            return str(error)
    return ""


def _module(root: Path) -> ModuleType:
    """What the package asks when it loads a library; loaded alone, for numpy is absent here."""
    spec = importlib.util.spec_from_file_location("_compiled", root / "precision_debug" / "safety" / "compiled.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(build(Path(__file__).resolve().parent) or 0)
