"""One command by several workers: child processes of this machine, or actors of a Ray cluster."""

__all__: list[str] = []  # its modules are imported by name
