#!/usr/bin/env node
// Starts the program of the platform's package, with this process's standard streams, and ends as it does.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");
const { isatty } = require("node:tty");

const platform = `portcullis-${process.platform}-${process.arch}`;

function program() {
  if (process.platform !== "linux") {
    throw new Error(`portcullis runs on Linux, not on ${process.platform}`);
  }
  try {
    return require.resolve(`${platform}/bin/portcullis`);
  } catch {
    throw new Error(
      `the package \`${platform}\` is not installed; install \`portcullis\` again without \`--omit=optional\`, ` +
        "and without a lock file that was written on another platform",
    );
  }
}

function start(path) {
  const child = spawn(path, process.argv.slice(2), { stdio: "inherit" });
  // What a terminal sends, it sends to both processes, and the hub takes a second signal as a request to exit at once.
  // Asked by number: the streams of `process` make pipes non-blocking, which the hub shares.
  const terminal = [0, 1, 2].some((stream) => isatty(stream));
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"]) {
    process.on(signal, () => {
      if (signal === "SIGTERM" || !terminal) child.kill(signal);
    });
  }
  child.on("error", (error) => fail(`\`${path}\` does not start: ${error.message}`));
  child.on("exit", (code, signal) => {
    // 128 and the signal's number, as shells report it.
    process.exitCode = signal === null ? code : 128 + constants.signals[signal];
  });
}

function fail(message) {
  process.stderr.write(`portcullis: ${message}\n`);
  process.exitCode = 1;
}

try {
  start(program());
} catch (error) {
  fail(error.message);
}
