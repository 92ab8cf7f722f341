"""Whether telemetry is sent, and to where."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from askback.core.errors import Invalid, RefusalCode
from askback.settings.sections import TelemetrySettings

if TYPE_CHECKING:
    from askback.telemetry.exporter import Exporter

_NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
INSTALL = "install it with: pip install 'askback[otel]' (with pipx: pipx inject askback 'askback[otel]')"


def missing_package() -> bool:
    """Whether the packages of the extra `otel` are missing."""
    try:
        return any(find_spec(name) is None for name in _NEEDED)
    except ImportError:
        return True


def make_exporter(settings: TelemetrySettings) -> Exporter | None:
    """What sends telemetry; None if the settings name no collector."""
    if settings.otlp_endpoint is None:
        return None
    if missing_package():
        problem = f"telemetry.otlp_endpoint: OpenTelemetry is not installed; {INSTALL}, or remove the setting"
        raise Invalid(RefusalCode.SETTINGS_INVALID, "telemetry cannot be sent", [problem])
    # Loads a lot, and is an extra.
    from askback.telemetry.exporter import Exporter

    return Exporter(settings.otlp_endpoint, settings.otlp_headers)
