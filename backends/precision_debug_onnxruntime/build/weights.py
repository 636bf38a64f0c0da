"""Reads a model file once for all that ask: its large weights go to a file, so that copies of the graph are small."""

from __future__ import annotations

import contextlib
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from precision_debug.errors import ModelError
from precision_debug.records import SessionSpec

from ..graph import all_graphs
from ..model import Model, named, opened, parsed, read_model
from ..wire import Chunk, cut

__all__ = ["of_run", "read_source"]

_SMALL = 1024
_FILE = "weights.bin"
_BUFFER = 1 << 20
_PROTOBUF_LIMIT = (1 << 31) - 1
_COPIERS = 2


@dataclass(frozen=True, kw_only=True)
class _Kept:
    """A model that was read: the graph's bytes, the folder of its weights when they are there, and the whole file."""

    key: tuple[str, int, int, str]
    graph: bytes
    folder: Path
    place: Future[Path]
    file: str

    @property
    def usable(self) -> bool:
        """Whether its weights are still on the way, or there."""
        return not self.place.done() or (self.folder / _FILE).exists()


_lock = threading.Lock()
_kept: list[_Kept] = []


def of_run(spec: SessionSpec) -> str:
    """What both sides of a run have in common: the folder that their own folders lie in."""
    return str(Path(spec.work_dir).parent) if spec.work_dir else ""


def read_source(path: str, folder: Path, run: str = "") -> Model:
    """The model of a file with its large weights in a file in ``folder``, or in the folder of who read it before.

    They are copied there while the caller goes on; the model's ``folder`` waits for them, and raises what went wrong.
    run: a name that all share who may share that file; "" shares it with nobody. A model that has external weights
    already keeps them where they are: the two could not lie in one folder. Raises ModelError.
    """
    with _lock:
        key = _key(path, run)
        kept = next((item for item in _kept if item.key == key and item.usable), None)
        if kept is None:
            model = _read(path, folder)
            if run and isinstance(model.place, Future):
                graph = model.proto.SerializeToString()
                _kept[:] = [_Kept(key=key, graph=graph, folder=folder, place=model.place, file=model.file)]
            return model
    return Model(proto=parsed(kept.graph, path), place=kept.place, path=path, file=kept.file)


def _key(path: str, run: str) -> tuple[str, int, int, str]:
    try:
        file = Path(path).resolve()
        state = file.stat()
    except OSError:
        return path, 0, 0, run
    return str(file), state.st_mtime_ns, state.st_size, run


def _read(path: str, folder: Path) -> Model:
    data = opened(Path(path))
    try:
        light, chunks = cut(data, larger=_SMALL, location=_FILE)
    except ValueError:
        return read_model(path)
    if not chunks:
        return read_model(path)
    proto = parsed(light, path)
    tensors = [tensor for graph in all_graphs(proto.graph) for tensor in graph.initializer]
    if sum(bool(tensor.external_data) for tensor in tensors) > len(chunks):
        return read_model(path)
    before = proto.SerializeToString(deterministic=True)
    proto = named(proto, path)
    changed = proto.SerializeToString(deterministic=True) != before
    place: Future[Path] = Future()
    threading.Thread(target=_set_aside, args=(Path(path), chunks, folder, place), daemon=True).start()
    whole = "" if changed or len(data) >= _PROTOBUF_LIMIT else str(Path(path).resolve())
    return Model(proto=proto, place=place, path=path, file=whole)


def _set_aside(model: Path, chunks: tuple[Chunk, ...], folder: Path, place: Future[Path]) -> None:
    try:
        _write(model, chunks, folder / _FILE)
    except BaseException as error:
        place.set_exception(error)
    else:
        place.set_result(folder)


def _write(model: Path, chunks: tuple[Chunk, ...], path: Path) -> None:
    """Copy the chunks of a model file: by small buffers, which cost half of what its mapped pages would, on two cores,
    since new pages of a file take longer than what is copied into them.
    """
    try:
        with model.open("rb", buffering=0) as source, path.open("wb") as file, ThreadPoolExecutor(_COPIERS) as copiers:
            size = chunks[-1].place + chunks[-1].length
            with contextlib.suppress(OSError):  # a file system without it, or without room: writing tells
                os.posix_fallocate(file.fileno(), 0, size)
            pieces = _shared_out(chunks)
            list(copiers.map(lambda few: _copy(source.fileno(), file.fileno(), few, str(model)), pieces))
    except OSError as error:
        raise ModelError(
            f"its weights cannot be set aside: {error.strerror}", where=str(path),
            hint="free some space, or set TMPDIR to a larger disk",
        ) from error  # fmt: skip


def _shared_out(chunks: tuple[Chunk, ...]) -> list[list[Chunk]]:
    """The chunks for each copier, of about the same number of bytes."""
    shares: list[list[Chunk]] = [[] for _ in range(_COPIERS)]
    for chunk in sorted(chunks, key=lambda chunk: -chunk.length):
        min(shares, key=lambda share: sum(one.length for one in share)).append(chunk)
    return shares


def _copy(source: int, target: int, chunks: list[Chunk], model: str) -> None:
    buffer = memoryview(bytearray(_BUFFER))
    for chunk in chunks:
        done = 0
        while done < chunk.length:
            count = os.preadv(source, [buffer[: min(chunk.length - done, _BUFFER)]], chunk.start + done)
            if not count:
                raise ModelError("the file changed while it was read", where=model, hint="try again")
            written = 0
            while written < count:
                written += os.pwrite(target, buffer[written:count], chunk.place + done + written)
            done += count
