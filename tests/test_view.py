"""``precision_debug view`` serves one page, to this machine alone."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from report_factory import make_report

from precision_debug.cli import main
from precision_debug.cli.view import Pages


def test_a_json_report_is_shown_until_ctrl_c(tmp_path: Path) -> None:
    report = make_report(20)
    path = report.save(tmp_path / "r.json")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "precision_debug", "view", str(path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as served:
        try:
            assert served.stdout is not None
            said = served.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/", said)
            assert found, said
            with urllib.request.urlopen(found[0], timeout=60) as answer:
                page = answer.read().decode()
                assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
            assert report.rows[0].name.rpartition("/")[2] in page
            assert "Content-Security-Policy" in page
        finally:
            served.send_signal(signal.SIGINT)
        assert served.wait(60) == 0
        assert served.stderr is not None
        assert served.stderr.read() == ""
    assert sorted(child.name for child in tmp_path.iterdir()) == ["r.json"]


def test_it_listens_on_this_machine_and_has_one_page() -> None:
    with Pages(b"<p>page</p>") as server:
        assert server.server_address[0] == "127.0.0.1"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            assert urllib.request.urlopen(server.address + "?row=3", timeout=60).read() == b"<p>page</p>"
            for path in ("etc/passwd", "../", "report.json"):
                with pytest.raises(urllib.error.HTTPError) as refused:
                    urllib.request.urlopen(server.address + path, timeout=60)
                assert refused.value.code == 404
                refused.value.close()
            asked = http.client.HTTPConnection("127.0.0.1", int(server.server_address[1]), timeout=60)
            asked.request("GET", "/", headers={"Host": "elsewhere.example"})  # a name that was made to lead here
            assert asked.getresponse().status == 403
            asked.close()
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gone.html"], "cannot be read"),
        (["report.xlsx"], "not a report that can be displayed"),
        (["report.html", "--port", "70000"], "from 0 to 65535"),
    ],
)
def test_what_cannot_be_shown_is_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", str(tmp_path / arguments[0]), *arguments[1:]]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
