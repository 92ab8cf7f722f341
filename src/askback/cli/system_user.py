"""Who types the commands: the user of this machine, as an actor."""

from __future__ import annotations

import os
import pwd

from askback.core.actors import Actor, Channel


def system_user() -> Actor:
    """The user whose process this is. A user without an entry in the system's database, as in a container, is a number."""
    number = os.getuid()
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:
        name = ""
    return Actor(name=name or f"uid {number}", via=Channel.CLI)
