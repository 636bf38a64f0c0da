"""Build hook: compiles the comparison's C kernel where there is a compiler, else builds a pure wheel.

The library is put beside its sources, so that an editable install finds it too; a wheel that holds it is tagged for
its platform. Nothing fails without a compiler: the same numbers are then computed in numpy.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

METRICS = Path("precision_debug", "metrics")
LIBRARY = METRICS / "_kernel.so"

# No fast-math: every decision must equal numpy's float64 one. Only the sums that kernel.c names may be reordered.
FLAGS = shlex.split("-O3 -std=gnu11 -fPIC -shared -fopenmp-simd -ffp-contract=off -fno-math-errno -fno-trapping-math")


class KernelHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        problem = build(Path(self.root))
        if problem:
            self.app.display_warning(f"no C kernel ({problem}): comparisons will run in numpy, several times slower")
            return
        if version != "editable":
            build_data["artifacts"].append(LIBRARY.as_posix())
            build_data["pure_python"] = False
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{platform}"


def build(root: Path) -> str:
    """Compile the kernel in a source tree; the reason why it could not be, or ""."""
    compiler = shlex.split(os.environ.get("CC", "")) or next(
        ([name] for name in ("cc", "gcc", "clang") if shutil.which(name)), []
    )
    if not compiler:
        return "no C compiler on PATH"
    folder = root / METRICS
    source = _fingerprint(root)
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch, LIBRARY.name)
        common = [*compiler, *FLAGS, f'-DKERNEL_SOURCE="{source}"', "-o", str(made), str(folder / "kernel.c"), "-lm"]
        # Older compilers refuse several versions of one function: one plain version is then better than none.
        for extra in ([], ["-DPLAIN"]):
            try:
                result = subprocess.run([*common, *extra], capture_output=True, text=True, check=False)
            except OSError as error:
                return str(error)
            if result.returncode == 0:
                break
        else:
            return (result.stderr.strip().splitlines() or ["the compiler failed"])[0]
        try:
            library = ctypes.CDLL(str(made))
            library.pd_source.restype = ctypes.c_char_p
            if library.pd_source().decode() != source:
                return "the compiled kernel does not name its sources"
            beside = folder / f".{LIBRARY.name}.{os.getpid()}"
            shutil.copy2(made, beside)
            beside.replace(root / LIBRARY)
        except OSError as error:
            return str(error)
    return ""


def _fingerprint(root: Path) -> str:
    """As the package computes it when it loads the library; its module is loaded alone, for numpy is absent here."""
    spec = importlib.util.spec_from_file_location("_kernel_sources", root / METRICS / "kernel_sources.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    fingerprint: str = module.fingerprint(root / METRICS)
    return fingerprint


if __name__ == "__main__":
    sys.exit(build(Path(__file__).resolve().parent) or 0)
