"""The clients of a server that is being killed: each story is one run, from its creation to its end, as it was told.

A client whose server is gone tries again. What it was told, and what it may have been told and missed, is kept for the
auditor.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import httpx

from storm.cast import Part

POLL_SEC = 0.08
FINAL = ("succeeded", "failed", "canceled")


class Door:
    """The addresses of the servers, which stay while the servers come and go. Each request goes to any of them."""

    def __init__(self, *ports: int, token: str, may_refuse: bool = False) -> None:
        """`may_refuse`: a server may say that it cannot reach what it needs."""
        self._urls = [f"http://127.0.0.1:{port}/v1" for port in ports]
        self._may_refuse = may_refuse
        self._http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {token}"},
            timeout=15.0,
            trust_env=False,
            limits=httpx.Limits(max_connections=64),
        )
        self.faults: list[str] = []
        """Answers that no server may give, whatever was done to the one before."""
        self.refusals = 0

    async def try_once(self, method: str, path: str, **words: Any) -> httpx.Response | None:
        """The answer, or None: then it may have been done or not."""
        try:
            response = await self._http.request(method, random.choice(self._urls) + path, **words)
        except httpx.TransportError:
            await asyncio.sleep(0.03)
            return None
        if response.status_code == httpx.codes.SERVICE_UNAVAILABLE and self._may_refuse:
            self.refusals += 1
            await asyncio.sleep(0.2)
            return None
        if response.status_code >= 500:
            self.faults.append(f"{method} {path}: {response.status_code} {response.text[:200]}")
            await asyncio.sleep(0.2)
            return None
        return response

    async def insist(self, method: str, path: str, **words: Any) -> httpx.Response:
        while (response := await self.try_once(method, path, **words)) is None:
            pass
        return response

    async def items(self, path: str, cursor: str) -> list[dict[str, Any]]:
        """A whole list, page by page."""
        found: list[dict[str, Any]] = []
        params: dict[str, Any] = {"limit": 200} if cursor == "cursor" else {}
        while True:
            page = (await self.insist("GET", path, params=params)).json()
            found += page["items"]
            if page.get("next_cursor") is None:
                return found
            params[cursor] = page["next_cursor"]

    async def close(self) -> None:
        await self._http.aclose()


@dataclass(slots=True, kw_only=True)
class Rival:
    """One of the two who answer the same question."""

    text: str
    accepted: bool = False
    refused: bool = False
    unknown: bool = False
    """At least once its server died before it answered."""


@dataclass(slots=True, kw_only=True, eq=False)
class Story:
    number: int
    part: Part
    token: str
    chance: random.Random
    cancels: bool
    run_id: str = ""
    run: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)
    rivals: dict[str, tuple[Rival, Rival]] = field(default_factory=dict)
    cancel_told: bool = False
    cancel_sent: bool = False
    events: list[dict[str, Any]] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    kills: int = 0
    """How often a server, a guardian or a keeper was killed while it went on."""
    strikes: int = 0
    """The same since it last got on."""

    @property
    def state(self) -> str:
        return str(self.run.get("state", ""))

    @property
    def over(self) -> bool:
        return self.state in FINAL

    async def live(self, door: Door) -> None:
        await self._create(door)
        while not self.over:
            if self.cancels and self.chance.random() < 0.15:
                await self._cancel(door)
            if self.chance.random() < 0.15:
                await self._read_events(door)
            if self.part.warm and self.state == "waiting_user" and self.chance.random() < 0.5:
                # Time for its process to be dropped or killed while it waits.
                await asyncio.sleep(self.chance.uniform(0, 0.6))
            if self.state == "waiting_user" and self.run.get("pending_interaction"):
                await self._answer(door, self.run["pending_interaction"]["interaction_id"])
            else:
                await asyncio.sleep(POLL_SEC * self.chance.uniform(0.3, 1.5))
            self._see((await door.insist("GET", f"/runs/{self.run_id}")).json())
        self.result = (await door.insist("GET", f"/runs/{self.run_id}/result")).json()
        await self._read_events(door)

    def _see(self, run: dict[str, Any]) -> None:
        if run.get("attempt_number") != self.run.get("attempt_number") or run.get("state") == "waiting_user":
            self.strikes = 0
        self.run = run

    async def _create(self, door: Door) -> None:
        body = {
            "skill": self.part.name,
            "engine": self.part.engine,
            "mode": self.part.mode,
            "input": {"token": self.token},
            "options": dict(self.part.options),
        }
        told = await door.insist("POST", "/runs", json=body, headers={"Idempotency-Key": self.token})
        assert told.status_code == 201, told.text
        self.run = told.json()
        self.run_id = self.run["id"]

    async def _cancel(self, door: Door) -> None:
        self.cancels, self.cancel_sent = False, True
        told = await door.insist("POST", f"/runs/{self.run_id}/cancel")
        self.cancel_told = told.status_code == 202

    async def _answer(self, door: Door, interaction_id: str) -> None:
        """Two clients at once. A question is answered once, so both are done with it afterwards."""
        names = ("a", "b")
        pair = self.rivals.get(interaction_id) or tuple(
            Rival(text=f"{self.token}-{interaction_id}-{name}-{self.chance.getrandbits(32):08x}") for name in names
        )
        first, second = pair
        self.rivals[interaction_id] = (first, second)
        await asyncio.gather(*(self._reply(door, interaction_id, rival) for rival in (first, second)))

    async def _reply(self, door: Door, interaction_id: str, rival: Rival) -> None:
        await asyncio.sleep(self.chance.uniform(0, 0.02))
        body = {"interaction_id": interaction_id, "response": rival.text}
        while not (rival.accepted or rival.refused):
            told = await door.try_once("POST", f"/runs/{self.run_id}/interaction/reply", json=body)
            if told is None:
                rival.unknown = True
            elif told.status_code == 202:
                rival.accepted = True
            elif told.status_code == 409:
                rival.refused = True
            else:
                self.troubles.append(f"a reply was answered with {told.status_code}: {told.text[:200]}")
                return

    async def _read_events(self, door: Door) -> None:
        """What was told once stays so, and is only added to."""
        events = await door.items(f"/runs/{self.run_id}/events", "after")
        if events[: len(self.events)] != self.events:
            self.troubles.append("its events changed between two readings")
        if [event["seq"] for event in events] != list(range(1, len(events) + 1)):
            self.troubles.append("its events have gaps")
        self.events = events
