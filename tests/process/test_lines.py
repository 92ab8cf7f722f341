"""Lines are complete, however the pipe splits them."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from askback.process.streams import Line, LineFramer


def frame(chunks: list[bytes], limit: int = 1000) -> list[Line]:
    framer = LineFramer(limit)
    lines = [line for chunk in chunks for line in framer.feed(chunk)]
    return lines + list(framer.finish())


def test_a_line_may_come_in_pieces() -> None:
    assert frame([b"he", b"llo\nwor", b"ld\n"]) == [Line(b"hello"), Line(b"world")]


def test_what_stands_after_the_last_newline_is_a_line() -> None:
    assert frame([b"one\ntwo"]) == [Line(b"one"), Line(b"two")]


def test_a_line_over_the_cap_is_dropped_to_its_newline_and_says_so() -> None:
    lines = frame([b"x" * 700, b"x" * 700, b"tail\nnext\n"], limit=1000)
    assert [line.dropped for line in lines] == [True, False]
    assert lines[1] == Line(b"next")
    assert len(lines[0].data) <= 200


def test_memory_stays_bounded_by_the_cap() -> None:
    framer = LineFramer(1000)
    for _ in range(1000):
        assert list(framer.feed(b"y" * 5000)) == []
    assert len(framer._buffer) <= 1000


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=8))
def test_how_the_bytes_are_cut_makes_no_difference(data: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    chunks = [data[a:b] for a, b in pairwise(places)]
    assert frame(chunks) == frame([data])
