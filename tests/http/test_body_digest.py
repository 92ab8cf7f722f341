"""The digest of a body, which decides whether an `Idempotency-Key` is used for the same request again."""

from __future__ import annotations

from askback.core.runs import InheritedFiles
from askback.http.context import body_digest
from askback.wire.requests import FromRun, ReminderCreate, RunCreate, WebhookCreate


def test_fields_that_are_not_set_do_not_change_the_digest() -> None:
    # Stored with runs: a retry after an upgrade must have the same digest.
    assert body_digest(RunCreate(skill="trip-planner", input={"days": 3, "note": None})) == (
        "22081aae6047abac53146d1d71ae33a21b78f009aa89a1ecbb5d4d61b02c0727"
    )
    assert body_digest(RunCreate(skill="s", engine=None, webhooks=())) == body_digest(RunCreate(skill="s"))


def test_every_field_that_is_set_changes_the_digest() -> None:
    hook = WebhookCreate(url="https://example.com/")
    bodies = [
        RunCreate(skill="s"),
        RunCreate(skill="t"),
        RunCreate(skill="s", engine="scripted"),
        RunCreate(skill="s", input={"a": None}),
        RunCreate(skill="s", parameter={"a": None}),
        RunCreate(skill="s", from_run=FromRun(run_id="a")),
        RunCreate(skill="s", from_run=FromRun(run_id="a", files=InheritedFiles.ARTIFACTS)),
        RunCreate(skill="s", webhooks=(hook,)),
        RunCreate(skill="s", webhooks=(hook, hook)),
        RunCreate(skill="s", webhooks=(WebhookCreate(url="https://example.com/", secret="x"),)),
        RunCreate(skill="s", webhooks=(WebhookCreate(url="https://example.com/", reminders=False),)),
        RunCreate(skill="s", webhooks=(WebhookCreate(url="https://example.com/", reminders=True),)),
        RunCreate(skill="s", webhooks=(WebhookCreate(url="https://example.com/", reminders=ReminderCreate(max=1)),)),
    ]
    assert len({body_digest(body) for body in bodies}) == len(bodies)


def test_an_answer_that_is_false_and_no_labels_are_given() -> None:
    answers: list[object] = [None, False, 0, "", [], {}, True, 1]
    forks = [
        RunCreate(skill="s", from_run=FromRun(run_id="a", at="q", session=True, response=each)) for each in answers
    ]
    bodies = [*forks, RunCreate(skill="s"), RunCreate(skill="s", labels={})]
    assert len({body_digest(body) for body in bodies}) == len(bodies)
