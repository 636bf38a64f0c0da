"""A command from its plan to its report: both sides opened, fed the same, compared, and what happened kept."""

__all__ = []  # its modules are imported by name
