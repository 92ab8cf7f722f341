/** The parser of event streams, fed in every possible way. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { MessageParser } from "../src/stream.js";

const STREAM = ': hello\n\nid: 1\nevent: a\ndata: {"x": 1}\n\ndata: two\r\ndata:lines\r\n\r\n: heartbeat\n\ndata:\n\ndata: cut';

test("messages are the same wherever the stream is cut into pieces", () => {
  for (let place = 0; place <= STREAM.length; place += 1) {
    const parser = new MessageParser();
    const found = [...parser.feed(STREAM.slice(0, place)), ...parser.feed(STREAM.slice(place))];
    assert.deepEqual(found, ['{"x": 1}', "two\nlines", ""]);
  }
});
