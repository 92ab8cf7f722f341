"""Questions to the user and links to them, as they are sent."""

from __future__ import annotations

from typing import Annotated, Any, Self

import msgspec

from askback.core import interactions
from askback.core.interactions import AnsweredBy, InteractionOutcome
from askback.core.secrecy import Secrecy
from askback.wire.artifacts import Artifact
from askback.wire.base import Actor, Moment, Shape, WholeList, about


class FormField(Shape):
    """One question of a form."""

    id: Annotated[str, about("Its name in the answer. Unique within the form.", "pace")]
    kind: Annotated[str, about("`text`, `choice`, `confirm`, `secret`, or the engine's own word.", "choice")]
    prompt: Annotated[str, about("The question.", "What pace would you like?")]
    options: Annotated[
        tuple[Any, ...],
        about("The answers to choose from: strings, or objects with `label` and `value`.", ["relaxed", "packed"]),
    ]
    default: Annotated[Any, about("The suggested answer.", "relaxed")]
    required: Annotated[bool, about("Whether it must be answered.", True)]
    response_schema: Annotated[dict[str, Any] | None, about("The JSON Schema of its answer.")]
    context: Annotated[Any, about("Further information from the engine.")]


class Interaction(Shape):
    """A question to the user, with its answer once there is one."""

    interaction_id: Annotated[str, about("Unique within the run.", "pace")]
    kind: Annotated[
        str,
        about(
            "`text`, `choice`, `secret`, `form` for several questions, `approval` for a tool call, or the engine's own word.",
            "choice",
        ),
    ]
    prompt: Annotated[str, about("The question, or the introduction of a form.", "What pace would you like?")]
    options: Annotated[
        tuple[Any, ...],
        about("The answers to choose from: strings, or objects with `label` and `value`.", ["relaxed", "packed"]),
    ]
    questions: Annotated[
        tuple[FormField, ...],
        about("The questions of a form, which are answered together: the answer is an object with their ids.", []),
    ] = ()
    default: Annotated[
        Any,
        about(
            "The suggested answer: used if the user presses Enter, and passed to the engine if nobody answers in time.",
            "relaxed",
        ),
    ]
    response_schema: Annotated[
        dict[str, Any] | None,
        about("The JSON Schema of the answer: a scalar, or a flat object. A form always has one."),
    ]
    secret_fields: Annotated[
        tuple[str, ...] | None,
        about("The fields of the answer that are secret. Null if the whole answer is. Never store or show them.", []),
    ] = None
    context: Annotated[Any, about("Further information from the engine.")]
    tool: Annotated[str | None, about("Of an approval: the tool, by the engine's name for it.", "Bash")] = None
    input: Annotated[
        dict[str, Any] | None,
        about("Of an approval: the input of the call, exactly as the engine will use it.", {"command": "git push"}),
    ] = None
    cwd: Annotated[str | None, about("Of an approval: the folder of the call.", "/srv/repositories/website")] = None
    diff: Annotated[str | None, about("Of an approval: what the call changes in a file, if that is known.")] = None
    attempt_number: Annotated[int, about("The turn that asked.", 1, ge=1)]
    asked_at: Annotated[Moment, about("When the question was asked.")]
    outcome: Annotated[InteractionOutcome, about("How the question ended, or `pending`.")]
    response: Annotated[Any, about("The answer. Null if it is secret; in an object, its secret fields are null.")]
    answered_by: Annotated[AnsweredBy | None, about("Who answered.")]
    answered_at: Annotated[Moment | None, about("When the question ended.")]
    answered_with: Annotated[
        Actor | None,
        about("Who closed the question, and through which channel. Null while it is pending, and if it is not known."),
    ]

    def as_core(self) -> interactions.Interaction:
        """The question as the rules for answers take it."""
        return msgspec.convert(msgspec.to_builtins(self), interactions.Interaction)

    @property
    def secrecy(self) -> Secrecy:
        """What must not be shown of the answer."""
        return interactions.secrecy(self.kind, self.response_schema)

    @property
    def secret(self) -> bool:
        """Whether the whole answer must not be shown."""
        return self.secrecy.whole

    @property
    def asks_secrets(self) -> bool:
        """Whether the answer, or a part of it, is secret."""
        return self.secrecy.any

    @property
    def heading(self) -> str:
        """The question for one line."""
        return interactions.heading(self.prompt, self.questions)

    @classmethod
    def of(cls, source: Any = None, **given: Any) -> Self:
        secret_fields = None if source.secret else tuple(sorted(source.secrecy.fields))
        if source.kind == interactions.APPROVAL and isinstance(source.context, dict):
            given |= {name: source.context.get(name) for name in ("tool", "input", "cwd", "diff")} | {"context": None}
        return super().of(source, secret_fields=secret_fields, response=source.shown_response, **given)


class ClosedInteraction(Shape):
    """How a question was closed."""

    interaction_id: Annotated[str, about("The question.", "pace")]
    outcome: Annotated[InteractionOutcome, about("How it ended.", "answered")]
    answered_with: Annotated[Actor | None, about("Who closed it, and through which channel.")]


class InteractionList(WholeList[Interaction]):
    """All questions of a run, in the order in which they were asked."""


class Background(Shape):
    """What led to a pending question."""

    messages: Annotated[
        tuple[str, ...],
        about(
            "The last messages of the engine in the turn that asked, oldest first. A long one has only its end.", "…"
        ),
    ]
    interactions: Annotated[tuple[Interaction, ...], about("The last questions before it, with their answers.")]
    files: Annotated[tuple[Artifact, ...], about("The files that the turn has changed, at most 100.")]


class Link(Shape):
    """A new link to one question."""

    id: Annotated[str, about("Identifies the link when it is revoked.", "9f2c01ab")]
    url: Annotated[str, about("Lets its holder read and answer this question, and nothing else.")]
    expires_at: Annotated[Moment, about("When the link expires.")]


class ListedLink(Shape):
    """A link to a question, without its URL."""

    id: Annotated[str, about("Identifies the link when it is revoked.", "9f2c01ab")]
    interaction_id: Annotated[str, about("The question.", "pace")]
    token: Annotated[
        str | None,
        about(
            "The name of the token that created the link. Revoking the token ends it. Null if the link was sent to a "
            "recipient of the server's settings.",
            "main",
        ),
    ]
    created_at: Annotated[Moment, about("When the link was created.")]
    expires_at: Annotated[Moment, about("When the link expires.")]
    recipient: Annotated[
        str | None,
        about("Who the link is for, and whose name `answered_with` has. Null: the token that created it.", "anna"),
    ] = None


class LinkList(WholeList[ListedLink]):
    """The links to one question, oldest first."""
