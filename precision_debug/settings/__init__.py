"""What a comparison and its backends can be told, each declared once.

``options``: the options of a comparison, one table, from which the command line, its help, ``RunSpec``, ``compare()``
and their documentation are made. A backend has a table of its own; a command gives its settings as flags or as --option
KEY=VALUE, a call of ``compare`` as keywords. ``share`` hands each to the sides that read it, before anything is opened;
one that no side reads is an error. A session reads them with ``value``.
"""

from .options import MEMORY_BUDGET
from .setting import SAVED, SIDES, Kind, Setting, value, without_saving
from .share import CALIBRATED, Taker, get_passed, read_by, share_settings

__all__ = [
    "CALIBRATED", "MEMORY_BUDGET", "SAVED", "SIDES", "Kind", "Setting", "Taker", "get_passed", "read_by",
    "share_settings", "value",
    "without_saving",
]  # fmt: skip
