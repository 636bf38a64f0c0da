from __future__ import annotations

import errno
import io
import os
import resource
import stat
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from approval import raises_approved
from report_factory import make_report

from precision_debug.errors import OutputError, UsageError
from precision_debug.ownership import LIST
from precision_debug.report import Report, formats, list_endings, write


@pytest.fixture
def small_files() -> Iterator[int]:
    """Files of this process cannot grow beyond 200 kB: writing fails half way, as on a full disk."""
    limit = 200_000
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.name != LIST)


@pytest.mark.parametrize("suffix", list_endings())
def test_every_format_appears_whole_in_a_folder_that_did_not_exist(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "new" / "deeper" / f"output{suffix}"
    assert write(make_report(20), path) == path
    assert path.stat().st_size > 1000
    assert leftovers(tmp_path) == [path.name]


@pytest.mark.parametrize("suffix", list_endings())
@pytest.mark.parametrize(
    "changes", [{"rows": 0}, {"rows": 12, "failure": "the backend was killed (signal 9)"}, {"scores": {}}]
)
def test_every_format_takes_every_report(tmp_path: Path, suffix: str, changes: dict[str, Any]) -> None:
    assert write(make_report(**changes), tmp_path / f"o{suffix}").exists()


def test_suffix_in_capitals_and_path_as_text(tmp_path: Path) -> None:
    path = write(make_report(3), str(tmp_path / "OUT.CSV"))
    assert path.read_bytes().startswith(b"\xef\xbb\xbfOperator Type,")


@pytest.mark.parametrize("name", ["report.pdf", "report", "report."])
def test_unknown_suffix_names_the_known_ones(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError) as caught:
        write(make_report(1), tmp_path / name)
    for suffix in list_endings():
        assert suffix in str(caught.value)
    assert leftovers(tmp_path) == []


def test_a_folder_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "o.csv").mkdir()
    with pytest.raises(OutputError, match="is a folder"):
        write(make_report(1), tmp_path / "o.csv")


def test_a_file_where_a_folder_belongs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match=r"file/o\.csv: cannot write there"):
        write(make_report(1), tmp_path / "file" / "o.csv")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(OutputError, match="choose another place"):
            write(make_report(1), tmp_path / "o.csv")
    finally:
        tmp_path.chmod(0o700)


def test_denied_by_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "replace", denied)
    with raises_approved(OutputError):
        write(make_report(1), tmp_path / "o.csv")
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("suffix", [".csv", ".html", ".json", ".xlsx"])
def test_a_write_that_fails_half_way_leaves_the_old_report(tmp_path: Path, small_files: int, suffix: str) -> None:
    path = tmp_path / f"o{suffix}"
    path.write_text("the old report")
    report = make_report(3000)
    before = set(os.listdir(tempfile.gettempdir()))
    with pytest.raises(OutputError) as caught:
        write(report, path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_text() == "the old report"
    assert leftovers(tmp_path) == [path.name]
    new = set(os.listdir(tempfile.gettempdir())) - before
    assert not [name for name in new if name.startswith("precision_debug_")]


def test_full_disk_has_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with raises_approved(OutputError):
        write(make_report(1), tmp_path / "o.json")


def test_an_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Report, "counts", property(interrupted))
    for suffix in (".html", ".json", ".md", ".xlsx"):
        with pytest.raises(KeyboardInterrupt):
            write(make_report(5), tmp_path / f"o{suffix}")
    assert leftovers(tmp_path) == []


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    path = write(make_report(1), tmp_path / "o.xlsx")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "o.csv"
    link.symlink_to(tmp_path / "there" / "real.csv")
    write(make_report(2), link)
    assert link.is_symlink()
    assert (tmp_path / "there" / "real.csv").stat().st_size > 100


def test_the_longest_name_a_file_system_takes(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250 + ".csv")
    assert write(make_report(1), path).exists()


def test_saving_by_the_report_itself(tmp_path: Path) -> None:
    report = make_report(4)
    assert report.to_csv(tmp_path / "a.csv").exists()
    assert Report.load(report.save(tmp_path / "a.json")) == report


def test_a_report_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "o.csv"
    path.touch()
    path.chmod(0o600)
    write(make_report(2), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_report_that_is_read_only_stays(tmp_path: Path) -> None:
    path = tmp_path / "o.csv"
    path.write_text("mine")
    path.chmod(0o400)
    with pytest.raises(OutputError, match="read-only"):
        write(make_report(2), path)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("suffix", list_endings())
def test_a_pipe_gets_the_whole_report(tmp_path: Path, suffix: str) -> None:
    pipe, link, plain = tmp_path / "pipe", tmp_path / f"o{suffix}", tmp_path / f"p{suffix}"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write(make_report(300), link)
    reader.join(30)
    write(make_report(300), plain)
    if suffix == ".xlsx":  # a packed time of writing is in it, so that two are not of one size to the byte
        assert zipfile.ZipFile(io.BytesIO(read[0])).namelist() == zipfile.ZipFile(plain).namelist()
    else:
        assert len(read[0]) == plain.stat().st_size
    assert link.is_symlink()
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_pipe_that_nobody_reads_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["precision_debug.report.atomic_file"], "_PATIENCE", 0.1)
    os.mkfifo(tmp_path / "o.csv")
    with pytest.raises(OutputError, match="nothing reads this pipe"):
        write(make_report(1), tmp_path / "o.csv")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_devices(tmp_path: Path) -> None:
    (tmp_path / "o.csv").symlink_to("/dev/null")
    (tmp_path / "o.json").symlink_to("/dev/full")
    write(make_report(1), tmp_path / "o.csv")
    with raises_approved(OutputError):
        write(make_report(1), tmp_path / "o.json")
    assert sorted(os.listdir(tmp_path)) == ["o.csv", "o.json"]
    assert Path("/dev/null").is_char_device()


def test_unfinished_files_lie_in_the_scratch_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch, seen = tmp_path / "scratch", []
    scratch.mkdir()
    monkeypatch.setattr(os, "replace", lambda source, target: seen.append((Path(source).parent, Path(target))))
    write(make_report(1), tmp_path / "there" / "o.csv", scratch=scratch)
    assert seen == [(scratch, tmp_path / "there" / "o.csv")]


@pytest.mark.parametrize(
    ("method", "name"),
    [("to_csv", "t.xlsx"), ("to_excel", "t.csv"), ("to_json", "t.html"), ("to_csv", "t"), ("to_excel", "t.xls")],
)
def test_a_method_writes_its_own_format_only(method: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"only writes \.\w+ files"):
        getattr(make_report(2), method)(tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_format_of_another_wheel_is_a_file_and_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pip installs it: a module, and the wheel's metadata beside it."""
    (tmp_path / "names_only.py").write_text(
        "def write(report, path):\n    path.write_text('\\n'.join(row.name for row in report.rows))\n"
    )
    info = tmp_path / "names_only-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: names-only\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{formats.GROUP}]\nnames = names_only\n")
    monkeypatch.syspath_prepend(tmp_path)
    formats.map_format_modules.cache_clear()
    try:
        report = make_report(5)
        assert ".names" in formats.list_endings()
        written = write(report, tmp_path / "report.names")
        assert written.read_text().splitlines() == [row.name for row in report.rows]
        assert write(report, tmp_path / "report.none", form="names").read_text() == written.read_text()
        with raises_approved(OutputError) as raised:
            write(report, tmp_path / "report.none")
        assert ".names" in str(raised.value)
    finally:
        formats.map_format_modules.cache_clear()


def test_a_format_of_ours_is_a_file_in_its_folder() -> None:
    assert set(formats.list_built_in_formats()) >= {"csv", "html", "json", "md", "xlsx"}
    assert all(callable(formats.format_of(name).write) for name in formats.list_built_in_formats())
