"""The parts of a spread run that are finished, in a file of the user's: what a later command goes on from.

The first line says what the numbers were made of, each further one is a part behind its checksum. A part counts only
where the command, the files that it reads and the versions that compute are the same to the byte.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from .. import events
from ..codec import decode, encode, parse_json
from ..errors import BackendCrash, OutputError, UsageError
from ..feeds import CALIBRATE
from ..feeds.script import split_script
from ..observe.shard import Shard
from ..reasons import say
from ..records import RunSpec, TensorMeta
from ..safety.untrusted import refuse_special
from ..settings.options import Workers
from .content import digest_contents, digest_feeds, digest_value, digest_weights
from .inputs import load_feeds
from .journal import Journal
from .locked_folder import LOG
from .part_runner import Plain, check_answer
from .plan import make_plan
from .pools import Pool, Processes, RayPool, Worker, WorkerLost
from .samples import find_worst_sample, finish_scores

__all__ = ["Checkpoint", "execute"]


_FORMAT = 2
"""Of the file; one of another format is not continued."""
_HEX = 32
"""Letters of a line's checksum."""


class Checkpoint:
    """path: "" where there is none. shards: each finished part, as its text; none has a sample of another one.

    more: digests of what else decides, beside the command and its files. samples: those of the command; None: any.
    What was being written when a run was killed is cut off. Raises UsageError where the file is of another command, or
    of one whose model, inputs or versions were others, and OutputError where it cannot be read or written, or is
    damaged.
    """

    def __init__(
        self, path: str, spec: RunSpec, *, more: Mapping[str, str] | None = None, samples: range | None = None
    ) -> None:
        self.shards: list[str] = []
        self._path = Path(path) if path else None
        self._samples = samples
        if self._path is None:
            return
        refuse_special(self._path, UsageError)
        made_of = {**digest_contents(spec, without=[self._path]), **(more or {})}
        self._head = json.dumps({"checkpoint": _FORMAT, "of": made_of}, sort_keys=True)
        try:
            data = self._path.read_bytes() if self._path.exists() else b""
            if not data.rfind(b"\n") + 1:
                if data and not f"{self._head}\n".encode().startswith(data):  # somebody else's file stays as it is
                    raise self._another()
                self._path.write_text(self._head + "\n", encoding="utf-8")
                return
            lines = data[: data.rfind(b"\n")].decode().split("\n")
        except (OSError, ValueError) as error:
            raise self._error(f"no checkpoint: {getattr(error, 'strerror', None) or error}") from error
        self._check(lines[0], made_of)
        self.shards = self._parts(lines[1:])
        if not data.endswith(b"\n"):
            with self._path.open("r+b") as file:
                os.ftruncate(file.fileno(), data.rfind(b"\n") + 1)

    def add(self, text: str) -> None:
        """Keep one more part. Raises OutputError."""
        if self._path is None:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{self._sum(text)} {text}\n")
        except OSError as error:
            raise self._error(f"the checkpoint cannot be written: {error.strerror or error}") from error

    def _sum(self, text: str) -> str:
        """Of a part and of what it was made of, so that no line of another checkpoint passes."""
        return hashlib.sha256(f"{self._head}\n{text}".encode("utf-8", "surrogatepass")).hexdigest()[:_HEX]

    def _check(self, line: str, made_of: Mapping[str, str]) -> None:
        try:
            head = parse_json(line)
        except ValueError as error:
            raise self._error(f"no checkpoint: {error}") from error
        if line == self._head:
            return
        theirs = head.get("of") if isinstance(head, dict) and head.get("checkpoint") == _FORMAT else None
        if not isinstance(theirs, dict) or theirs.get("options") != made_of["options"]:
            raise self._another()
        changed = sorted(name for name in {*theirs, *made_of} if theirs.get(name) != made_of.get(name))
        raise UsageError(
            say("checkpoint_stale", names=tuple(changed)), where=str(self._path), hint=say("checkpoint_anew")
        )

    def _parts(self, lines: Sequence[str]) -> list[str]:
        """Return lines that tell of other samples than the lines before: two commands may have written at once."""
        kept, known = [], set[int]()
        for number, line in enumerate(lines, 2):
            digest, _, text = line.partition(" ")
            if digest != self._sum(text):
                raise self._damaged(number)
            try:
                shard = Shard.from_text(text)
            except (ValueError, KeyError, TypeError) as error:
                raise self._damaged(number) from error
            if not shard.samples or (self._samples is not None and not shard.samples <= set(self._samples)):
                raise self._damaged(number)
            if not shard.samples & known:
                kept.append(text)
            known |= shard.samples
        return kept

    def _another(self) -> UsageError:
        return UsageError("it belongs to another command", where=str(self._path), hint="name another --checkpoint")

    def _damaged(self, number: int) -> OutputError:
        return self._error(f"line {number} is damaged", "remove the file to start over")

    def _error(self, what: str, hint: str = "name another --checkpoint") -> OutputError:
        return OutputError(what, where=str(self._path), hint=hint)


# A comparison of many samples by several workers: parts go to whoever is free, and merge to what one machine gives.
#
# The journal is the checkpoint: a part that is in it is done. A worker that is lost costs the part that it had, which
# the next one gets.

_TRIES = 3
"""Workers that one part may take with it before the command fails."""

_PARTS, _ALL_PARTS = 8, 4000
"""Parts that each worker gets, about, and parts at most: small ones even out, and a lost worker loses one of them; but
each costs the driver some hundredths of a second."""


def execute(
    spec: RunSpec, asked: Workers, journal: Journal, *, folder: Path,
    on_part: Callable[[Worker, int], None] | None = None,
) -> None:  # fmt: skip
    """Run a command on several workers and tell the journal, as ``pipeline.execute`` does.

    on_part: called after each finished part with who made it. Raises PrecisionDebugError; the parts that were finished
    are in the journal."""
    begun = time.monotonic()
    pool = _make_pool(spec, asked, folder)
    try:
        first, head = _open_first_worker(spec, pool)
        for event in head:
            _write(journal, event)
        known = next((event for event in head if event["event"] == "samples"), None)
        if known is None:  # there is one sample, and the worker has compared it
            first.close()
            return
        samples = range(known["first"], known["last"])
        more = _digest_programs(spec, samples, head, folder) if asked.checkpoint else {}
        kept = Checkpoint(asked.checkpoint, spec, more=more, samples=samples)
        run = _Run(spec, pool, journal, kept, on_part)
        for shard in kept.shards:
            run.take(shard)
        run.all(first, samples)
        _finish(spec, run, journal, head)
    finally:
        pool.close()
    journal.write(events.End(seconds=time.monotonic() - begun))


def _open_first_worker(spec: RunSpec, pool: Pool) -> tuple[Worker, list[Plain]]:
    """Return the first worker, and what it tells of both sides. Raises PrecisionDebugError."""
    tries = 0
    while True:
        try:
            worker = pool.start()
            return worker, check_answer(worker.ask([]))
        except WorkerLost as error:
            tries += 1
            if tries == _TRIES:
                what = say("workers_lost_opening", count=_TRIES, why=str(error))
                raise BackendCrash(what, where=spec.run_mode, hint=say("fewer_workers")) from error


def _digest_programs(spec: RunSpec, samples: range, head: list[Plain], folder: Path) -> dict[str, str]:
    """Return digests of what decides beside the command and its files: what programs give, and what the engines say
    they are.

    A script's samples, and the weights of a model that is one, are known only when it has run.
    """
    sides = [event["info"].get("versions", {}) for event in head if event["event"] == "side"]
    versions_seen = sorted({str(sorted(versions.items())) for versions in sides})
    found = {"versions of the engines": digest_value(versions_seen)}
    place = folder / "checkpoint"
    place.mkdir(exist_ok=True)
    try:
        plan = make_plan(spec, work_dir=str(place))
        weights = digest_weights([side for side in (plan.baseline, plan.target) if side is not None])
        if weights:
            found["the model's program and weights"] = weights
        if not spec.inputs or split_script(spec.inputs) is not None:
            feed_set = load_feeds(spec, plan, ())
            chosen = sorted({*samples, *(feed_set.calibrates or range(min(CALIBRATE, len(feed_set.feeds))))})
            theirs = feed_set.for_target().feeds
            found["what the script gives"] = digest_feeds(
                fed for number in chosen for fed in (feed_set.feeds[number], theirs[number])
            )
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return found


def _make_pool(spec: RunSpec, asked: Workers, folder: Path) -> Pool:
    plain = encode(spec)
    if asked.engine == "ray":
        return RayPool(plain, asked.jobs, address=asked.address, gpus=asked.gpus, run=folder.name)
    return Processes(plain, max(1, asked.jobs), folder / LOG)


class _Run:
    """The parts that are left, and what is merged of the others."""

    def __init__(
        self,
        spec: RunSpec,
        pool: Pool,
        journal: Journal,
        kept: Checkpoint,
        on_part: Callable[[Worker, int], None] | None,
    ) -> None:
        self.whole = Shard()
        self.worker: Worker | None = None
        self._spec, self._pool, self._journal, self._kept, self._on_part = spec, pool, journal, kept, on_part
        self._left: queue.SimpleQueue[tuple[list[int], int]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._open = 0
        self._announced = False
        self._done = 0

    def take(self, text: str) -> None:
        """A finished part."""
        self.whole.merge(Shard.from_text(text))
        self._journal.write(events.ShardDone(text=text))

    def all(self, first: Worker, samples: range) -> None:
        """Compare what is not done yet."""
        parts = list(
            _iterate_parts([number for number in samples if number not in self.whole.samples], self._pool.size)
        )
        self._open = len(parts)
        for part in parts:
            self._left.put((part, 0))
        workers: list[Worker | None] = [first, *[None] * (min(self._pool.size, len(parts)) - 1)]
        threads = [threading.Thread(target=self._work, args=(worker,), daemon=True) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def ask(self, part: list[int]) -> list[Plain]:
        """One more question, to a worker that is still there or a new one."""
        for _ in range(_TRIES):
            try:
                if self.worker is None:
                    self.worker = self._started()
                return check_answer(self.worker.ask(part))
            except WorkerLost:
                self.worker = None
        raise BackendCrash(say("workers_lost", count=_TRIES), where=self._spec.run_mode, hint=say("fewer_workers"))

    def _started(self) -> Worker:
        worker = self._pool.start()
        check_answer(worker.ask([]))
        return worker

    def _work(self, worker: Worker | None) -> None:
        try:
            while self._open and self._failure is None:
                try:
                    part, tries = self._left.get(timeout=0.05)
                except queue.Empty:  # another worker may still be lost, and leave its part
                    continue
                try:
                    if worker is None:
                        worker = self._started()
                    found = check_answer(worker.ask(part))
                except WorkerLost as error:
                    worker = None
                    if tries + 1 >= _TRIES:
                        what = say("workers_lost_in", first=part[0], last=part[1] - 1, count=_TRIES, why=str(error))
                        hint = say("fewer_workers")
                        raise BackendCrash(what, where=self._spec.run_mode, hint=hint) from error
                    self._left.put((part, tries + 1))
                    continue
                self._finished(found, worker)
            if worker is not None:
                self._leave(worker)
        except BaseException as error:
            self._failure = self._failure or error

    def _finished(self, found: list[Plain], worker: Worker) -> None:
        with self._lock:
            for event in found:
                if event["event"] == "shard":
                    self._kept.add(event["text"])
                    self.take(event["text"])
                elif not self._announced:
                    _write(self._journal, event)
            self._announced = True
            self._open -= 1
            self._done += 1
        if self._on_part is not None:
            self._on_part(worker, self._done)

    def _leave(self, worker: Worker) -> None:
        with self._lock:
            if self.worker is None:
                self.worker = worker
                return
        worker.close()


def _finish(spec: RunSpec, run: _Run, journal: Journal, head: list[Plain]) -> None:
    tensors: list[TensorMeta] = []
    for event in head:
        if event["event"] == "tensors" and event["side"] == "baseline":
            tensors = [decode(TensorMeta, item) for item in event["tensors"]]
    finish_scores(spec, run.whole, journal, tensors)
    if spec.explain != "off":
        for event in run.ask([find_worst_sample(run.whole, tensors)]):
            _write(journal, event)
    if run.worker is not None:
        run.worker.close()


def _iterate_parts(samples: list[int], workers: int) -> Iterator[list[int]]:
    """[FROM, TO] of runs of neighbours, none longer than a share of all."""
    each = max(2, min(_PARTS, _ALL_PARTS // max(1, workers)))
    most = max(1, -(-len(samples) // (max(1, workers) * each)))
    start = 0
    for place in range(1, len(samples) + 1):
        if place == len(samples) or samples[place] != samples[place - 1] + 1 or place - start == most:
            yield [samples[start], samples[place - 1] + 1]
            start = place


def _write(journal: Journal, plain: Plain) -> None:
    event = events.read(plain)
    if event is not None:
        journal.write(event)
