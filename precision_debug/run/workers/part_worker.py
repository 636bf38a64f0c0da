"""A child process that answers questions of a pool: JSON lines in, JSON lines out.

The first line is what its runner is made with; each further one a question (see ``PartRunner.ask`` and
``SetRunner.ask``), answered by one line of events. When standard input closes, the process ends at once, whatever it is
at: nobody waits for that answer. Its folder is removed by whoever made it.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import sys
import threading
from typing import Any, NoReturn

from ...numbers.cores import take_share
from ...safety import import_path

__all__ = ["start"]


def start(module: str, name: str) -> NoReturn:
    """What the pool runs (see ``import_path.command``). module, name: of the runner's class."""
    import_path.clean()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what frameworks print is not an answer
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    make = getattr(importlib.import_module(module), name)
    runner: Any = None
    while True:
        question = json.loads(asked.get())
        if runner is None:
            take_share(question.pop("cores"))
            runner = make(question)
            question = []
        try:
            answers.write(json.dumps(runner.ask(question), allow_nan=False) + "\n")
            answers.flush()
        except BrokenPipeError:
            os._exit(0)


def _listen(asked: queue.SimpleQueue[str]) -> NoReturn:
    for line in sys.stdin:
        asked.put(line)
    os._exit(0)  # whatever the threads of a framework are at
