"""What the installed Paddle can do on this machine: oneDNN, GPU code for this card, TensorRT.

A GPU wheel holds machine code for some compute capabilities only, and often no PTX. On any other card every kernel of
Paddle's own does nothing and raises nothing, so it is asked here before anything is compared.
"""

from __future__ import annotations

import functools
import importlib
import subprocess
from pathlib import Path
from typing import Any

from precision_debug.safety import import_path

from ..reasons import say
from .framework import import_paddle

__all__ = ["Gpu", "gpu", "missing", "tensorrt_version", "versions"]


_INSTALL = "https://www.paddlepaddle.org.cn/install"


class Gpu:
    """name, capability ("9.0") and whether Paddle's own kernels give right results on the card."""

    def __init__(self, name: str, capability: str, works: bool) -> None:
        self.name, self.capability, self.works = name, capability, works

    @property
    def problem(self) -> str:
        """One clause; "" where its kernels work."""
        if self.works:
            return ""
        version = import_paddle().__version__
        return say("no_code_for_card", version=version, card=self.name, capability=self.capability)


@functools.cache
def gpu() -> Gpu | None:
    """Return the first GPU; None where this Paddle has no CUDA or the machine no card. Runs a kernel once,
    elsewhere."""
    paddle = import_paddle()
    if not paddle.is_compiled_with_cuda() or paddle.device.cuda.device_count() == 0:
        return None
    major, minor = paddle.device.cuda.get_device_capability(0)
    name = paddle.device.cuda.get_device_name(0)
    return Gpu(name, f"{major}.{minor}", _kernels_work())


_CARDS = Path("/dev/nvidiactl")  # NVIDIA's driver is at work here
_PROBE = """
import numpy as np, paddle
paddle.set_device("gpu:0")
values = np.linspace(-3, 5, 64, dtype=np.float32)
result = paddle.nn.functional.relu(paddle.to_tensor(values) * 3.0 + 1.0).numpy()
print("RIGHT" if np.allclose(result, np.maximum(values * 3 + 1, 0), rtol=1e-5, atol=1e-5) else "WRONG")
"""


@functools.cache
def _probing() -> subprocess.Popen[str] | None:
    """Return the process that tries a kernel, once it is started; None where it cannot be."""
    try:
        return subprocess.Popen(
            import_path.make_command(_PROBE), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    except OSError:
        return None


def _kernels_work() -> bool:
    """Return whether a sum that the GPU computed is the right one.

    In a process of its own: a kernel without code for the card leaves an error behind in its CUDA context, and the
    next thing that asks for errors, TensorRT for one, fails with "no kernel image is available".
    """
    child = _probing()
    if child is None:
        return False
    try:
        return "RIGHT" in child.communicate(timeout=120)[0]
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return False


def tensorrt_version() -> tuple[int, ...]:
    """Of the TensorRT that the legacy executor was built with; () where it was built without."""
    version = tuple(import_paddle().inference.get_trt_compile_version())
    return version if any(version) else ()


def missing(*, gpu: bool, own_kernels: bool, onednn: bool, tensorrt: bool, precision: str) -> str:
    """Return what a run mode needs that is not here, and how to get it; "" where it can run. May raise ImportError."""
    if gpu and _CARDS.exists():
        _probing()  # imports Paddle beside this process: a GPU wheel takes seconds
    paddle = import_paddle()
    core = paddle.base.core
    if onednn and not (core.is_compiled_with_onednn() if hasattr(core, "is_compiled_with_onednn") else _mkldnn(core)):
        return say("needs_onednn")
    if onednn and precision == "bfloat16" and not core.supports_bfloat16():
        return say("needs_avx512")
    if onednn and precision == "int8" and not core.supports_int8():
        return say("needs_avx2")
    if not gpu:
        return ""
    if not paddle.is_compiled_with_cuda():
        if tensorrt:
            return say("needs_gpu_wheel_with_tensorrt", address=_INSTALL)
        return say("needs_gpu_wheel", address=_INSTALL)
    card = _card()
    if card is None:
        return say("needs_gpu")
    if own_kernels and not card.works:
        return say("needs_another_gpu", problem=card.problem)
    if tensorrt and not tensorrt_version() and not _has_pir_tensorrt():
        return say("needs_tensorrt")
    if tensorrt and precision == "bfloat16" and (0,) < tensorrt_version() < (9,):
        built = ".".join(map(str, tensorrt_version()))
        return say("needs_tensorrt_9", version=built)
    return ""


def _card() -> Gpu | None:
    return gpu()


def _mkldnn(core: Any) -> bool:
    return bool(core.is_compiled_with_mkldnn())


def _has_pir_tensorrt() -> bool:
    try:
        converter = importlib.import_module("paddle.tensorrt")
        importlib.import_module("tensorrt")
    except Exception:
        return False
    return hasattr(converter, "convert")


def versions(*, gpu: bool, tensorrt: bool) -> dict[str, str]:
    """Framework and device, name to version."""
    paddle = import_paddle()
    found = {"paddle": paddle.__version__}
    card = _card() if gpu else None
    if card is not None:
        found |= {"device": f"{card.name} (compute capability {card.capability})", "CUDA": str(paddle.version.cuda())}
    if tensorrt and tensorrt_version():
        found["TensorRT"] = ".".join(map(str, tensorrt_version()))
    return found
