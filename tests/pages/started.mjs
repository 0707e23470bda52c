// A real hub on a new home, an agent that calls it, and people who look at it.

import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { holds } from "./browser.mjs";

/** Starts the hub. Returns where it is, how to call it and how to end it. */
export async function start(home, configuration) {
  rmSync(home, { recursive: true, force: true });
  mkdirSync(home, { recursive: true, mode: 0o700 });
  writeFileSync(join(home, "portcullis.toml"), configuration);
  const child = spawn(process.env.PORTCULLIS_BIN, ["--home", home, "serve", "--json"], {
    env: { ...process.env, MCP_HTTP_PORT: "0" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = new Promise((done) => child.once("exit", done));
  const greeting = await new Promise((resolve, reject) => {
    let said = "";
    child.once("error", reject);
    ended.then((code) => reject(new Error(`the hub ended with ${code}`)));
    child.stdout.setEncoding("utf8");
    child.stdout.on("data", (part) => {
      said += part;
      try {
        resolve(JSON.parse(said));
      } catch {
        // Not all of it has come.
      }
    });
  });
  const { origin, host } = new URL(greeting.url);
  const end = () => {
    child.kill("SIGTERM");
    return ended;
  };
  return { ...greeting, home, origin, host, end, call: caller(greeting) };
}

/** Returns a function that calls a tool as an agent does. */
function caller({ url, token }) {
  let id = 0;
  return async (name, args) => {
    id += 1;
    const answer = await fetch(url, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json", accept: "application/json, text/event-stream" },
      body: JSON.stringify({ jsonrpc: "2.0", id, method: "tools/call", params: { name, arguments: args } }),
    });
    const text = await answer.text();
    const data = text.startsWith("{") ? text : text.split("\n").filter((line) => line.startsWith("data: {")).at(-1).slice(6);
    return JSON.parse(data);
  };
}

/** Does what a person does at the machine's own command line. */
export function command(hub, ...words) {
  const said = execFileSync(process.env.PORTCULLIS_BIN, ["--home", hub.home, ...words, "--json"], { encoding: "utf8" });
  return JSON.parse(said);
}

/** Opens the approvals when so many wait that hold a text. Returns the ways to look at them closer. */
export async function waiting(page, hub, text, count = 1) {
  const found = page.getByRole("article").filter({ hasText: text }).getByRole("link", { name: "Review" });
  await until(page, `${count} calls wait with ${text}`, async () => {
    await page.goto(`${hub.origin}/admin/approvals`);
    return (await found.count()) === count;
  });
  return found;
}

/** Asks until it is so; at most so often. */
export async function until(page, what, isSo, tries = 100) {
  for (let at = 0; !(await isSo()); at += 1) {
    holds(at < tries, `never: ${what}`);
    await page.waitForTimeout(100);
  }
}
