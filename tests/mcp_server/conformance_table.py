"""What of the official conformance suite does not apply to Askback, and why. The guide of MCP shows the same table."""

from __future__ import annotations

from dataclasses import dataclass

VERSION = "0.2.0-alpha.12"
ERAS = ("2025-11-25", "2026-07-28")
"""The revisions in which every scenario is run that the suite has for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotApplicable:
    """Checks that cannot pass, for one reason. `SCENARIO:*` means all checks of a scenario."""

    reason: str
    checks: tuple[str, ...]

    def covers(self, scenario: str, check: str) -> bool:
        return f"{scenario}:*" in self.checks or f"{scenario}:{check}" in self.checks


NOT_APPLICABLE = (
    NotApplicable(
        reason="There are no prompts, and nothing to complete.",
        checks=(
            "prompts-list:*",
            "prompts-get-simple:*",
            "prompts-get-with-args:*",
            "prompts-get-embedded-resource:*",
            "prompts-get-with-image:*",
            "completion-complete:*",
            "caching:sep-2549-prompts-list-caching-hints",
            "input-required-result-non-tool-request:*",
        ),
    ),
    NotApplicable(
        reason="The result of every tool is the envelope of a run, in text and as structured content.",
        checks=(
            "tools-call-image:*",
            "tools-call-audio:*",
            "tools-call-embedded-resource:*",
            "tools-call-mixed-content:*",
            "tasks-request-headers:tasks-headers-tolerate-mcp-method-on-tools-call",
        ),
    ),
    NotApplicable(
        reason="The suite reads resources of its fixture server. Resources of Askback are artifacts and skills.",
        checks=(
            "resources-read-text:*",
            "resources-read-binary:*",
            "resources-templates-read:*",
        ),
    ),
    NotApplicable(
        reason="There are no subscriptions: clients poll. Streams are not resumed: the same call finds its run again.",
        checks=(
            "resources-subscribe:*",
            "resources-unsubscribe:*",
            "server-sse-polling:*",
            "server-stateless:sep-2575-server-sends-subscription-ack",
            "server-stateless:sep-2575-server-tags-subscription-id",
            "server-stateless:sep-2575-server-honors-notification-filter",
            "server-stateless:sep-2575-server-sends-prompts-list-changed-on-subscription",
            "server-stateless:sep-2575-server-sends-tools-list-changed-on-subscription",
            "tasks-status-notifications:*",
        ),
    ),
    NotApplicable(
        reason="The server sends no log messages.",
        checks=(
            "logging-set-level:*",
            "tools-call-with-logging:*",
            "server-stateless:sep-2575-server-no-log-without-loglevel",
        ),
    ),
    NotApplicable(
        reason="Engines use their own models and folders: the client is never asked for sampling or roots.",
        checks=(
            "tools-call-sampling:*",
            "input-required-result-basic-sampling:*",
            "input-required-result-basic-list-roots:*",
            "input-required-result-capability-check:*",
            "server-stateless:sep-2575-server-rejects-undeclared-capability",
            "server-stateless:sep-2575-missing-capability-http-400",
        ),
    ),
    NotApplicable(
        reason="A run has one question at a time, and its answer belongs to the state that came with it.",
        checks=(
            "input-required-result-multiple-input-requests:*",
            "input-required-result-ignore-extra-params:*",
            "tasks-mrtr-input:tasks-mrtr-partial-fulfillment",
        ),
    ),
    NotApplicable(
        reason="A failed run is a result with `isError`, and every tool also works without tasks.",
        checks=(
            "tasks-lifecycle:sep-2663-tasks-get-status-failed",
            "tasks-required-task-error:*",
        ),
    ),
    NotApplicable(
        reason="Options are shown by their labels in a plain list, which clients of every revision understand.",
        checks=("elicitation-sep1330-enums:*",),
    ),
    NotApplicable(
        reason="The suite looks for a tool of its fixture server that has a given schema or timing.",
        checks=(
            "json-schema-2020-12:*",
            "http-custom-header-server-validation:*",
            "tools-call-with-progress:*",
            "server-stateless:sep-2575-http-server-no-independent-requests-on-stream",
        ),
    ),
)

PASSING = (
    "caching",
    "dns-rebinding-protection",
    "elicitation-sep1034-defaults",
    "http-header-validation",
    "input-required-result-basic-elicitation",
    "input-required-result-missing-input-response",
    "input-required-result-multi-round",
    "input-required-result-request-state",
    "input-required-result-result-type",
    "input-required-result-tampered-state",
    "input-required-result-unsupported-methods",
    "input-required-result-validate-input",
    "ping",
    "resources-list",
    "sep-2164-resource-not-found",
    "sep-2640-skills-directory",
    "sep-2640-skills-enumeration",
    "sep-2640-skills-manifest",
    "server-initialize",
    "server-session-lifecycle",
    "server-sse-multiple-streams",
    "server-stateless",
    "tasks-capability-negotiation",
    "tasks-dispatch-and-envelope",
    "tasks-lifecycle",
    "tasks-mrtr-composition",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-request-state-removal",
    "tasks-wire-fields",
    "tools-call-elicitation",
    "tools-call-error",
    "tools-call-simple-text",
    "tools-list",
)
"""The scenarios that pass, apart from single checks in the table."""


def is_applicable(scenario: str, check: str) -> bool:
    return not any(each.covers(scenario, check) for each in NOT_APPLICABLE)


def rendered() -> str:
    """The table of the guide, in Markdown."""
    shown = [f"| {', '.join(_named(check) for check in each.checks)} | {each.reason} |" for each in NOT_APPLICABLE]
    passing = ", ".join(f"`{each}`" for each in PASSING)
    return "\n".join([f"These pass: {passing}.", "", "| does not apply | why |", "|---|---|", *shown])


def _named(check: str) -> str:
    return f"`{check.removesuffix(':*')}`"
