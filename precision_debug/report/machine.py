"""Where and when a report was made."""

from __future__ import annotations

import datetime
import os
import platform
import sys

from ..__about__ import __version__

__all__ = ["machine", "now", "processor"]


def machine() -> dict[str, str]:
    """What the report says of where it was made."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "precision_debug": __version__,
        "python": platform.python_version(),
        "platform": _platform(),
        "host": platform.node(),
        "processor": processor(),
        "cores": str(count),
        "executable": sys.executable,
    }


def now() -> str:
    """Local time to the second, ISO 8601 with its offset."""
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def _platform() -> str:
    """As ``platform.platform``, which starts a process to ask for the processor and leaves the answer out."""
    system = platform.uname()
    name = f"{system.system}-{system.release}-{system.machine}"
    return name if sys.platform != "linux" else "-with-".join(filter(None, [name, "".join(platform.libc_ver())]))


def processor() -> str:
    """The processor's model where the system tells it, else its kind."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
