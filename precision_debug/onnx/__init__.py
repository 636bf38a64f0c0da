"""ONNX files, read for every backend that runs or makes them. onnx itself is imported when a file is read."""

__all__ = []  # its modules are imported by name
