"""A server as its user starts it: a child program on a world's data folder, and the clients that talk to it."""

from __future__ import annotations

import json
import signal
from typing import Any

from askback.client import AsyncClient, Client
from held_port import HeldPort
from program import Started, until
from world import World


class Server(Started):
    """`askback serve`; the skills of the world are there by their names. With `port`, where another was before."""

    def __init__(self, world: World, *args: str, port: int = 0, env: dict[str, str] | None = None) -> None:
        skills = {"ASKBACK_SKILLS_DIR": str(world.folder / "skills")}
        # Another server may come after this one, at the same address.
        self._held = HeldPort(port)
        super().__init__(world, "serve", "--json", "--port", str(self._held.number), *args, env=skills | (env or {}))
        self.told: dict[str, Any] = json.loads(until(self._line, self._alive))

    def _line(self) -> str:
        text = self._out.read_text()
        return text if text.endswith("\n") else ""

    @property
    def url(self) -> str:
        return str(self.told["url"])

    @property
    def token(self) -> str:
        return str(self.told["token"])

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def client(self) -> Client:
        return Client(self.url, self.token)

    def async_client(self) -> AsyncClient:
        return AsyncClient(self.url, self.token)

    def stop(self) -> int:
        return self.kill(signal.SIGTERM)
