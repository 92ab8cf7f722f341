/** The client against a real server. ASKBACK_URL and ASKBACK_TOKEN name it; tests/typescript/ starts it with its skills. */

import assert from "node:assert/strict";
import { test } from "node:test";

import * as askback from "../src/index.js";
import { CuttingProxy } from "./proxy.js";

const url = process.env["ASKBACK_URL"] ?? "";
const token = process.env["ASKBACK_TOKEN"] ?? "";
const client = new askback.Client(url, { token });
const limit = { timeoutMs: 100_000 };

async function asked(): Promise<askback.Run> {
  const run = await client.createRun({ skill: "asks", engine: "scripted", mode: "interactive" });
  return await client.wait(run.id, limit);
}

test("a run asks, is answered and has a validated result", async () => {
  const run = await asked();
  assert.equal(run.state, "waiting_user");
  assert.deepEqual([run.pending_interaction?.interaction_id, run.pending_interaction?.prompt], ["colour", "Which colour?"]);
  await assert.rejects(client.result(run.id), askback.Conflict);
  await client.reply(run.id, "colour", "blue");
  assert.equal((await client.wait(run.id, limit)).state, "succeeded");
  const result = await client.result(run.id);
  assert.deepEqual([result.status, result.data], ["succeeded", { colour: "blue" }]);
  assert.deepEqual((await client.interactions(run.id)).map((each) => [each.outcome, each.response]), [["answered", "blue"]]);
});

test("events arrive exactly once across connections that are cut", async () => {
  const proxy = await CuttingProxy.start(url);
  try {
    const run = await asked();
    const seen: askback.Event[] = [];
    for await (const event of new askback.Client(proxy.url, { token }).events(run.id)) {
      seen.push(event);
      if (event.seq === 1 || event.type === "interaction.asked") {
        proxy.cut();
      }
      if (event.type === "interaction.asked") {
        await client.reply(run.id, "colour", "grün ✓");
      }
    }
    const all: askback.Event[] = [];
    for await (const event of client.pastEvents(run.id)) {
      all.push(event);
    }
    assert.deepEqual(seen, all);
    assert.deepEqual(seen.map((event) => event.seq), seen.map((_, index) => index + 1));
    assert.deepEqual([proxy.resumedAfter[0], proxy.resumedAfter.length >= 2], [0, true]);
    assert.ok((proxy.resumedAfter.at(-1) ?? 0) > 0);
    assert.deepEqual((await client.result(run.id)).data, { colour: "grün ✓" });
  } finally {
    await proxy.stop();
  }
});

test("a follower gives up when the server stays away", async () => {
  const proxy = await CuttingProxy.start(url);
  const run = await asked();
  const events = new askback.Client(proxy.url, { token }).events(run.id, { patienceMs: 100 });
  await events.next();
  await proxy.stop();
  await assert.rejects(async () => {
    for await (const event of events) {
      assert.equal(event.run_id, run.id);
    }
  }, askback.ServerUnreachable);
  await client.cancel(run.id);
});

test("errors have types, codes and problems", async () => {
  await assert.rejects(new askback.Client(url, { token: "wrong" }).run("1m7gekfsksrgk77s"), askback.Unauthorized);
  await assert.rejects(client.run("1m7gekfsksrgk77s"), (error) => error instanceof askback.NotFound && error.code === "RUN_NOT_FOUND");
  await assert.rejects(client.createRun({ skill: "reads", engine: "scripted" }), (error) => {
    assert.ok(error instanceof askback.Refused);
    assert.deepEqual([error.status, error.code], [422, "INPUT_INVALID"]);
    assert.ok(error.problems.some((problem) => problem.includes("plan")), String(error.problems));
    return true;
  });
  await assert.rejects(new askback.Client("http://127.0.0.1:1", { token }).health(), askback.ServerUnreachable);
});

test("a file is uploaded, used and downloaded", async () => {
  const upload = await client.upload(new Blob(["Paint it.\n"]), "plan.txt");
  assert.deepEqual([upload.name, upload.size], ["plan.txt", 10]);
  const run = await client.createRun({ skill: "reads", engine: "scripted", input: { plan: askback.reference(upload) } });
  assert.equal((await client.wait(run.id, limit)).state, "succeeded");
  assert.deepEqual(await client.artifacts(run.id), [{ path: "a note.md", size: 6, turn: 1 }]);
  assert.equal(await (await client.download(run.id, "a note.md")).text(), "Done.\n");
  const zip = new Uint8Array(await (await client.bundle(run.id)).arrayBuffer());
  assert.equal(new TextDecoder().decode(zip.slice(0, 2)), "PK");
});

test("a name cannot lead out of its place, and nothing is sent for it", async () => {
  const sent: string[] = [];
  const record = async (address: unknown): Promise<Response> => {
    sent.push(String(address));
    return new Response("{}");
  };
  const recorded = new askback.Client(url, { token, fetch: record as typeof fetch });
  for (const name of ["../../other/artifacts/plan.md", "../../../../metrics", "a/./b", "/a", "a/", "a//b", "..", ""]) {
    const told = new RegExp(`^there is no artifact '${name.replaceAll(".", "\\.")}'$`);
    await assert.rejects(recorded.download("1m7gekfsksrgk77s", name), (error) => {
      assert.ok(error instanceof askback.NotFound);
      assert.equal(error.code, "ARTIFACT_NOT_FOUND");
      assert.match(error.message, told);
      return true;
    });
  }
  for (const id of [".", "..", "", "1m7gekfsksrgk77s/result"]) {
    await assert.rejects(recorded.run(id), { code: "RUN_NOT_FOUND", message: `there is no run '${id}'` });
    await assert.rejects(recorded.pastEvents(id).next(), { code: "RUN_NOT_FOUND" });
    await assert.rejects(recorded.revokeLink("1m7gekfsksrgk77s", id), { code: "LINK_NOT_FOUND" });
    await assert.rejects(recorded.deleteSkill(id), { code: "SKILL_NOT_FOUND" });
    await assert.rejects(recorded.models(id), { code: "ENGINE_NOT_FOUND" });
  }
  assert.deepEqual(sent, []);
});

test("a time limit that is no time is refused, and a long one is not short", async () => {
  const run = await asked();
  for (const timeoutMs of [-1, NaN]) {
    await assert.rejects(client.wait(run.id, { timeoutMs }), /^RangeError: timeoutMs must be 0 or more, not /);
  }
  for (const timeoutMs of [Infinity, 2 ** 40]) {
    assert.equal((await client.wait(run.id, { timeoutMs })).state, "waiting_user");
  }
  await client.cancel(run.id);
});

test("the inbox has the question, and a link to it", async () => {
  const run = await asked();
  const found: askback.PendingQuestion[] = [];
  for await (const question of client.inbox()) {
    found.push(question);
  }
  assert.ok(found.some((question) => question.run_id === run.id && question.prompt === "Which colour?"));
  assert.ok((await client.link(run.id)).url.startsWith("http"));
  assert.equal((await client.interaction(run.id)).interaction_id, "colour");
  await client.cancel(run.id);
  assert.ok(await settledAsCanceled(run.id));
});

async function settledAsCanceled(runId: string): Promise<boolean> {
  for await (const event of client.events(runId)) {
    assert.equal(event.run_id, runId);
  }
  return (await client.run(runId)).state === "canceled";
}

test("a wait ends at its time limit or by its signal, and the run can be canceled", async () => {
  const run = await client.createRun({ skill: "works", engine: "scripted" });
  await assert.rejects(client.wait(run.id, { timeoutMs: 200 }), askback.WaitTimedOut);
  const stop = new AbortController();
  const waiting = client.wait(run.id, { signal: stop.signal });
  stop.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
  await client.cancel(run.id);
  assert.ok(await settledAsCanceled(run.id));
});

test("the same idempotency key returns the same run", async () => {
  const wanted: askback.RunCreate = { skill: "asks", engine: "scripted", mode: "interactive" };
  const first = await client.createRun(wanted, { idempotencyKey: "once" });
  assert.equal((await client.createRun(wanted, { idempotencyKey: "once" })).id, first.id);
  const listed: string[] = [];
  for await (const run of client.runs({ skill: "asks", pageSize: 1 })) {
    listed.push(run.id);
  }
  assert.ok(listed.includes(first.id));
  await client.cancel(first.id);
});

test("a token is made for a person, and a device is invited", async () => {
  const made = await client.createToken("anna", ["answer"], { expiresInSec: 3600 });
  const anna = new askback.Client(url, { token: made.token });
  await assert.rejects(anna.tokens(), askback.Forbidden);
  const invitation = await client.invite("anna");
  assert.ok((await client.invitations()).some((each) => each.id === invitation.id));
  await client.revokeInvitation(invitation.id);
  const listed = (await client.tokens()).find((each) => each.name === "anna");
  assert.equal(listed?.last_used_via, "api");
  await client.revokeToken("anna");
  await assert.rejects(anna.inbox().next(), askback.Unauthorized);
});

test("skills, engines and health are there", async () => {
  const names = (await client.skills()).map((skill) => skill.id);
  assert.ok(names.includes("asks"), String(names));
  assert.equal((await client.skill("asks")).id, "asks");
  const files = await client.skillFiles("asks");
  const text = await (await client.downloadSkillFile("asks", "SKILL.md")).text();
  assert.equal(files.find((file) => file.path === "SKILL.md")?.size, new TextEncoder().encode(text).length);
  await assert.rejects(client.downloadSkillFile("asks", "../asks/SKILL.md"), { code: "SKILL_FILE_NOT_FOUND" });
  assert.ok((await client.engines()).some((engine) => engine.name === "scripted"));
  assert.equal(typeof (await client.health()).status, "string");
  assert.equal((await client.statistics(7)).days.length, 7);
  await assert.rejects(client.deleteSkill("unknown"), askback.Refused);
});

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) {
    found.push(item);
  }
  return found;
}

test("runs and questions are found by their labels, and a restricted token sees no others", async () => {
  const labels = { customer: "a:b & c", plan: "trial" };
  const run = await client.createRun({ skill: "asks", engine: "scripted", mode: "interactive", labels });
  await client.wait(run.id, limit);
  assert.deepEqual((await client.run(run.id)).labels, labels);
  const only = { customer: "a:b & c" };
  assert.deepEqual((await all(client.runs({ labels }))).map((each) => each.id), [run.id]);
  assert.deepEqual((await all(client.inbox({ labels: only }))).map((each) => each.run_id), [run.id]);
  assert.deepEqual(await all(client.runs({ labels: { customer: "a" } })), []);
  assert.equal((await client.statistics(1, { labels: only })).unfinished.waiting_user, 1);
  const made = await client.createToken("bob", ["read", "answer"], { labels: only });
  const bob = new askback.Client(url, { token: made.token });
  const other = await asked();
  assert.deepEqual((await all(bob.inbox())).map((each) => each.run_id), [run.id]);
  await assert.rejects(bob.run(other.id), askback.NotFound);
  await bob.reply(run.id, "colour", "red");
  await client.wait(run.id, limit);
  assert.deepEqual((await all(client.closedQuestions({ labels: only }))).map((each) => each.run_id), [run.id]);
  await client.revokeToken("bob");
  await client.cancel(other.id);
});

test("links are listed and revoked, one or all", async () => {
  const run = await asked();
  const [first, second, third] = [await client.link(run.id), await client.link(run.id), await client.link(run.id)];
  assert.deepEqual((await client.links(run.id)).map((each) => each.id), [first.id, second.id, third.id]);
  await client.revokeLink(run.id, second.id);
  assert.deepEqual((await client.links(run.id)).map((each) => each.id), [first.id, third.id]);
  await assert.rejects(client.revokeLink(run.id, second.id), askback.NotFound);
  await client.revokeLinks(run.id);
  assert.deepEqual(await client.links(run.id), []);
  await client.cancel(run.id);
});

test("a question is found in the inbox by its filters, then among the closed ones, until its run is deleted", async () => {
  const run = await asked();
  const found = await all(client.inbox({ skill: "asks", engine: "scripted", words: "colour", order: "deadline" }));
  assert.ok(found.some((question) => question.run_id === run.id));
  assert.deepEqual(await all(client.inbox({ words: "no such words" })), []);
  await assert.rejects(client.deleteRun(run.id), askback.Conflict);
  await client.reply(run.id, "colour", "red");
  assert.equal((await client.wait(run.id, limit)).state, "succeeded");
  const closed = (await all(client.closedQuestions())).find((question) => question.run_id === run.id);
  assert.equal(closed?.outcome, "answered");
  await client.deleteRun(run.id);
  await assert.rejects(client.run(run.id), askback.NotFound);
});

test("a file has versions and differences", async () => {
  const upload = await client.upload(new Blob(["x"]), "plan.txt");
  const run = await client.createRun({ skill: "reads", engine: "scripted", input: { plan: askback.reference(upload) } });
  assert.equal((await client.wait(run.id, limit)).state, "succeeded");
  const versions = await client.versions(run.id, "a note.md");
  assert.deepEqual(versions.map((each) => each.turn), [1]);
  assert.match((await client.diff(run.id, "a note.md", 0)).diff ?? "", /^\+Done\.$/m);
  assert.equal((await client.diff(run.id, "a note.md", 1, 1)).diff, "");
});

test("an engine lists its models, or says why not", async () => {
  const found = await client.models("scripted");
  assert.deepEqual([found.engine, found.models], ["scripted", null]);
  assert.match(found.reason ?? "", /does not list its models/);
  await assert.rejects(client.models("codx"), askback.Refused);
});
