"""Every operation of the API can be called from the TypeScript client, or there is a reason why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from client_programs import ran

from support.operations import LEFT_OUT, operations, template_of

pytestmark = pytest.mark.xdist_group("typescript")

PROGRAM = """
import { Client } from "./src/index.js";
const sent = [];
const record = async (address, { method }) => {
  sent.push([method, new URL(address).pathname]);
  return new Response("{}", { status: 404 });
};
const client = new Client("http://127.0.0.1", { fetch: record });
const file = new Blob([""]);
const given = { upload: [file, "x"], installSkill: [file], createRun: [{}], runs: [{}], inbox: [{}], closedQuestions: [{}],
  skills: [{}], engines: [{}], workers: [{}], tokens: [{}], invitations: [{}], health: [{}], statistics: [1], usage: ["day", 1], link: ["x", 1], diff: ["x", "x", 1], events: ["x", {}],
  pastEvents: ["x", {}], wait: ["x", {}], run: ["x", {}], deliveries: [] };
const methods = Object.entries(Object.getOwnPropertyDescriptors(Client.prototype))
  .filter(([name, { value }]) => typeof value === "function" && name !== "constructor").map(([name]) => name);
for (const [name, words] of [...methods.map((name) => [name, given[name] ?? ["x", "x"]]), ["deliveries", ["x"]]]) {
  const before = sent.length;
  const started = client[name](...words);
  await (started.next ? started.next() : started).catch(() => undefined);
  if (sent.length === before) throw new Error(`${name} sent nothing`);
}
console.log(JSON.stringify(sent));
"""


def test_every_operation_has_a_method(compiled: Path, node: str) -> None:
    program = compiled / "operations.js"
    program.write_text(PROGRAM)
    sent = json.loads(ran(node, str(program)))
    made = {template_of(method, path) for method, path in sent}
    assert None not in made
    assert operations() - made == LEFT_OUT.keys()
