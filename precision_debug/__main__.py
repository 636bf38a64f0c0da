"""python -m precision_debug, and the command of the same name."""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
from typing import Any

__all__ = ["main"]


def _interrupt_again(unraisable: Any) -> None:
    """Raise Ctrl-C a moment later where it came inside a callback, which Python prints and goes on."""
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    again = threading.Timer(0.05, _interrupt)
    again.daemon = True
    with contextlib.suppress(RuntimeError):  # Python is ending already
        again.start()


def _interrupt() -> None:
    if hasattr(signal, "pthread_kill"):  # ends what the main thread waits for, too
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()


def main() -> int:
    """Run the command of sys.argv and return its status; Ctrl-C during the imports is one line too."""
    sys.unraisablehook = _interrupt_again
    try:
        from precision_debug.cli import main as run_command

        return run_command()
    except KeyboardInterrupt:
        sys.stderr.write("precision_debug: interrupted\n")
        return 3


if __name__ == "__main__":
    sys.exit(main())
