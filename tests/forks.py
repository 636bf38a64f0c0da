"""pytest --forks N: tests are collected once, and N forks of this process run them, a file at a time.

Each of xdist's workers imports every framework and collects every test; forks have that already. Who has no work takes
the next file, so that fixtures of a module are made once; where none is left, half of what another has left of its own,
unless its tests have the mark ``in_order``. A fork that dies fails the test that it ran, and another goes on behind it.
Where a signal ended it, one more fork runs that test alone and its outcome counts: a process with threads was forked,
which no test can help. Where each thread stood is told at the end in any case, and a second such test fails as it is.
"""

from __future__ import annotations

import faulthandler
import fcntl
import gc
import mmap
import os
import pickle
import selectors
import signal
import struct
import sys
import tempfile
import traceback
import warnings
from bisect import bisect
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import IO, Any, NoReturn

import pytest
from warm import ENGINES, import_all, shared

from precision_debug.numbers.cores import count_available_cores

__all__ = ["pytest_addoption", "pytest_runtestloop", "pytest_terminal_summary"]


_STACKS = "stacks of a crash"


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "collect once, then run the tests in so many forks of this process (auto: one more than cores)"
    parser.getgroup("forks").addoption("--forks", metavar="N", type=_count, default=0, help=text)


def _count(text: str) -> int:
    """One more than there are cores: tests wait for what they have started for a sixth of their time."""
    return count_available_cores() + 1 if text == "auto" else int(text)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    if not session.config.option.forks or session.config.option.collectonly or session.testsfailed:
        return None
    _import_late()
    gc.collect()
    gc.freeze()  # what a fork's collector marks, it copies
    with shared() as folder:
        _Forks(session, folder).run(session.config.option.forks)
    return True


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for test, how in getattr(config, "crashed", ()):
        terminalreporter.section(f"{test} was run again")
        terminalreporter.write_line(how)


def _import_late() -> None:
    """What many tests would import, each fork anew, of the frameworks that tests have imported by now."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for framework, modules in (*ENGINES.items(), ("torch", ("torch._inductor.compile_fx",))):
            if framework in sys.modules:
                import_all(modules)


class _Forks:
    """All that run, and what they tell."""

    def __init__(self, session: pytest.Session, folder: str) -> None:
        self._session, self._folder = session, folder
        factory = session.config._tmp_path_factory  # type: ignore[attr-defined]
        self._base = factory.getbasetemp()
        self._number = 0
        self._listening = selectors.DefaultSelector()
        session.config.crashed = self._crashed = []  # type: ignore[attr-defined]

    def run(self, count: int) -> None:
        """Until all have ended. Raises Interrupted and Failed as a run without forks does."""
        files = [list(items) for _, items in groupby(self._session.items, key=lambda item: item.path)]
        whole = [any(item.get_closest_marker("in_order") for item in items) for items in files]
        with tempfile.TemporaryFile() as lock:
            self._work = _Work([len(items) for items in files], whole, count, lock)
            self._run(count)

    def _run(self, count: int) -> None:
        try:
            for worker in range(count):
                self._fork(worker)
            while self._listening.get_map():
                for key, _ in self._listening.select():
                    key.data.hear()
                    self._look_whether_to_go_on()
                    if key.data.ended():
                        self._listening.unregister(key.fileobj)
                        if key.data.died():
                            self._go_on_behind(key.data)
        finally:
            for key in list(self._listening.get_map().values()):
                key.data.kill()

    def _go_on_behind(self, dead: _Fork) -> None:
        if dead.alone < 0:
            self._work.give_back(dead.worker, dead.runs)
            self._fork(dead.worker)
        if dead.status < 0 and not self._crashed:
            self._crashed.append((self._session.items[dead.runs].nodeid, dead.tell_how()))
            self._fork(dead.worker, alone=dead.runs)
        else:
            dead.fail()

    def _look_whether_to_go_on(self) -> None:
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _fork(self, worker: int, *, alone: int = -1) -> None:
        """alone: the place of the one test to run, in place of the worker's own."""
        hears, tells = os.pipe()
        self._number += 1
        base = self._base / f"fork{self._number}"
        self._session.config.get_terminal_writer().flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy's threads are there; what forks in them it looks after itself
            pid = os.fork()
        if pid == 0:
            os.close(hears)
            for key in list(self._listening.get_map().values()):
                os.close(key.fd)
            self._become(tells, worker, base, alone)
        os.close(tells)
        fork = _Fork(self._session, pid, hears, worker, alone=alone, stacks=base / _STACKS)
        self._listening.register(hears, selectors.EVENT_READ, fork)

    def _become(self, tells: int, worker: int, base: Path, alone: int) -> NoReturn:
        status, config = 1, self._session.config
        capturing = config.pluginmanager.getplugin("capturemanager")
        try:
            base.mkdir()
            faulthandler.enable((base / _STACKS).open("w"))
            config._tmp_path_factory._basetemp = base  # type: ignore[attr-defined]
            config.workerinput = {"warm": self._folder, "workerid": base.name}  # type: ignore[attr-defined]
            capturing.stop_global_capturing()  # into files that all forks share
            capturing.start_global_capturing()
            for name in ("terminalreporter", "outcomes of this run"):
                config.pluginmanager.unregister(name=name)
            config.pluginmanager.register(teller := _Teller(config, tells), "tells of a fork")
            items, place = self._session.items, self._work.take(worker) if alone < 0 else alone
            while place is not None:
                following = self._work.take(worker) if alone < 0 else None
                teller.tell("begun", place)
                config.hook.pytest_runtest_protocol(
                    item=items[place], nextitem=None if following is None else items[following]
                )
                place = following
            capturing.stop_global_capturing()
            status = 0
        except BaseException:
            capturing.stop_global_capturing()
            traceback.print_exc()
        finally:
            os._exit(status)


class _Work:
    """Who runs which test, in memory that all forks share: a test is its place in the list of all.

    Of each worker stand there what it has taken last, and from where to where it has more."""

    def __init__(self, sizes: Sequence[int], whole: Sequence[bool], workers: int, lock: IO[bytes]) -> None:
        """sizes: how many tests each file has, in their order; whole: whether one worker runs all of them."""
        self._whole = whole
        self._ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
        self._lock = lock
        self._memory = mmap.mmap(-1, 12 * workers + 4)
        self._all = memoryview(self._memory).cast("i")
        self._all[:] = memoryview(struct.pack(f"{3 * workers + 1}i", *[-1, 0, 0] * workers, 0)).cast("i")

    def take(self, worker: int) -> int | None:
        """The next test of this worker, which nobody else takes then. None where none is left."""
        fcntl.lockf(self._lock, fcntl.LOCK_EX)  # of this process, and gone with it
        try:
            place = 3 * worker
            if self._all[place + 1] == self._all[place + 2]:
                self._all[place + 1], self._all[place + 2] = self._share()
            begin, end = self._all[place + 1], self._all[place + 2]
            self._all[place], self._all[place + 1] = (begin, begin + 1) if begin < end else (-1, end)
            return begin if begin < end else None
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)

    def give_back(self, worker: int, ran: int) -> None:
        """What a worker that died in ``ran`` had taken to run it next."""
        if self._all[3 * worker] not in (-1, ran):
            self._all[3 * worker + 1] -= 1

    def _share(self) -> tuple[int, int]:
        """The next file, or half of the longest rest that another has."""
        if (number := self._all[-1]) < len(self._ends):
            self._all[-1] += 1
            return (self._ends[number - 1] if number else 0), self._ends[number]
        rests = [
            (0 if self._is_whole(begin) else self._all[place + 2] - begin, place)
            for place in range(0, len(self._all) - 1, 3) for begin in [self._all[place + 1]]
        ]  # fmt: skip
        rest, place = max(rests)
        end = self._all[place + 2]
        self._all[place + 2] -= (rest + 1) // 2
        return self._all[place + 2], end

    def _is_whole(self, test: int) -> bool:
        number = bisect(self._ends, test)
        return number < len(self._ends) and self._whole[number]


class _Teller:
    """In a fork: the plugin that hands over each report."""

    def __init__(self, config: pytest.Config, tells: int) -> None:
        self._config, self._tells = config, open(tells, "wb", closefd=False)  # noqa: SIM115
        os.register_at_fork(after_in_child=lambda: os.close(tells))  # what a test leaves behind does not hold it open

    def tell(self, *words: Any) -> None:
        text = pickle.dumps(words)
        self._tells.write(struct.pack("i", len(text)) + text)
        self._tells.flush()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tell("report", self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


class _Fork:
    """In the process that has forked it: which test it runs, and what it has told."""

    def __init__(
        self, session: pytest.Session, pid: int, hears: int, worker: int, *, alone: int, stacks: Path
    ) -> None:
        self._session, self._pid, self._hears, self.worker = session, pid, hears, worker
        self.alone, self._stacks = alone, stacks
        self._text, self._open, self.status = b"", True, 0
        self.runs = -1

    def hear(self) -> None:
        """Hand over what has come."""
        more = os.read(self._hears, 1 << 20)
        self._text += more
        while len(self._text) >= 4 and len(self._text) >= 4 + (size := struct.unpack("i", self._text[:4])[0]):
            kind, what = pickle.loads(self._text[4 : 4 + size])
            self._text = self._text[4 + size :]
            if kind == "begun":
                self.runs = what
            else:
                self._log(self._session.config.hook.pytest_report_from_serializable(
                    config=self._session.config, data=what
                ))  # fmt: skip
        if not more:
            os.close(self._hears)
            self._open, self.status = False, os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def ended(self) -> bool:
        return not self._open

    def died(self) -> bool:
        """Whether it did not come to its end. Raises RuntimeError where it had not begun a test."""
        if self.status and self.runs < 0:
            raise RuntimeError(f"a fork ended with status {self.status} before its first test")
        return self.status != 0

    def tell_how(self) -> str:
        """Return its status, and where each thread stood."""
        stacks = self._stacks.read_text(encoding="utf-8", errors="replace") if self._stacks.exists() else ""
        return f"the fork that ran it ended with status {self.status}\n{stacks}".rstrip()

    def fail(self) -> None:
        """Let the test that it died in fail."""
        item = self._session.items[self.runs]
        self._log(pytest.TestReport(item.nodeid, item.location, {}, "failed", self.tell_how(), "call"))

    def kill(self) -> None:
        """At once."""
        if self._open:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    def _log(self, report: pytest.TestReport) -> None:
        self._session.config.hook.pytest_runtest_logreport(report=report)
