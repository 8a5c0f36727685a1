"""JAX: `from_jax` captures a function, `to_jax` gives one back."""

from .capture import from_jax
from .export import to_jax
from .lower import lower_jax

__all__ = ["from_jax", "lower_jax", "to_jax"]
