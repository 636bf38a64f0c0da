"""Messages of one line that keep what matters."""

from __future__ import annotations

from approval import begins_approved

from precision_debug.errors import shorten


def test_a_short_line_stays() -> None:
    assert shorten(f"a {'n' * 500}\n b") == f"a {'n' * 500} b"


def test_a_reason_behind_long_names_is_kept() -> None:
    name = "/".join(f"module_{number}" for number in range(300))
    line = shorten(f"Non-zero status code while running Reshape node. Name:'{name}' Status Message: shapes differ")
    assert begins_approved(line)
    assert line.endswith("Status Message: shapes differ")
    assert len(line) < 300


def test_a_long_text_keeps_both_ends() -> None:
    line = shorten(f"begin {'word ' * 1000} end")
    assert (line[:6], line[-4:]) == ("begin ", " end")
    assert len(line) <= 800
