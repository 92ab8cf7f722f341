"""Profiles of Hypothesis: `--hypothesis-profile deep` sends a million signals where the default sends thousands."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "deep",
    max_examples=3_500,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
