"""What came with a model is data: its text steers no terminal, its paths hang no read, no code comes from beside it."""

__all__ = []  # its modules are imported by name
