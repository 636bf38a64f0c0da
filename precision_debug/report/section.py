"""The building blocks of a summary."""

from __future__ import annotations

from dataclasses import dataclass

from ..reasons import Text, same
from ..records import Row

__all__ = ["Cell", "Section", "linked", "pair", "plain"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of a table.

    tone: "" "good" "bad" "warn" "muted" "code" or "paste": to be copied, as it is, into a shell or a script. right: a
    number. row: the table row that it leads to. file: the file that it leads to, relative to the report (see
    safety.linked_file)."""

    text: Text
    tone: str = ""
    right: bool = False
    row: int | None = None
    file: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A titled block: a table with a head, or (no head) lines of label and value."""

    key: str
    title: Text
    head: tuple[Text, ...] = ()
    lines: tuple[tuple[Cell, ...], ...] = ()

    def without_empty_columns(self) -> Section:
        """Without columns in which no line says anything; the first one stays."""
        kept = [
            number for number in range(len(self.head))
            if not number or any(len(line) > number and line[number].text.en for line in self.lines)
        ]  # fmt: skip
        if len(kept) == len(self.head):
            return self
        return Section(
            key=self.key, title=self.title, head=tuple(self.head[number] for number in kept),
            lines=tuple(tuple(line[number] for number in kept if number < len(line)) for line in self.lines),
        )  # fmt: skip


def plain(text: Text) -> Cell:
    """Ordinary text."""
    return Cell(text=text)


def pair(label: Text, value: str, tone: str = "") -> tuple[Cell, Cell]:
    """A line of label and value."""
    return Cell(text=label), Cell(text=same(value), tone=tone)


def linked(row: Row, tone: str = "") -> Cell:
    """The name of a row, leading to it."""
    return Cell(text=same(row.name), tone=tone, row=row.index)
