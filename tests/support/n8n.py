"""Executes an exported n8n workflow as n8n does, as far as the guide needs it: expressions, requests, waits, conditions."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from support.program import DEADLINE_SEC

NODE = shutil.which("node")
VERSIONS = {"webhook": 2, "set": 3.4, "httpRequest": 4.2, "wait": 1.1, "if": 2.2}
"""The nodes that can be executed here, with the version of each."""

_EXPRESSIONS = """
const { parameters, json, outputs, execution } = JSON.parse(require("fs").readFileSync(0, "utf8"));
const named = (name) => ({ first: () => ({ json: outputs[name] }) });
const value = (code) => new Function("$json", "$execution", "$", `return (${code});`)(json, execution, named);
function rendered(given) {
  if (Array.isArray(given)) return given.map(rendered);
  if (given && typeof given === "object") return Object.fromEntries(Object.entries(given).map(([k, v]) => [k, rendered(v)]));
  if (typeof given !== "string" || !given.startsWith("=")) return given;
  const parts = given.slice(1).split(/({{[^]*?}}(?!\\)))/).filter(Boolean);
  const values = parts.map((part) => (part.startsWith("{{") ? value(part.slice(2, -2)) : part));
  return values.length === 1 ? values[0] : values.join("");
}
console.log(JSON.stringify(rendered(parameters)));
"""


class Workflow:
    def __init__(self, file: Path) -> None:
        self.document: dict[str, Any] = json.loads(file.read_text())
        self.nodes: dict[str, dict[str, Any]] = {node["name"]: node for node in self.document["nodes"]}
        self.connections: dict[str, list[list[dict[str, Any]]]] = {
            name: outputs["main"] for name, outputs in self.document["connections"].items()
        }

    @property
    def references(self) -> set[str]:
        """The nodes that expressions name."""
        return set(re.findall(r"\$\('(.+?)'\)", json.dumps(self.document["nodes"], ensure_ascii=False)))

    def next(self, name: str, output: int = 0) -> str | None:
        if name not in self.connections:
            return None
        (target,) = self.connections[name][output]
        return str(target["node"])


class Execution:
    """One execution. `resumed` waits for the call of the resume URL, and returns its body."""

    def __init__(self, workflow: Workflow, resume_url: str, token: str, resumed: Callable[[], Any]) -> None:
        self.workflow = workflow
        self.visited: list[str] = []
        self.outputs: dict[str, Any] = {}
        self._known = {"id": "231", "resumeUrl": resume_url}
        self._authorization = {"authorization": f"Bearer {token}"}
        self._resumed = resumed

    def run(self, name: str, item: Any) -> Any:
        """From this trigger to the last node; the output of that one."""
        self.outputs[name] = item
        following = self.workflow.next(name)
        while following is not None:
            name = following
            self.visited.append(name)
            item, output = self._step(self.workflow.nodes[name], item)
            self.outputs[name] = item
            following = self.workflow.next(name, output)
        return item

    def _step(self, node: dict[str, Any], item: Any) -> tuple[Any, int]:
        """The output of a node, and the number of the connection that it leaves by."""
        kind = node["type"].removeprefix("n8n-nodes-base.")
        if kind == "wait":
            assert node["parameters"]["resume"] == "webhook"
            return {"body": self._resumed()}, 0
        parameters = self._rendered(node["parameters"], item)
        match kind:
            case "set":
                assert parameters["includeOtherFields"]
                fields = {each["name"]: each["value"] for each in parameters["assignments"]["assignments"]}
                return {**item, **fields}, 0
            case "if":
                (condition,) = parameters["conditions"]["conditions"]
                return item, 0 if _holds(condition) else 1
            case "httpRequest":
                return self._request(parameters), 0
            case _:
                raise AssertionError(f"a node of the type {kind} cannot be executed here")

    def _request(self, parameters: dict[str, Any]) -> Any:
        assert (parameters["authentication"], parameters["genericAuthType"]) == (
            "genericCredentialType",
            "httpHeaderAuth",
        )
        added = parameters.get("headerParameters", {}).get("parameters", [])
        headers = self._authorization | {each["name"]: each["value"] for each in added}
        body = json.loads(parameters["jsonBody"]) if parameters.get("sendBody") else None
        response = httpx.request(
            parameters.get("method", "GET"), parameters["url"], headers=headers, json=body, timeout=DEADLINE_SEC
        )
        assert response.is_success, response.text
        return response.json()

    def _rendered(self, parameters: dict[str, Any], item: Any) -> Any:
        given = {"parameters": parameters, "json": item, "outputs": self.outputs, "execution": self._known}
        ran = subprocess.run(
            [str(NODE), "-e", _EXPRESSIONS],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            timeout=DEADLINE_SEC,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)


def _holds(condition: dict[str, Any]) -> bool:
    match condition["operator"]:
        case {"type": "string", "operation": "equals"}:
            return bool(condition["leftValue"] == condition["rightValue"])
        case {"type": "boolean", "operation": "true"}:
            return condition["leftValue"] is True
        case other:
            raise AssertionError(f"the operator {other} cannot be executed here")
