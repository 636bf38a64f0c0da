"""Python code in an interpreter of its own, run to its end: what an engine logs while it starts, or may end it."""

from __future__ import annotations

import subprocess

from . import import_path

__all__ = ["run_code"]


def run_code(code: str) -> subprocess.CompletedProcess[str]:
    """Run it where this process finds its modules, and return how it ended and what it printed."""
    return subprocess.run(
        import_path.make_command(code), capture_output=True, text=True, check=False, timeout=600, errors="replace"
    )
