"""Settings that must be the same for all programs on a database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from askback.cluster.instances import differences
from askback.core.instances import InstanceFacts, InstanceKind

SERVER = InstanceFacts(
    kind=InstanceKind.SERVER,
    host="two",
    pid=7,
    boot_id="b",
    version="1",
    public_url="https://askback.example",
    port=8765,
    lease_sec=20,
)
WORKER = replace(SERVER, kind=InstanceKind.WORKER, public_url=None, port=None)
OLDER = replace(SERVER, public_url=None, port=None, lease_sec=None)


@pytest.mark.parametrize(
    ("own", "other", "said"),
    [
        (SERVER, SERVER, []),
        (SERVER, WORKER, []),
        (SERVER, OLDER, []),
        (replace(SERVER, public_url=None, port=1), replace(SERVER, public_url=None), []),
        (replace(SERVER, port=None), SERVER, []),
        (replace(SERVER, port=9000), SERVER, ["server.port is 9000 here, and 8765 for"]),
        (
            replace(SERVER, public_url=None),
            SERVER,
            ["server.public_url is not set here, and https://askback.example for"],
        ),
        (replace(WORKER, lease_sec=30), SERVER, ["fleet.lease_sec is 30 here, and 20 for"]),
    ],
)
def test_what_programs_must_have_in_common_is_compared(
    own: InstanceFacts, other: InstanceFacts, said: list[str]
) -> None:
    found = list(differences(own, other))
    assert [each.partition(" the ")[0] for each in found] == said
    assert all(each.endswith("(pid 7); set the same on all machines") for each in found)
