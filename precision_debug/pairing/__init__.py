"""Which tensors of two runs are one and the same: by marks, names, producers, graph neighbours and values."""

__all__ = []  # its modules are imported by name
