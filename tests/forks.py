"""pytest --forks N: tests are collected once, and N forks of this process run them, a file at a time.

Each of xdist's workers imports every framework and collects every test; forks have that already. Who has no work takes
the next file, so that fixtures of a module are made once. A fork that dies fails the test that it ran, and another goes
on behind it.
"""

from __future__ import annotations

import gc
import os
import pickle
import selectors
import signal
import struct
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any, NoReturn

import pytest
from warm import ENGINES, import_all, shared

__all__ = ["pytest_addoption", "pytest_runtestloop"]


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "collect once, then run the tests in so many forks of this process, a file at a time"
    parser.getgroup("forks").addoption("--forks", metavar="N", type=int, default=0, help=text)


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
        self._files = [list(items) for _, items in groupby(session.items, key=lambda item: item.path)]
        self._queue, filling = os.pipe()
        os.write(filling, b"".join(struct.pack("i", number) for number in range(len(self._files))))
        os.close(filling)
        factory = session.config._tmp_path_factory  # type: ignore[attr-defined]
        self._base = factory.getbasetemp()
        self._number = 0
        self._listening = selectors.DefaultSelector()

    def run(self, count: int) -> None:
        """Until all have ended. Raises Interrupted and Failed as a run without forks does."""
        try:
            for _ in range(count):
                self._fork([])
            while self._listening.get_map():
                for key, _ in self._listening.select():
                    key.data.hear()
                    self._look_whether_to_go_on()
                    if key.data.ended():
                        self._listening.unregister(key.fileobj)
                        if (left := key.data.left()) is not None:
                            self._fork(left)
        finally:
            for key in list(self._listening.get_map().values()):
                key.data.kill()

    def _look_whether_to_go_on(self) -> None:
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _fork(self, first: Sequence[pytest.Item]) -> None:
        """first: what it runs before it takes a file."""
        hears, tells = os.pipe()
        self._number += 1
        self._session.config.get_terminal_writer().flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy's threads are there; what forks in them it looks after itself
            pid = os.fork()
        if pid == 0:
            os.close(hears)
            for key in list(self._listening.get_map().values()):
                os.close(key.fd)
            self._become(tells, first)
        os.close(tells)
        self._listening.register(hears, selectors.EVENT_READ, _Fork(self._session, pid, hears))

    def _become(self, tells: int, first: Sequence[pytest.Item]) -> NoReturn:
        status, config = 1, self._session.config
        capturing = config.pluginmanager.getplugin("capturemanager")
        try:
            base = self._base / f"fork{self._number}"
            base.mkdir()
            config._tmp_path_factory._basetemp = base  # type: ignore[attr-defined]
            config.workerinput = {"warm": self._folder, "workerid": base.name}  # type: ignore[attr-defined]
            capturing.stop_global_capturing()  # into files that all forks share
            capturing.start_global_capturing()
            for name in ("terminalreporter", "outcomes of this run"):
                config.pluginmanager.unregister(name=name)
            config.pluginmanager.register(teller := _Teller(config, tells), "tells of a fork")
            run, groups = config.hook.pytest_runtest_protocol, self._take(first)
            items = next(groups, [])
            while items:
                for item, following in pairwise(items):
                    teller.tell("begun", item.nodeid)
                    run(item=item, nextitem=following)
                last, items = items[-1], next(groups, [])
                teller.tell("begun", last.nodeid)
                run(item=last, nextitem=items[0] if items else None)
            capturing.stop_global_capturing()
            status = 0
        except BaseException:
            capturing.stop_global_capturing()
            traceback.print_exc()
        finally:
            os._exit(status)

    def _take(self, first: Sequence[pytest.Item]) -> Iterator[Sequence[pytest.Item]]:
        if first:
            yield first
        while number := os.read(self._queue, 4):
            yield self._files[struct.unpack("i", number)[0]]


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

    def __init__(self, session: pytest.Session, pid: int, hears: int) -> None:
        self._session, self._pid, self._hears = session, pid, hears
        self._text, self._open, self._status = b"", True, 0
        self._runs = ""

    def hear(self) -> None:
        """Hand over what has come."""
        more = os.read(self._hears, 1 << 20)
        self._text += more
        while len(self._text) >= 4 and len(self._text) >= 4 + (size := struct.unpack("i", self._text[:4])[0]):
            kind, what = pickle.loads(self._text[4 : 4 + size])
            self._text = self._text[4 + size :]
            if kind == "begun":
                self._runs = what
            else:
                self._log(self._session.config.hook.pytest_report_from_serializable(
                    config=self._session.config, data=what
                ))  # fmt: skip
        if not more:
            os.close(self._hears)
            self._open, self._status = False, os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def ended(self) -> bool:
        return not self._open

    def left(self) -> Sequence[pytest.Item] | None:
        """What of its file stands behind the test that it died in, which fails; None where it came to its end."""
        if not self._status:
            return None
        items = self._session.items
        places = [place for place, item in enumerate(items) if item.nodeid == self._runs]
        if not places:
            raise RuntimeError(f"a fork ended with status {self._status} before its first test")
        item = items[places[0]]
        self._log(pytest.TestReport(
            self._runs, item.location, {}, "failed", f"the fork that ran it ended with status {self._status}", "call",
        ))  # fmt: skip
        return [one for one in items[places[0] + 1 :] if one.path == item.path]

    def kill(self) -> None:
        """At once."""
        if self._open:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    def _log(self, report: pytest.TestReport) -> None:
        self._session.config.hook.pytest_runtest_logreport(report=report)
