"""A server as its user starts it: a child program on a world's data folder, and the clients that talk to it."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx

from askback.client import AsyncClient, Client
from support.data_folder import World
from support.held_port import HeldPort
from support.program import ASKBACK, Started, until


class Server(Started):
    """`askback serve`; the skills of the world are there by their names. With `port`, where another was before."""

    def __init__(
        self,
        world: World,
        *args: str,
        port: int = 0,
        env: dict[str, str] | None = None,
        program: Sequence[str] = ASKBACK,
        warm: bool = True,
    ) -> None:
        # Tests of what a stranger gets share a server: none of them is to be slowed down by the failures of another.
        here = {"ASKBACK_SKILLS_DIR": str(world.folder / "skills"), "ASKBACK_SERVER__FAILED_SIGN_INS": "1000000"}
        self._own_token = (env or {}).get("ASKBACK_SERVER__TOKEN")
        # Another server may come after this one, at the same address.
        self._held = HeldPort(port)
        words = ("serve", "--json", "--port", str(self._held.number), *args)
        super().__init__(world, *words, env=here | (env or {}), program=program, warm=warm)
        self.told: dict[str, Any] = json.loads(until(self._line, self._alive))

    def _line(self) -> str:
        text = self._out.read_text()
        return text if text.endswith("\n") else ""

    @property
    def url(self) -> str:
        return str(self.told["url"])

    @property
    def token(self) -> str:
        return self._own_token or str(self.told["token"])

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def session(self, token: str | None = None) -> dict[str, str]:
        """The headers of a browser that is signed in at the name of the page."""
        with httpx.Client(base_url=self.url, timeout=120) as browser:
            led = browser.post("/enter", data={"token": token or self.token})
            assert led.status_code == 200, led.text
            origin, code = re.findall(r'href="(http://[^"/]+)/enter\?code=([^"]+)"', led.text)[0]
            host = {"host": urlsplit(origin).netloc}
            entered = browser.get("/enter", params={"code": code}, headers=host)
        assert entered.status_code == 200, entered.text
        return host | {"cookie": entered.headers["set-cookie"].partition(";")[0]}

    def client(self) -> Client:
        return Client(self.url, self.token)

    def async_client(self) -> AsyncClient:
        return AsyncClient(self.url, self.token)

    def stop(self) -> int:
        return self.kill(signal.SIGTERM)
