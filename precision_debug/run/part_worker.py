"""A child process that compares parts of a command's samples: JSON lines in, JSON lines out.

The first line is the command; each further one a part (see ``PartRunner.ask``), answered by one line of events. When
standard input closes, the process ends.
"""

from __future__ import annotations

import json
import os
import sys
from typing import NoReturn

from ..safety import import_path
from .part_runner import PartRunner

__all__ = ["start"]


def start() -> NoReturn:
    """What the pool runs (see ``import_path.command``)."""
    import_path.clean()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what frameworks print is no answer
    runner: PartRunner | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        if runner is None:
            runner = PartRunner(asked)
            asked = []
        answers.write(json.dumps(runner.ask(asked), allow_nan=False) + "\n")
        answers.flush()
    os._exit(0)  # whatever the threads of a framework are at
