"""Profiles of Hypothesis: `--hypothesis-profile deep` searches for an hour where the default takes seconds."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "deep",
    max_examples=20_000,
    stateful_step_count=100,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
