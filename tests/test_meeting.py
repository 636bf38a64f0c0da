from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from approval import raises_approved
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_debug.errors import BackendError
from precision_debug.observe.lockstep import Meeting, run_both
from precision_debug.observe.store import Store


class Counting(Store):
    def __init__(self) -> None:
        super().__init__()
        self.puts = 0

    def put(self, key: str, array: np.ndarray) -> None:  # type: ignore[type-arg]
        self.puts += 1
        super().put(key, array)


def ask(meeting: Meeting, asked: list[str]) -> dict[str, int | None]:
    """The target's side: the first number of each tensor that it asks for; None where there is none."""
    seen: dict[str, int | None] = {}
    for key in asked:
        got = meeting.get(key)
        seen[key] = None if got is None else int(got[0])
        meeting.drop(key)
    return seen


def drive(produced: list[str], asked: list[str], store: Store) -> dict[str, int | None]:
    meeting = Meeting(store)
    buffer = np.zeros(3, np.int64)

    def baseline() -> str:
        for number, key in enumerate(produced):
            buffer[...] = hash(key) % 1000 + number * 0
            meeting.put(key, buffer)
        return "b"

    one, seen = run_both(meeting, baseline, lambda: ask(meeting, asked))
    assert one == "b"
    return seen


@settings(deadline=None, max_examples=200)
@given(st.permutations(list("abcdefgh")), st.lists(st.sampled_from("abcdefghxyz"), unique=True))
def test_any_two_orders_meet_and_nothing_is_overwritten_early(produced: list[str], asked: list[str]) -> None:
    store = Store()
    seen = drive(produced, asked, store)
    assert seen == {key: (hash(key) % 1000 if key in produced else None) for key in asked}
    assert set(store) == set(produced) - set(asked)


@settings(deadline=None, max_examples=200)
@given(
    st.permutations(list("abcdefgh")),
    st.lists(st.sampled_from("abcdefghxyz"), unique=True),
    st.lists(st.integers(0, 4), min_size=8, max_size=8),
    st.sampled_from([0, 30, 1 << 40]),
)
def test_what_is_lent_stays_as_it_is_until_it_is_given_back(
    produced: list[str], asked: list[str], later: list[int], quietly: int
) -> None:
    """later: how many tensors more are lent before each is asked back, then overwritten."""
    store = Store()
    meeting = Meeting(store, quietly=quietly)

    def baseline() -> None:
        lent: list[tuple[int, np.ndarray, Callable[[], None]]] = []  # type: ignore[type-arg]

        def give_back(until: int) -> None:
            for number, tensor, end in lent:
                if number <= until:
                    end()
                    tensor[...] = -1
            lent[:] = [loan for loan in lent if loan[0] > until]

        for number, key in enumerate(produced):
            tensor = np.full(3, ord(key))
            lent.append((number + later[number], tensor, meeting.lend(key, tensor)))
            give_back(number)
        give_back(100)

    _, seen = run_both(meeting, baseline, lambda: ask(meeting, asked))
    assert seen == {key: (ord(key) if key in produced else None) for key in asked}
    assert set(store) == set(produced) - set(asked)
    assert all(store.get(key)[0] == ord(key) for key in store)


def test_a_loan_waits_until_the_target_has_compared_and_copies_nothing() -> None:
    store = Counting()
    meeting = Meeting(store)
    told: list[str] = []

    def baseline() -> None:
        first, second = meeting.lend("a", np.zeros(1)), meeting.lend("b", np.zeros(1))
        told.append("both are lent")
        first()
        told.append("a is back")
        second()

    def target() -> None:
        assert meeting.get("a") is not None
        while not told:
            time.sleep(0.001)
        time.sleep(0.05)
        assert told == ["both are lent"], "a was given back while it was being compared"
        meeting.drop("a")
        assert meeting.get("b") is not None
        meeting.drop("b")

    run_both(meeting, baseline, target)
    assert told == ["both are lent", "a is back"]
    assert store.puts == 0


def test_equal_orders_copy_nothing() -> None:
    store = Counting()
    drive(list("abcdef"), list("abcdef"), store)
    assert store.puts == 0


@pytest.mark.parametrize("side", ["baseline", "target"])
def test_a_failure_of_one_side_ends_the_other_and_is_raised_as_itself(side: str) -> None:
    meeting = Meeting(Store())

    def baseline() -> None:
        meeting.put("a", np.zeros(1))
        if side == "baseline":
            raise ValueError("boom")
        meeting.put("b", np.zeros(1))

    def target() -> None:
        meeting.get("a")
        meeting.drop("a")
        if side == "target":
            raise ValueError("boom")
        meeting.get("b")

    before = set(threading.enumerate())
    with pytest.raises(ValueError, match="boom"):
        run_both(meeting, baseline, target)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("first", ["baseline", "target"])
def test_a_lock_of_the_engine_that_both_need_ends_in_one_line(first: str) -> None:
    """One side waits for the other while it holds what the other one needs."""
    meeting = Meeting(Store(), patience=0.3)
    engine, held = threading.Lock(), threading.Event()

    def inside(side: str) -> None:
        if side != first:
            held.wait()
        with engine:
            held.set()
            if side == "baseline":
                meeting.put("a", np.zeros(1))
            else:
                meeting.get("a")

    before = set(threading.enumerate())
    with raises_approved(BackendError) as caught:
        run_both(meeting, lambda: inside("baseline"), lambda: inside("target"))
    assert f"the {first} waits" in str(caught.value)
    assert set(threading.enumerate()) <= before


def test_quietly_each_side_runs_alone_until_it_must_wait() -> None:
    meeting = Meeting(Store(), quietly=1 << 40)
    turns: list[str] = []
    held = threading.Event()

    def baseline() -> None:
        held.wait()  # the target waits already
        loans = []
        for key in "abc":
            loans.append(meeting.lend(key, np.zeros(1)))
            turns.append(f"lends {key}")
        for end in loans:
            end()
        turns.append("all are back")

    def target() -> None:
        held.set()
        for key in "abc":
            assert meeting.get(key) is not None
            turns.append(f"takes {key}")
            meeting.drop(key)

    run_both(meeting, baseline, target)
    assert turns[:6] == ["lends a", "lends b", "lends c", "takes a", "takes b", "takes c"]


def test_what_was_passed_on_quietly_is_found_where_the_engine_holds_the_other_side() -> None:
    """The baseline lends, and waits in the engine for what the target holds while it waits for that tensor."""
    meeting = Meeting(Store(), quietly=1 << 40, patience=20)
    engine = threading.Lock()
    inside = threading.Event()

    def baseline() -> None:
        inside.wait()
        end = meeting.lend("a", np.zeros(1))
        with engine:
            pass
        end()

    def target() -> None:
        with engine:
            inside.set()
            assert meeting.get("a") is not None
        meeting.drop("a")

    run_both(meeting, baseline, target)


def test_a_side_that_computes_is_waited_for() -> None:
    meeting = Meeting(Store(), patience=0.1)

    def baseline() -> str:
        until = time.process_time() + 0.5
        while time.process_time() < until:
            pass
        meeting.put("a", np.zeros(1))
        return "one"

    def target() -> str:
        assert meeting.get("a") is not None
        meeting.drop("a")
        return "two"

    assert run_both(meeting, baseline, target) == ("one", "two")
