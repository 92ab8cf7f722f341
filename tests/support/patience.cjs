// Loaded into a program of Node before its own code: its limits on waits are longer, so that they hold on a slow machine.
// Short timers are pauses between two attempts, and stay.
"use strict";

const FACTOR = 20;
const LONGEST_PAUSE_MS = 500;

const { setTimeout } = globalThis;
globalThis.setTimeout = Object.assign(
  (callback, ms, ...values) => setTimeout(callback, ms > LONGEST_PAUSE_MS ? ms * FACTOR : ms, ...values),
  setTimeout,
);

const timeout = AbortSignal.timeout.bind(AbortSignal);
AbortSignal.timeout = (ms) => timeout(ms * FACTOR);

const now = Date.now.bind(Date);
const began = now();
Date.now = () => began + Math.floor((now() - began) / FACTOR);
