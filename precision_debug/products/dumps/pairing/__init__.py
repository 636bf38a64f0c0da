"""Which tensors of two runs are one and the same where names do not say: by values, layers and neighbours."""

__all__ = []  # its modules are imported by name
