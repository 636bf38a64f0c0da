"""Plugin execution providers of ONNX Runtime: libraries that are registered at run time (1.23 and later)."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from precision_debug.errors import BackendUnavailable

from ..reasons import say

__all__ = ["KNOWN", "Plugin", "devices_of"]


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A provider that comes as a Python package. module: has ``get_library_path()``. package: what pip installs.

    options: of the provider, where it is to compute as on its chip; a value "@name" is what the module's function
    returns.
    """

    provider: str
    module: str = ""
    package: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    library: str = ""

    def resolved(self) -> dict[str, str]:
        """Return the options with paths filled in. Raises BackendUnavailable."""
        module = _module(self) if any(text.startswith("@") for text in self.options.values()) else None
        return {
            name: str(getattr(module, text[1:])()) if text.startswith("@") else text
            for name, text in self.options.items()
        }


KNOWN = {
    # the emulator of the wheel computes in FP32 where no chip is named, and as the chip does where one is: HTP v75
    # (Snapdragon 8 Gen 3) holds floats in FP16
    "qnn": Plugin(
        provider="QNNExecutionProvider", module="onnxruntime_qnn", package="onnxruntime-qnn",
        options={"backend_path": "@get_qnn_htp_path", "htp_arch": "75", "soc_model": "60"},
    ),
    "openvino": Plugin(
        provider="OpenVINOExecutionProvider", module="onnxruntime_ep_openvino", package="onnxruntime-ep-openvino"
    ),
    "nv_tensorrt_rtx": Plugin(
        provider="NvTensorRTRTXExecutionProvider", module="onnxruntime_ep_nv_tensorrt_rtx",
        package="onnxruntime-ep-nv-tensorrt-rtx-cu13",
    ),
}  # fmt: skip

_registered: set[str] = set()
_registering = threading.Lock()


def devices_of(plugin: Plugin) -> list[Any]:
    """Return the devices that a provider offers here, registered once in the process. Raises BackendUnavailable."""
    import onnxruntime as ort

    if not hasattr(ort, "register_execution_provider_library"):
        raise BackendUnavailable(say("needs_plugins", version=ort.__version__))
    with _registering:
        if plugin.provider not in _registered:
            library = plugin.library or str(_module(plugin).get_library_path())
            try:
                ort.register_execution_provider_library(plugin.provider, library)
            except Exception as error:
                text = " ".join(str(error).split())[:300]
                raise BackendUnavailable(say("provider_fails", provider=plugin.provider, error=text)) from error
            _registered.add(plugin.provider)
    found = [device for device in ort.get_ep_devices() if device.ep_name == plugin.provider]
    if not found:
        raise BackendUnavailable(say("no_ep_device", provider=plugin.provider))
    return found


def _module(plugin: Plugin) -> Any:
    try:
        return importlib.import_module(plugin.module)
    except ImportError as error:
        raise BackendUnavailable(say("needs_package", package=plugin.package, error=str(error))) from error
