"""Finds words that we avoid in docs, source texts and page texts, and says what to write instead.

The words are those in the last column of docs/glossary.md, and the list below. Code in Markdown is not read. Of Python,
comments, strings that contain a space, and the names of functions and classes are; of JavaScript, SQL and the Makefile,
comments; of the page, its English texts and templates. Comparisons with a text for people are found as well.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = "docs/glossary.md"

CHECKED = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "Makefile",
    "docs/**/*.md",
    "examples/**/*.md",
    "examples/**/*.py",
    "tests/**/*.md",
    "src/askback/**/*.py",
    "src/askback/**/*.md",
    "src/askback/**/*.js",
    "src/askback/**/*.sql",
    "src/askback/web/translations/en/*.json",
    "src/askback/notifications/channels/telegram/translations/en.json",
    "src/askback/web/templates/*.html",
)
"""What is checked, as patterns of `Path.glob`."""

LATER = {
    GLOSSARY: "it lists the words",
    "docs/contract.md": "its wording is fixed",
}
"""Paths that are not checked yet, as patterns of `fnmatch`, and why. `--all` checks them as well."""

AVOIDED = {
    "told": "reported, notified, said",
    "mend|mends|mended|mending": "fix",
    "heed|heeds|heeded|heeding": "follow, respect",
    "whoever|whomever": "anyone who, the client that",
    "go on|goes on|went on|gone on|going on": "continue, resume",
    "go on with|goes on with|went on with|gone on with|going on with": "resume",
    "take up|takes up|took up|taken up|taking up|take-up|take-ups": "restart",
    "carry on|carries on|carried on|carrying on": "continue",
    "lives on|live on|lived on": "keeps running",
    "for ever": "forever, indefinitely",
    "stands there|stands in|stands at|stands beside|stands once|stands twice|stand there|stand in|stand beside": "is",
    "of its own|of their own|of ours|of theirs": "separate, own",
    "anew": "again",
    "to be had": "available",
    "at one go": "at once",
    "passed over|pass over|passes over": "ignored, skipped",
    "lent|lend|lends": "provided, copied",
    "shall": "should, will",
    "nought|noughts": "zero",
    "lest|whence|whereby|thereof|thereby|hence": "a plain conjunction",
}
"""Words and phrases that a reader would stop at, and what to write instead."""

NAMES = {
    r"note|note_\w+": "record_…, mark_… or notify_…",
    r"told|told_\w+|\w+_told": "reported, shown",
    r"mend\w*|heed\w*|lend\w*": "repair, follow, copy",
    r"EnginesHere": "EngineCatalog",
    r"ArtifactsHere": "LocalArtifacts",
    r"Programs|Program(Facts|Kind)|\w+Programs": "Instances, InstanceFacts, InstanceKind",
    r"(Main|Further)Tokens?": "TokenDirectory, Tokens",
    r"Via": "Channel",
    r"Held": "ClaimedRun, or what is held: HeldCall",
    r"Homes": "RunArchives",
    r"HomeBusy": "HomeChangedWhileSaving, TreeChangedWhilePacking",
    r"keep_place|Keeping": "update_queue_row, ArtifactUploader",
    r"blame\w*|forgive\w*|useless": "attribute_failure, tolerate, wait_abandoned",
    r"choice_of_two|signs|near|faces": "yes_no_hint, ascii_fallback, loopback_for, mounts",
    r"\w+(Service|Manager|Handler|Helper|Util|Utils)": "a noun for what it holds",
}
"""Names of functions and classes, as patterns without leading underscores, and what to write instead."""


class Text(NamedTuple):
    """A piece of prose, and the line that it starts in."""

    line: int
    prose: str


class Finding(NamedTuple):
    path: str
    line: int
    found: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: avoid {self.found!r}; write: {self.instead}"


# The words.


def avoided(glossary: str) -> dict[str, str]:
    """The list above, with the words that the glossary rules out in favour of a term."""
    rows = [[cell.strip() for cell in line.strip("| \n").split("|")] for line in glossary.splitlines() if "|" in line]
    ruled_out = {"|".join(re.split(r", *", row[2])): row[0] for row in rows[2:] if len(row) == 3 and row[2]}
    return {**AVOIDED, **ruled_out}


def find(text: Text, words: Mapping[str, str]) -> Iterator[tuple[int, str, str]]:
    """Line, word and replacement. The longest phrase wins: "go on with" is not reported as "go on" as well."""
    phrases = {phrase: instead for group, instead in words.items() for phrase in group.split("|")}
    ordered = sorted(phrases, key=len, reverse=True)
    pattern = "|".join(r"\s+".join(map(re.escape, phrase.split())) for phrase in ordered)
    for match in re.finditer(rf"(?<![\w-])(?:{pattern})(?![\w-])", text.prose, re.IGNORECASE):
        found = " ".join(match[0].split())
        yield text.line + text.prose.count("\n", 0, match.start()), found, phrases[found.lower()]


def find_names(source: str) -> Iterator[tuple[int, str, str]]:
    """Line, name and replacement, for each function and class that is defined in the source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for pattern, instead in NAMES.items():
                if re.fullmatch(pattern, node.name.lstrip("_")):
                    yield node.lineno, node.name, instead


# The texts of a file.

_CODE = re.compile(
    r"^(?P<fence>```+|~~~+).*?^(?P=fence)[ \t]*$|^ {4,}\S[^\n]*$|`[^`\n]+`|\]\([^)\s]*\)", re.DOTALL | re.MULTILINE
)
_MARKUP = re.compile(
    r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}|<!--.*?-->|<(?:script|style).*?</(?:script|style)>|<[^>]*>", re.DOTALL
)


def _without(pattern: re.Pattern[str], text: str) -> str:
    """The text with every match blanked, its line breaks kept."""
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _markdown(source: str) -> Iterator[Text]:
    yield Text(1, _without(_CODE, source))


def _template(source: str) -> Iterator[Text]:
    yield Text(1, _without(_MARKUP, source))


def _page_texts(source: str) -> Iterator[Text]:
    """Each text under the line of its key."""
    for key, value in json.loads(source).items():
        yield Text(source[: source.find(json.dumps(key))].count("\n") + 1, value)


def _python(source: str) -> Iterator[Text]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield Text(node.lineno, _without(re.compile(r"`[^`\n]+`"), node.value))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(token.start[0], token.string)


def _comments(pattern: str) -> Callable[[str], Iterator[Text]]:
    """The comments of a language. Lines that are only comments and follow each other are one text."""

    not_prose = re.compile(r"`[^`\n]+`|^[ \t]*(?://|--|#|\*)", re.MULTILINE)

    def read(source: str) -> Iterator[Text]:
        for match in re.finditer(pattern, source, re.DOTALL | re.MULTILINE):
            yield Text(source.count("\n", 0, match.start()) + 1, _without(not_prose, match[0]))

    return read


READERS: Mapping[str, Callable[[str], Iterator[Text]]] = {
    ".md": _markdown,
    ".html": _template,
    ".json": _page_texts,
    ".py": _python,
    ".js": _comments(r"/\*.*?\*/|(?:(?<![:\w])//[^\n]*(?:\n\s*(?=//))?)+"),
    ".sql": _comments(r"(?:--[^\n]*(?:\n\s*(?=--))?)+"),
    "Makefile": _comments(r"(?:#[^\n]*(?:\n(?=#))?)+"),
}
"""By the ending of a file's name, or by its name."""


# Comparisons with a message.

_OF_PEOPLE = r"(?:message|detail|reason|advice|why|problem)"
_COMPARED = {
    ".py": re.compile(
        rf"\.{_OF_PEOPLE}\.(?:startswith|endswith|partition|split|removeprefix)\(|\.{_OF_PEOPLE} ?(?:==|!=|in) "
        rf"|\w\.(?:match|fullmatch|search)\((?:\w+\.)*{_OF_PEOPLE}\)"
    ),
    ".js": re.compile(
        rf"\.{_OF_PEOPLE}\.(?:startsWith|endsWith|includes|match|split)\(|/\.(?:test|exec)\((?:\w+\.)*{_OF_PEOPLE}\)"
    ),
}
"""A text for people that is compared or parsed. A code or a type says the same, and can be translated."""
_PARSED = {
    "src/askback/wire/reading.py": "the messages of msgspec",
    "src/askback/engines/failures.py": "the messages of engines",
    "src/askback/web/engines.py": "the reasons of probes, which other instances send as text",
    "src/askback/cluster/file_store.py": "warnings, which are stored without further fields",
}
"""Files that may do so, and what they read."""


def comparisons(path: Path, name: str, source: str) -> Iterator[Finding]:
    pattern = None if name in _PARSED or not name.startswith("src/") else _COMPARED.get(path.suffix)
    for match in () if pattern is None else pattern.finditer(source):
        yield Finding(name, source.count("\n", 0, match.start()) + 1, match[0], "a comparison with a code or a type")


# The check.


def findings(path: Path, name: str, words: Mapping[str, str]) -> list[Finding]:
    source = path.read_text(encoding="utf-8")
    texts = READERS[path.suffix or path.name](source)
    found = {Finding(name, *each) for text in texts for each in find(text, words)}
    names = find_names(source) if path.suffix == ".py" else ()
    return sorted(found | {Finding(name, *each) for each in names} | set(comparisons(path, name, source)))


def files(root: Path, *, later: bool) -> list[Path]:
    """What is checked, without what is checked later unless that is asked for."""
    found = {path for pattern in CHECKED for path in root.glob(pattern) if "node_modules" not in path.parts}
    names = {path: path.relative_to(root).as_posix() for path in found}
    return sorted(path for path, name in names.items() if later or not any(fnmatch(name, each) for each in LATER))


def report(root: Path, paths: Iterable[Path]) -> list[Finding]:
    words = avoided((root / GLOSSARY).read_text(encoding="utf-8"))
    named = [(path, path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)) for path in paths]
    return [each for path, name in named for each in findings(path, name, words)]


def main(argv: Sequence[str] | None = None) -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--all", action="store_true", help="also check the paths in LATER")
    arguments.add_argument("path", nargs="*", type=Path, help="check these files only, also if they are in LATER")
    given = arguments.parse_args(argv)
    paths = [path.resolve() for path in given.path] or files(ROOT, later=given.all)
    found = report(ROOT, paths)
    for each in found:
        print(each, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
