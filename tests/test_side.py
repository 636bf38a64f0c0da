"""One side of a run: what it tells the journal, how failures leave, and that it is closed whatever happens."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from approval import raises_approved

from precision_debug.errors import BackendError, InputError
from precision_debug.events import SideDone, SideOpened, Stage, Tensors
from precision_debug.feeds import FeedSet
from precision_debug.protocols import Feeds, Hook, tell
from precision_debug.reasons import Reason
from precision_debug.records import ModelFiles, RunSpec
from precision_debug.run.journal import Journal, read_events
from precision_debug.run.plan import Opening, make_plan
from precision_debug.run.side import OpenSide, guard_call, open_both

FEEDS = FeedSet(feeds=({"x": np.zeros(4, np.float32)},), source="zeros", notes=())


def openings(fake: str, mode: str = "fake_off") -> tuple[Opening, Opening]:
    plan = make_plan(RunSpec(model=ModelFiles(model_file=fake), run_mode=mode))
    assert plan.baseline is not None
    return plan.baseline, plan.target


def test_a_side_tells_what_it_is_has_and_did(fake: str, tmp_path: Path) -> None:
    seen: list[str] = []
    with Journal(tmp_path / "j") as journal, OpenSide("target", openings(fake)[1], FEEDS, journal) as side:
        outputs = side.run(lambda _kind, name, _tensor: seen.append(name), None)
        side.announce()
    told = list(read_events(tmp_path / "j"))
    kinds = [Stage, SideOpened, Tensors, SideOpened, Stage, SideOpened, SideDone, Tensors, SideOpened]
    assert [type(event) for event in told] == kinds
    last = told[-1]
    assert isinstance(last, SideOpened)
    assert (last.side, last.info.mode, last.info.backend, last.info.tensors) == ("target", "fake_off", "fake", 8)
    assert last.info.seconds is not None
    assert seen == [f"t{number}" for number in range(8)]
    np.testing.assert_array_equal(outputs["t7"], np.float32([8.5] * 4))


def test_what_a_backend_raises_leaves_as_ours() -> None:
    def fail(error: Exception) -> Any:
        raise error

    with pytest.raises(BackendError, match=r"fake_fp32: ValueError: no unicorn") as caught:
        guard_call("fake_fp32", lambda: fail(ValueError("no unicorn")))
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(BackendError, match="out of memory"):
        guard_call("fake_fp32", lambda: fail(MemoryError()))
    ours = InputError("too long")
    with pytest.raises(InputError) as own:
        guard_call("fake_fp32", lambda: fail(ours))
    assert own.value is ours


def test_an_engine_that_fails_is_told_which_sizes_were_chosen_for_it(fake: str, tmp_path: Path) -> None:
    chosen = FeedSet(feeds=FEEDS.feeds, source="random", notes=(), chosen={"x": (4,)})
    with (
        Journal(tmp_path / "j") as journal,
        OpenSide("target", openings(fake, "fake_raise")[1], chosen, journal) as side,
        raises_approved(BackendError),
    ):
        side.run(lambda *_: None, None)


class _Closes:
    """A session of the fake backend, and whether it was closed."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.closed = inner, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        outputs: Mapping[str, Any] = self._inner.run(feeds, hook, names)
        return outputs

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("together", [True, False])
def test_both_sides_are_closed_whatever_happens(
    fake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    made: list[_Closes] = []
    opens = Opening.open

    def watched(self: Opening, feeds: Any) -> Any:
        made.append(_Closes(opens(self, feeds)))
        return made[-1]

    monkeypatch.setattr(Opening, "open", watched)
    first, second = openings(fake)
    with Journal(tmp_path / "j") as journal, pytest.raises(KeyError):  # noqa: SIM117
        with open_both(first, second, FEEDS, journal, together):
            raise KeyError("in between")
    assert [session.closed for session in made] == [1, 1]


class _Learns(_Closes):
    """After its run it knows fewer tensors, and goes on to something that takes long."""

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        tell(Reason("building one engine"))
        outputs = super().run(feeds, hook, names)
        self.tensors = self._inner.tensors[2:]
        tell(Reason("building another"))
        return outputs


def test_what_a_session_learnt_is_told_before_it_goes_on(
    fake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An end in the second build, of a minute or more, leaves a report that knows what the first one showed."""
    opens = Opening.open
    monkeypatch.setattr(Opening, "open", lambda self, feeds: _Learns(opens(self, feeds)))
    with Journal(tmp_path / "j") as journal, OpenSide("target", openings(fake)[1], FEEDS, journal) as side:
        side.run(lambda *_: None, None)
    told = list(read_events(tmp_path / "j"))[4:]
    assert [type(event) for event in told] == [Stage, Stage, Tensors, SideOpened, Stage, SideOpened, SideDone]
    assert str(told[1].text) == "target: building one engine"  # type: ignore[union-attr]
    assert [meta.name for meta in told[2].tensors] == [f"t{number}" for number in range(2, 8)]  # type: ignore[union-attr]
