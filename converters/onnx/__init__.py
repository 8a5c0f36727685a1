"""ONNX models into graphs and graphs into ONNX models."""

from .export import save_onnx, to_onnx
from .importer import from_onnx

__all__ = ["from_onnx", "save_onnx", "to_onnx"]
