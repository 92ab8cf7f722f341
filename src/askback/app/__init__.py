"""Wiring, and nothing else: which implementations an instance uses, and how they are connected.

The only package beside `cli` that reads settings; it passes plain values to everything else, and no other package imports
it. Start with `app`, which lists the components of an instance; `opening` has what must exist before them, and `server` adds
the HTTP side.
"""

from askback.app.app import App
from askback.app.files import open_library
from askback.app.notifications import delivery_policy
from askback.app.opening import opened
from askback.cluster.instances import wall_clock as now

__all__ = ["App", "delivery_policy", "now", "open_library", "opened"]
