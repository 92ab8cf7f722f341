"""What a program could print at worst: its own recorded lines, cut, doubled, out of order, broken, or not its own at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hypothesis import strategies as st
from recordings import FOLDER, Recording, turn_of

from askback.engines.base import Completed, Engine, Exit, Parser, Stream

Lines = list[tuple[Stream, bytes]]

_JUNK = (
    b"",
    b"{",
    b"null",
    b"[]",
    b'{"type":',
    b"\xff\xfe{}",
    b'{"type":null}',
    b'{"type":{}}',
    b"[" * 500,
    b'"\\ud800"',
)


def recorded_lines(engine: str) -> list[bytes]:
    """Every line of every recording of an engine, each once."""
    found: dict[bytes, None] = {}
    for path in sorted((FOLDER / engine).glob("*/exit")):
        found.update(dict.fromkeys(line for _, line in Recording.load(path.parent).lines(*Stream)))
    return list(found)


def distorted(lines: list[bytes]) -> st.SearchStrategy[Lines]:
    """Lines in any order and number, some of them damaged, on either stream."""
    whole = st.sampled_from(lines)
    cut = st.builds(lambda line, at: line[: int(at * len(line))], whole, st.floats(0, 1))
    joined = st.builds(lambda one, other: one + other, cut, whole)
    damaged = st.builds(_damage, whole, st.floats(0, 1), st.binary(min_size=1, max_size=4))
    retyped = st.builds(_retype, whole, st.sampled_from((b"null", b"1e999", b"[]", b"{}", b'""', b"true", b"-1")))
    enormous = st.builds(lambda line: line.replace(b'"text":"', b'"text":"' + b"x" * 200_000, 1), whole)
    line = st.one_of(whole, whole, cut, joined, damaged, retyped, enormous, st.sampled_from(_JUNK), st.binary())
    return st.lists(st.tuples(st.sampled_from(list(Stream)), line), max_size=12)


def _damage(line: bytes, at: float, junk: bytes) -> bytes:
    place = int(at * len(line))
    return line[:place] + junk + line[place + len(junk) :]


def _retype(line: bytes, value: bytes) -> bytes:
    """Another kind of value where a text was expected."""
    start = line.find(b':"')
    end = line.find(b'"', start + 2)
    return line if start < 0 or end < 0 else line[: start + 1] + value + line[end + 1 :]


ends = st.builds(
    Exit, code=st.sampled_from((0, 0, 1, 2, 143, -9, -15)), timed_out=st.booleans(), over_limit=st.booleans()
)


def survives(
    parser: Parser, lines: Iterable[tuple[Stream, bytes]], ended: Exit, is_success: Callable[[bytes], bool]
) -> bool:
    """Read it all; whether the turn was taken for complete. A success that nothing in the lines says is an error."""
    kept = list(lines)
    for stream, line in kept:
        list(parser.feed(stream, line))
    completed = isinstance(parser.finish(ended), Completed)
    told = any(stream is Stream.STDOUT and is_success(line) for stream, line in kept)
    assert told or not completed, "a turn was taken for complete that never said so"
    return completed


def parser_of(engine: Engine, *, resuming: bool) -> Parser:
    handle = "01a1e067-8b42-7d20-8713-0562e3ecf66c"
    return engine.parser(turn_of(engine, {"handle": handle} if resuming else {}))
