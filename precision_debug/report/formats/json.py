"""The whole report as strict JSON that can be read back, one table row a line."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ...codec import decode, encode, parse_json
from ...errors import OutputError
from ...numbers.born import make_infinite, make_introduced_infinite
from ...reasons import say
from ...records import FileState, ModelFiles, Row, RunSpec, Side, Status, TensorStats, Tolerance
from ...safety.untrusted import refuse_special
from ...search.fix import STATES
from ..blame import describe_culprit, named_culprits
from ..doubts import decides, describe_doubt, describe_held_claims
from ..fix import describe_tried
from ..model import FORMAT_VERSION, Report

__all__ = ["compute_digest", "from_dict", "load", "read_file_state", "to_dict", "write"]

_BLOCK = 1 << 22

_FORMAT = "precision_debug report"
_DERIVED = ("format", "summary")


def to_dict(report: Report) -> dict[str, Any]:
    """Plain values that strict JSON holds (see ``codec``), headed by the verdict; ``from_dict`` is the inverse.

    A field that has its default is left out. Raises OutputError where an option has no JSON form.
    """
    report = _with_digests(report)
    return {**_make_head(report), "rows": list(_iterate_rows(report))}


def from_dict(plain: Any) -> Report:
    """Return the inverse of ``to_dict``. Raises OutputError where ``plain`` is no report, damaged, or of another
    version."""
    if not isinstance(plain, dict) or plain.get("format") != _FORMAT:
        raise OutputError(say("foreign_report"), hint=say("give_a_report"))
    version = plain.get("format_version")
    if version != FORMAT_VERSION:
        raise OutputError(
            f"the report has format version {version}, this precision_debug reads {FORMAT_VERSION}",
            hint="read it with the precision_debug that wrote it, or write it again",
        )
    try:
        told = {key: value for key, value in plain.items() if key not in _DERIVED}
        report = _check_kinds(decode(Report, {**told, "to_keep": _as_one_record(told.get("to_keep"))}))
        return dataclasses.replace(
            report, rows=tuple(map(_restore_infinite, report.rows))
        )  # an older file has what is left
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise OutputError(f"the report is damaged ({error})", hint="write it again") from error


def _as_one_record(kept: Any) -> Any:
    """Return what is to be kept; what an older file has of trying it in a record inside is beside the rest."""
    if kept is None:
        return None
    return {**kept, **kept.get("tried", {}), "beside": [_as_one_record(one) for one in kept.get("beside", ())]}


def _restore_infinite(row: Row) -> Row:
    numbers = None if row.comparison is None else make_infinite(row.comparison)
    own = None if row.introduced is None else make_introduced_infinite(row.introduced)
    if numbers is row.comparison and own is row.introduced:
        return row
    return dataclasses.replace(row, comparison=numbers, introduced=own)


def _check_kinds(report: Report) -> Report:
    """Return the report, or TypeError where something in it is of the wrong kind: ``decode`` takes null for
    anything."""
    expected: list[tuple[str, Any, type]] = [
        ("spec", report.spec, RunSpec),
        ("baseline", report.baseline, Side),
        ("target", report.target, Side),
        ("rows", report.rows, tuple),
        ("inputs", report.inputs, tuple),
    ]
    for place, value, kind in expected:
        if not isinstance(value, kind):
            raise TypeError(f"{place} is not a {kind.__name__}")
    if not isinstance(report.spec.model, ModelFiles) or not isinstance(report.spec.tolerance, Tolerance):
        raise TypeError("spec has no model or no tolerance")
    if report.fix is not None and report.fix.state not in STATES:
        raise TypeError(f"fix.state is {report.fix.state!r}")
    for number, row in enumerate(report.rows):
        if not isinstance(row, Row) or not isinstance(row.status, Status) or not isinstance(row.name, str):
            raise TypeError(f"row {number} has no status or no name")
        numbers = row.comparison
        sides = (numbers.base, numbers.target) if numbers is not None else ()
        if not all(isinstance(side, TensorStats) for side in sides):
            raise TypeError(f"row {number} is compared with nothing")
    return report


def load(path: str | Path) -> Report:
    """Read a report that ``write`` wrote. Raises OutputError, one line, where there is none."""
    path = Path(path)
    refuse_special(path, OutputError)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise OutputError(say("no_report", error=str(what)), where=str(path), hint=say("give_a_report")) from error
    try:
        return from_dict(parse_json(text, parse_constant=_refuse))
    except (ValueError, RecursionError) as error:
        raise OutputError(
            say("no_whole_json", error=str(error)), where=str(path), hint=say("write_report_again")
        ) from error
    except OutputError as error:
        raise OutputError(error.what, where=str(path), hint=error.hint) from error.__cause__


def write(report: Report, path: Path) -> None:
    """Strict JSON in UTF-8, as ``to_dict`` gives it, never holding more than one row's text."""
    report = _with_digests(report)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("{\n")
        for key, value in _make_head(report).items():
            _write_line(file, f" {json.dumps(key)}: ", value, ",\n")
        file.write(' "rows": [')
        separator = "\n"
        for row in _iterate_rows(report):
            _write_line(file, f"{separator}  ", row, "")
            separator = ",\n"
        file.write("\n ]\n}\n")


def _with_digests(report: Report) -> Report:
    """Return the report whose sides hold digests of their models' files: who reads it later can tell whether they
    changed."""
    sides = [
        dataclasses.replace(side, files=(), digest=side.digest or compute_digest(side.files)) if side.files else side
        for side in (report.baseline, report.target)
    ]
    return dataclasses.replace(report, baseline=sides[0], target=sides[1])


def read_file_state(file: Path) -> FileState:
    """Raises OSError."""
    found = file.stat()
    return FileState(path=str(file), size=found.st_size, time=found.st_mtime_ns)


@functools.lru_cache(maxsize=8)
def compute_digest(files: tuple[FileState, ...]) -> str:
    """SHA-256: of one file its own, as any tool gives it. "" of none, and where one is another file by now.

    The whole of gigabytes is read, which may take as long as a run of the model.
    """
    digests = []
    try:
        for state in files:
            digest = hashlib.sha256()
            with Path(state.path).open("rb") as file:
                while block := file.read(_BLOCK):
                    digest.update(block)
            digests.append(digest.hexdigest())
        if [read_file_state(Path(state.path)) for state in files] != list(files):
            return ""
    except OSError:
        return ""
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest() if digests else ""


def _write_line(file: IO[str], before: str, value: Any, after: str) -> None:
    try:
        file.write(before + json.dumps(value, ensure_ascii=False, allow_nan=False) + after)
    except UnicodeEncodeError:
        file.write(before + json.dumps(value, allow_nan=False) + after)


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


def _make_head(report: Report) -> dict[str, Any]:
    try:
        plain = encode(dataclasses.replace(report, rows=()))
    except TypeError as error:
        raise OutputError(f"the report has no JSON form ({error})", hint="give options as plain values") from error
    del plain["rows"]
    first = report.first_mismatch
    summary = {
        "verdict": str(report.verdict),
        "exit_status": report.exit_status,
        "first_mismatch": None if first is None else first.name,
        "culprits": [
            {**encode(culprit), "sentence": said.en, "sentence_zh": said.zh}
            for culprit in named_culprits(report)
            for said in [describe_culprit(report, culprit)]
        ],
        "paste": None if report.to_keep is None else report.to_keep.option or None,
        "fix": _fix(report),
        "first_non_finite": None if report.explanation is None else report.explanation.first_non_finite or None,
        "budget": {} if report.explanation is None else encode(report.explanation.budget),
        "worst": [row.name for row in report.worst()],
        "counts": {str(status): count for status, count in report.counts.items()},
        "coverage": dataclasses.asdict(report.coverage),
        "claims": [encode(claim) for claim in report.claims],
        "rests_on": describe_held_claims(report).en,
        "doubts": [
            {
                "code": doubt.code,
                "values": dict(doubt.values),
                "text": describe_doubt(doubt).en,
                "decides": decides(doubt),
            }
            for doubt in report.doubts
        ],
    }
    return {"format": _FORMAT, "format_version": report.format_version, "summary": summary, **plain}


def _fix(report: Report) -> dict[str, Any] | None:
    """Return what came of trying what is to be pasted: see search.Tried."""
    said = describe_tried(report)
    if said is None or report.to_keep is None:
        return None
    return {"state": report.to_keep.state, "sentence": said.en, "sentence_zh": said.zh}


def _iterate_rows(report: Report) -> Iterator[dict[str, Any]]:
    for row in report.rows:
        try:
            yield encode(row)
        except TypeError as error:
            raise OutputError(
                f"the row has no JSON form ({error})", where=row.name, hint="report this as a bug"
            ) from error
