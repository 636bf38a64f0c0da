"""Programs with more to fetch that a kernel refuses: what cannot be shown is left out, and the comparison goes on."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from precision_debug_paddle.engine.attempts import Attempts
from precision_debug_paddle.engine.fetchable import Trace, search

from precision_debug.errors import BackendError

NAMES = [f"t{number}" for number in range(6)]


def test_a_set_that_the_engine_refuses_to_run_is_halved() -> None:
    """oneDNN on a CPU without bfloat16 has no kernel behind some of a bfloat16 program's values: std::exception."""
    closed: list[Sequence[str]] = []

    def edited(names: Sequence[str]) -> Any:
        return SimpleNamespace(output_names=list(names), close=lambda: closed.append(names))

    def traced(runner: Any, _witness: Any) -> Trace:
        if "t3" in runner.output_names:
            raise BackendError("std::exception", where="decoder.json")
        return Trace()

    attempts = Attempts(
        edited=edited, traced=traced, keys=lambda names: {name: name for name in names}, plain=Trace(), most=12
    )
    found = search([("relu", [name]) for name in NAMES], attempts.changes, NAMES, 12)
    assert found.kept == [name for name in NAMES if name != "t3"]
    assert found.refused == {"t3"}
    assert [names for names in closed if "t3" in names]
    assert attempts.runner_of(tuple(found.kept)) is not None

