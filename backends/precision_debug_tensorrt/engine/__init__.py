"""What only TensorRT has: no other backend has a file of this role."""

__all__: list[str] = []  # its modules are imported by name
