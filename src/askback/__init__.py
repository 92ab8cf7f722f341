"""Askback runs agent skills that can ask back."""

__version__ = "0.1.0"
