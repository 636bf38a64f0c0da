"""The two hooks, and where tensors wait between them."""

__all__ = []  # its modules are imported by name
