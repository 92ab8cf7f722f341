"""Values in JSON text are counted before any of them is built."""

from __future__ import annotations

import json
from typing import Any

import pytest

from askback.http.bodies import Counter, TooManyValues, decode


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_values_are_counted_alike_however_the_text_is_cut(size: int) -> None:
    document: Any = {'a"b': ["\\", '\\"', "{[,:]}", {"": [1, 2, [3]]}], "é\\": None, "c": "\\\\\\"}
    text = json.dumps(document).encode()
    counter = Counter(1000)
    for at in range(0, len(text), size):
        counter.feed(text[at : at + size])
    assert (counter.count, counter.names) == (13, 4)
    assert decode(text, counter.names) == document
    with pytest.raises(TooManyValues):
        Counter(12).feed(text)
