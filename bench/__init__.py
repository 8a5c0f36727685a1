"""Benchmarks: what the project promises about cost, measured. ``python -m bench`` runs all of them."""
