"""Rules and policies, and what a shell command line does: compared with what a real shell executes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askback.core.permissions import (
    READY,
    Match,
    PathUse,
    Policy,
    PolicySource,
    Rule,
    Ruling,
    SourcedPolicy,
    ToolCall,
    ToolClass,
    evaluate,
    host_of,
    policy_json,
    read_policy,
    similar,
)

PUSHES = (
    "git push",
    "git push --force origin main",
    "true && git push",
    "false || git push",
    "true; git push",
    "ls\ngit push",
    "git push &",
    "echo x | git push",
    "(git push)",
    "{ git push; }",
    "! git push",
    "time git push",
    "sh -c 'git push'",
    'bash -c "cd . && git push"',
    "bash -o errexit -c 'git push'",
    "sh -c \"sh -c 'git push'\"",
    "env git push",
    "env A=b git push",
    'env -i PATH="$PATH" git push',
    "A=1 git push",
    "nohup git push",
    "timeout 5 git push",
    "nice -n 5 git push",
    "command git push",
    "exec git push",
    "eval git push",
    "eval 'git pu''sh'",
    "xargs git push < /dev/null",
    "echo push | xargs git",
    "find . -maxdepth 0 -exec git push ;",
    "find . -maxdepth 0 -exec git push \\;",
    "echo $(git push)",
    'echo "$(git push)"',
    "echo `git push`",
    "x=$(git push)",
    "echo ${x:-$(git push)}",
    "cat <(git push)",
    "echo $((1 + $(git push | wc -c)))",
    'g""it push',
    "git pu's'h",
    "gi\\t push",
    "\\git push",
    "git \\\n push",
    "gi$'\\x74' push",
    "git $'push'",
    "$'git' push",
    "G=git; $G push",
    "git $(echo push)",
    "P=push; git $P",
    "a=git b=push; $a $b",
    "{git,push}",
    "git -C . push",
    "git -c a.b=c push",
    "git --no-pager push",
    "cat <<EOF\n$(git push)\nEOF",
    "bash <<'EOF'\ngit push\nEOF",
    "echo 'git push' | bash",
    "bash <<< 'git push'",
    "printf 'git push' > s.sh; . ./s.sh",
    "printf 'git push' > s.sh; sh s.sh",
    "if true; then git push; fi",
    "for i in 1; do git push; done",
    "while git push; do break; done",
    "until git push; do break; done",
    "case x in x) git push;; esac",
    "f() { git push; }; f",
    "function f { git push; }; f",
    "trap 'git push' EXIT",
    "[ -d . ] && git push",
    "[[ -d . ]] && git push",
    "echo a # b\ngit push",
    "echo a#; git push",
    "echo 'a' \"b\" # '\n git push",
    "$(echo git) push",
    '"$(which git)" push',
    "python3 -c 'import os; os.system(\"git push\")'",
    "/usr/bin/env git push",
    "alias g='git push'; shopt -s expand_aliases\ng",
    "export X='git push'; sh -c \"$X\"",
    "coproc git push; wait",
    "echo $(echo ')' ; git push)",
    'echo "$(echo ")"; git push)"',
    "echo $(case x in x) git push;; esac)",
    "echo $(true # )\ngit push)",
    "git push > /dev/null 2>&1",
    "2>&1 git push",
    "</dev/null git push",
)
"""Command lines with which a shell executes `git push`, or may do so."""


def call(text: str, root: str = "/base") -> ToolCall:
    return ToolCall(tool="Bash", kind=ToolClass.SHELL, input={"command": text}, cwd=root, root=root, command=text)


def ruling(rules: tuple[Rule, ...], wanted: ToolCall, default: Ruling = Ruling.ASK) -> Ruling:
    policy = SourcedPolicy(source=PolicySource.RUN, policy=Policy(rules=rules, default=default))
    return evaluate((policy,), wanted).decision


def shell(decision: Ruling, command: str | None = None) -> Rule:
    return Rule(tool="shell", decision=decision, match=None if command is None else Match(command=command))


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program `git` that records how it was called."""
    folder = tmp_path_factory.mktemp("stub")
    program = folder / "git"
    program.write_text('#!/bin/sh\necho "$@" >> "${CALLS-calls}"\n')
    program.chmod(0o755)
    return folder


def executed(stub: Path, folder: Path, text: str) -> str:
    """The arguments with which a real shell calls `git`."""
    calls = folder / "calls"
    env = {"PATH": f"{stub}:{os.environ['PATH']}", "CALLS": str(calls), "HOME": str(folder)}
    with subprocess.Popen(
        ("bash", "-c", text),
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as child:
        child.wait(60)
    return calls.read_text() if calls.exists() else ""


@pytest.mark.contract("G-1")
@pytest.mark.parametrize("text", PUSHES)
def test_no_spelling_of_a_denied_command_is_allowed_by_a_later_rule(text: str) -> None:
    rules = (shell(Ruling.DENY, "git push"), shell(Ruling.ALLOW))
    assert ruling(rules, call(text)) is not Ruling.ALLOW


@pytest.mark.parametrize("text", PUSHES)
def test_no_spelling_of_a_command_is_allowed_by_rules_for_harmless_ones(text: str) -> None:
    harmless = ("true", "false", "ls", "cat", "echo", "git status", "git", "env", "sh", "find", "xargs", "cd", "printf")
    rules = tuple(shell(Ruling.ALLOW, each) for each in harmless if each != "git")
    assert ruling(rules, call(text)) is Ruling.ASK


@pytest.mark.parametrize("text", [each for each in PUSHES if "&\n" not in each and not each.endswith(" &")])
def test_the_corpus_really_pushes_in_a_shell(stub: Path, tmp_path: Path, text: str) -> None:
    if text in ("echo x | git push", "find . -maxdepth 0 -exec git push ;", "{git,push}"):
        pytest.skip("what it executes depends on the shell")
    assert "push" in executed(stub, tmp_path, text).split()


_WORDS = st.sampled_from(
    ["git", "push", "'git'", "git push", "\\", "$(", ")", "`", '"', "'", ";", "&&", "|", "\n", " ", "#", "{", "}", "(", "echo",
     "sh -c", "eval", "env", "$x", "x=push", "<", ">f", "<<E", "if", "then", "fi", "true", "$'", "!", "-c", "[", "]", "*", "~"]
)  # fmt: skip


@given(st.lists(_WORDS, max_size=12))
def test_a_shell_never_pushes_what_the_rules_for_other_commands_allow(
    stub: Path, tmp_path_factory: pytest.TempPathFactory, words: list[str]
) -> None:
    text = " ".join(words)
    rules = (shell(Ruling.DENY, "git push"), *(shell(Ruling.ALLOW, each) for each in ("echo", "true", "git", "push")))
    if ruling(rules, call(text)) is Ruling.ALLOW and "git" in text:
        assert "push" not in executed(stub, tmp_path_factory.mktemp("run"), text).split()


@given(st.text(max_size=40))
def test_every_text_gets_a_decision(text: str) -> None:
    assert ruling((shell(Ruling.ALLOW, "ls"),), call(text)) in (Ruling.ALLOW, Ruling.ASK)


@pytest.mark.parametrize(
    "text", ["git status", "git status --short", "git status && ls -la", "(git status)", "ls | wc -l"]
)
def test_plain_commands_are_allowed_by_their_rules(text: str) -> None:
    rules = tuple(shell(Ruling.ALLOW, each) for each in ("git status", "ls", "wc"))
    assert ruling(rules, call(text)) is Ruling.ALLOW


@pytest.mark.parametrize(
    "text", ["git commit -m 'push it'", "git add push", "git pushy", "github push", "echo 'git push'"]
)
def test_other_commands_are_not_taken_for_a_push(text: str) -> None:
    assert ruling((shell(Ruling.DENY, "git push"), shell(Ruling.ALLOW)), call(text)) is (
        Ruling.DENY if text == "git add push" else Ruling.ALLOW
    )


@pytest.mark.parametrize(
    ("text", "decision"),
    [
        ("echo x > out.txt", Ruling.ALLOW),
        ("echo x > /etc/passwd", Ruling.ASK),
        ("echo x > ../up", Ruling.ASK),
        ('echo x > "$HOME/up"', Ruling.ASK),
        ("cd / && echo x > up", Ruling.ASK),
        ("echo x 2>/dev/null", Ruling.ALLOW),
        ("echo x >& /tmp/f", Ruling.ASK),
        ("cat < /etc/passwd", Ruling.ASK),
    ],
)
def test_files_that_a_shell_opens_meet_the_rules_for_files(text: str, decision: Ruling) -> None:
    inside = Match(path="inside")
    rules = (
        *(shell(Ruling.ALLOW, each) for each in ("echo", "cat", "cd")),
        Rule(tool="edit", decision=Ruling.ALLOW, match=inside),
        Rule(tool="read", decision=Ruling.ALLOW, match=inside),
    )
    assert ruling(rules, call(text)) is decision


@pytest.mark.contract("G-5")
@given(st.lists(st.sampled_from(list(Ruling)), min_size=1, max_size=4), st.randoms())
def test_the_most_restrictive_source_decides(decisions: list[Ruling], random: object) -> None:
    policies = tuple(
        SourcedPolicy(source=source, policy=Policy(default=decision))
        for source, decision in zip(PolicySource, decisions, strict=False)
    )
    found = evaluate(policies, call("ls")).decision
    assert found is max(decisions, key=lambda each: each.severity)


def file(path: str | None, *, writes: bool = False) -> ToolCall:
    kind = ToolClass.EDIT if writes else ToolClass.READ
    uses = () if path is None else (PathUse(path=path, writes=writes),)
    return ToolCall(tool="Read", kind=kind, input={}, cwd="/base", root="/base", paths=uses)


def test_the_ready_policies_do_what_their_names_say() -> None:
    expected = {
        "careful": ("allow", "ask", "allow", "ask", "ask", "allow"),
        "read-only": ("allow", "deny", "deny", "deny", "deny", "deny"),
        "workspace": ("allow", "ask", "allow", "deny", "ask", "ask"),
    }
    calls = (
        file("/base/a"),
        file("/etc/passwd"),
        file("/base/a", writes=True),
        file("/basement", writes=True),
        call("git push"),
        call("ls"),
    )
    for name, policy in READY.items():
        sourced = (SourcedPolicy(source=PolicySource.RUN, policy=policy),)
        assert tuple(evaluate(sourced, each).decision for each in calls) == expected[name], name


def test_a_file_whose_path_is_not_known_is_not_inside() -> None:
    sourced = (SourcedPolicy(source=PolicySource.RUN, policy=READY["careful"]),)
    assert evaluate(sourced, file(None)).decision is Ruling.ASK


@pytest.mark.parametrize(
    "url", ["https://good.example@evil.example/", "http://good.example\\@evil.example", "//x", "https://é.example/"]
)
def test_a_host_that_is_not_sure_is_unknown(url: str) -> None:
    assert host_of(url) is None


def test_a_host_is_read_from_a_plain_url() -> None:
    assert host_of("https://Docs.Example.com:8443/a?b#c") == "docs.example.com"


def test_the_digest_depends_on_tool_input_and_folder() -> None:
    one = call("ls")
    assert one.digest == call("ls").digest
    assert len({one.digest, call("ls ").digest, call("ls", "/other").digest}) == 3


def test_such_calls_are_the_same_command_file_or_host() -> None:
    assert similar(call("git push")) == similar(call("git push"))
    assert similar(call("git push")) != similar(call("git push --force"))
    assert similar(file(None)) is None


def test_a_policy_is_read_as_it_is_written() -> None:
    for policy in READY.values():
        assert read_policy(policy_json(policy), "permissions") == (policy, ())


@pytest.mark.parametrize(
    "value",
    [
        "unknown",
        [],
        {"rules": "x"},
        {"rules": [{"tool": "shell"}]},
        {"rules": [{"tool": "shell", "decision": "maybe"}]},
        {"rules": [{"tool": "shell", "decision": "deny", "match": {"command": "git push; rm"}}]},
        {"rules": [{"tool": "shell", "decision": "deny", "match": {"path": "inside"}}]},
        {"rules": [{"tool": "shell", "decision": "deny", "match": {}}]},
        {"rules": [], "defaults": "deny"},
    ],
)
def test_a_policy_that_is_wrong_names_each_problem(value: object) -> None:
    assert read_policy(value, "permissions")[1]
