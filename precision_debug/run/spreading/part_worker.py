"""A child process that answers questions of a pool: JSON lines in, JSON lines out.

The first line is what its runner is made with; each further one a question (see ``PartRunner.ask`` and
``SetRunner.ask``), answered by one line of events. When standard input closes, the process ends.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any, NoReturn

from ...safety import import_path

__all__ = ["start"]


def start(module: str, name: str) -> NoReturn:
    """What the pool runs (see ``import_path.command``). module, name: of the runner's class."""
    import_path.clean()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what frameworks print is no answer
    make = getattr(importlib.import_module(module), name)
    runner: Any = None
    for line in sys.stdin:
        asked = json.loads(line)
        if runner is None:
            runner = make(asked)
            asked = []
        answers.write(json.dumps(runner.ask(asked), allow_nan=False) + "\n")
        answers.flush()
    os._exit(0)  # whatever the threads of a framework are at
