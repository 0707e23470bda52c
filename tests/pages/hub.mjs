// The page of a real hub: from the first start to a decision that an agent waits for, with a server that means harm.

import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { problemsOf } from "./access.mjs";
import { begin, check, equal, finish, holds, launch, open } from "./browser.mjs";
import { madeElements, rawCharacters } from "./foreign.mjs";

const OUT = process.env.PAGES_OUT;
const HOME = join(OUT, "home");
const HERE = dirname(fileURLToPath(import.meta.url));
const PASSWORD = "correct horse battery";

/** What a server says where the shared corpus is not there. */
const OWN_TEXTS = [
  "Adds.<script>alert(1)</script><img src=x onerror=alert(2)>\u202etxet\u202c",
  "</pre></textarea><svg onload=alert(3)>\u200b\u2060\u{e0061}\u{e0062}",
  '"><style>body{display:none}</style><iframe src="javascript:alert(4)">\u001b[31m',
  "<a href='javascript:alert(5)'>x</a>{{7*7}}${7*7}<%= 7*7 %>\u0000\u0007",
];

function hostileTexts() {
  const corpus = join(process.env.PORTCULLIS_SHARED, "fixtures/corpora/unicode_ansi.jsonl");
  if (!existsSync(corpus)) {
    console.log("the shared corpus is not here; the strings of this test are used alone");
    return OWN_TEXTS;
  }
  const lines = readFileSync(corpus, "utf8").split("\n").filter((line) => line);
  return [...OWN_TEXTS, ...lines.map((line) => JSON.parse(line).text)];
}

/** Starts the hub on a new home. Returns what it says first. */
function start() {
  const child = spawn(process.env.PORTCULLIS_BIN, ["--home", HOME, "serve", "--json"], {
    env: { ...process.env, MCP_HTTP_PORT: "0" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  return new Promise((resolve, reject) => {
    let said = "";
    child.once("error", reject);
    const ended = new Promise((done) => child.once("exit", done));
    ended.then((code) => reject(new Error(`the hub ended with ${code}`)));
    child.stdout.setEncoding("utf8");
    child.stdout.on("data", (part) => {
      said += part;
      try {
        const greeting = JSON.parse(said);
        const end = () => {
          child.kill("SIGTERM");
          return ended;
        };
        resolve({ ...greeting, end });
      } catch {
        // Not all of it has come.
      }
    });
  });
}

async function main() {
  rmSync(HOME, { recursive: true, force: true });
  mkdirSync(HOME, { recursive: true, mode: 0o700 });
  writeFileSync(join(HOME, "portcullis.toml"), '# Kept as it is.\n[[policy]]\ntools = ["workspace_write"]\ndecision = "ask"\n');
  const texts = hostileTexts();
  writeFileSync(join(OUT, "texts.json"), JSON.stringify(texts));
  const hub = await start();
  const { origin, host } = new URL(hub.url);
  const browser = await launch();
  const { context, quiet } = await open(browser, host, { expectsRefusals: true });
  let page;

  /** Calls a tool as an agent does. */
  let id = 0;
  const call = async (name, args) => {
    id += 1;
    const answer = await fetch(hub.url, {
      method: "POST",
      headers: { authorization: `Bearer ${hub.token}`, "content-type": "application/json", accept: "application/json, text/event-stream" },
      body: JSON.stringify({ jsonrpc: "2.0", id, method: "tools/call", params: { name, arguments: args } }),
    });
    const text = await answer.text();
    const data = text.startsWith("{") ? text : text.split("\n").filter((line) => line.startsWith("data: {")).at(-1).slice(6);
    return JSON.parse(data);
  };
  const foreign = async (where) => {
    equal(await page.evaluate(madeElements), [], `${where}: elements that somebody else made`);
    equal(await page.evaluate(rawCharacters), [], `${where}: characters that hide`);
    quiet(where);
  };

  await check("The first start prints a link, which leads to a password and to the page", async () => {
    holds(hub.admin_link?.startsWith(`${origin}/admin/welcome#`), `the link is ${hub.admin_link}`);
    page = await begin(context, hub.admin_link, PASSWORD);
    await page.getByText("No agent has called yet.").waitFor();
    quiet("the first page");
  });
  await check("A pending call that is approved on the page lets a waiting client go on", async () => {
    await page.goto(`${origin}/admin`);
    await page.getByText("live", { exact: true }).waitFor();
    let isDone = false;
    const waiting = call("workspace_write", { path: "plan.md", content: "from the page\n" });
    waiting.then(() => (isDone = true));
    await page.getByRole("link", { name: "Look and decide" }).click();
    await page.getByRole("heading", { level: 1, name: "workspace_write" }).waitFor();
    holds(!isDone, "the client did not wait");
    holds((await page.locator("pre[aria-label=Arguments]").textContent()).includes("from the page"), "the arguments");
    await page.getByRole("button", { name: "Approve once" }).click();
    const answer = await waiting;
    holds(!answer.error && !answer.result.isError, `the call failed: ${JSON.stringify(answer)}`);
    equal(readFileSync(join(HOME, "workspace/ai-data/plan.md"), "utf8"), "from the page\n", "the file");
    quiet("deciding");
  });
  await check("A rejected call tells the agent why, and the next one shows what is different", async () => {
    const waiting = call("workspace_write", { path: "plan.md", content: "another text\n" });
    await page.goto(`${origin}/admin/approvals`);
    for (let tries = 0; (await page.getByRole("link", { name: "Look closer" }).count()) === 0; tries += 1) {
      holds(tries < 100, "the call does not appear");
      await page.waitForTimeout(100);
      await page.reload();
    }
    await page.getByRole("link", { name: "Look closer" }).click();
    await page.getByRole("heading", { name: "Since last time" }).waitFor();
    holds((await page.locator(".difference ins").count()) > 0, "no word is marked");
    await page.screenshot({ path: `${OUT}/hub-approval.png` });
    await page.getByLabel("Why not").fill("Not <b>that</b> text.");
    await page.getByRole("button", { name: "Reject" }).click();
    holds(JSON.stringify(await waiting).includes("Not <b>that</b> text."), "the reason is not told");
    await foreign("rejecting");
  });
  await check("The token of an agent does not open the page", async () => {
    const answer = await fetch(`${origin}/admin/clients`, { headers: { authorization: `Bearer ${hub.token}` }, redirect: "manual" });
    equal([answer.status, answer.headers.get("location")], [303, "/admin/sign-in?next=%2Fadmin%2Fclients"], "the answer");
    const session = (await context.cookies()).find((cookie) => cookie.name.startsWith("__Host-"));
    const mcp = await fetch(hub.url, { method: "POST", headers: { cookie: `${session.name}=${session.value}`, "content-type": "application/json" }, body: "{}" });
    equal(mcp.status, 401, "the session at /mcp");
  });
  await check("A server is added, looked at and trusted on the page", async () => {
    await page.goto(`${origin}/admin/servers`);
    await page.getByLabel("Name").fill("hostile");
    await page.getByLabel("Command").fill(process.execPath);
    await page.getByRole("textbox", { name: "Arguments" }).fill(`${join(HERE, "hostile_server.mjs")}\n${join(OUT, "texts.json")}`);
    await page.getByRole("button", { name: "Add", exact: true }).click();
    await page.getByRole("heading", { level: 1, name: "hostile" }).waitFor();
    holds(readFileSync(join(HOME, "portcullis.toml"), "utf8").startsWith("# Kept as it is."), "the comment is gone");
    await foreign("an added server");
    await page.getByRole("button", { name: "Connect and look" }).click();
    const trust = page.getByRole("button", { name: "Trust hostile as it is now" });
    await trust.waitFor();
    equal(await page.evaluate(problemsOf), [], "accessibility");
    await foreign("what a server offers");
    await page.screenshot({ path: `${OUT}/hub-server.png` });
    await trust.click();
    await page.getByRole("status").filter({ hasText: "trusted" }).waitFor();
  });
  await check(`${texts.length} hostile texts stay text: as descriptions, arguments and replies`, async () => {
    const appear = async () => {
      await page.goto(`${origin}/admin/servers/hostile`);
      // One that the hub lets nobody see is still told here, with the reason.
      const dropped = await page.getByText("does not appear:").count();
      await page.goto(`${origin}/admin/tools?q=say_`);
      return dropped + (await page.locator("tbody tr").count());
    };
    for (let tries = 0; (await appear()) < texts.length; tries += 1) {
      holds(tries < 30, `${await appear()} of ${texts.length} tools appear`);
      await page.waitForTimeout(250);
    }
    await foreign("the list of tools");
    for (const at of [0, 1, 2, 3]) {
      await page.goto(`${origin}/admin/tools/hostile_say_${at}`);
      await foreign("a tool");
      await page.getByLabel("word").fill(texts[at]);
      await page.getByRole("button", { name: "Call", exact: true }).click();
      await page.getByRole("heading", { name: /What came of it|Try it/ }).first().waitFor();
      await foreign("a tried tool");
    }
    const asked = texts.slice(0, 30).map((text, at) => call(`hostile_say_${at}`, { word: text }));
    await page.waitForTimeout(1_000);
    for (const path of ["/admin/approvals", "/admin", "/admin/audit"]) {
      await page.goto(`${origin}${path}`);
      await page.waitForTimeout(300);
      await foreign(path);
    }
    await page.goto(`${origin}/admin/approvals`);
    await page.screenshot({ path: `${OUT}/hub-approvals.png`, fullPage: true });
    return `${asked.length} calls wait`;
  });
  await check("Every page of the hub opens", async () => {
    const paths = ["", "/approvals", "/servers", "/servers/hostile", "/tools", "/tools/workspace_write", "/clients", "/secrets", "/policy?client=a&tool=workspace_write", "/audit?tool=workspace_*", "/settings"];
    for (const path of paths) {
      const answer = await page.goto(`${origin}/admin${path}`);
      equal(answer.status(), 200, path);
      equal(await page.evaluate(problemsOf), [], `${path}: accessibility`);
      await foreign(path);
    }
  });
  await check("One call's story is told, and the log verifies", async () => {
    await page.goto(`${origin}/admin/audit?tool=workspace_write`);
    await page.locator("tbody tr a").first().click();
    await page.getByRole("heading", { name: "It ended" }).waitFor();
    await page.goto(`${origin}/admin/audit`);
    await page.getByRole("button", { name: "Verify the log" }).click();
    await page.getByText("The log is as it was written.").waitFor();
    quiet("the log");
  });
  await check("A rule is added and tested, and comments stay", async () => {
    await page.goto(`${origin}/admin/policy`);
    await page.getByLabel("Decision").selectOption("deny");
    await page.getByRole("region", { name: "Add a rule" }).getByLabel("Tools").fill("memory_*");
    await page.getByRole("button", { name: "Add", exact: true }).click();
    await page.getByText("The rule is added.").waitFor();
    holds(readFileSync(join(HOME, "portcullis.toml"), "utf8").includes("# Kept as it is."), "the comment is gone");
    quiet("rules");
  });
  await check("A secret is taken in and never shown", async () => {
    await page.goto(`${origin}/admin/secrets`);
    await page.getByLabel("Name").fill("PAGE_SECRET");
    await page.getByLabel("Value", { exact: true }).fill("s3cr3t-of-the-page-42");
    await page.getByRole("button", { name: "Add", exact: true }).click();
    await page.getByRole("rowheader", { name: "PAGE_SECRET" }).waitFor();
    await call("workspace_read", { path: "s3cr3t-of-the-page-42" });
    for (const path of ["/admin/secrets", "/admin", "/admin/audit", "/admin/settings"]) {
      await page.goto(`${origin}${path}`);
      holds(!(await page.content()).includes("s3cr3t-of-the-page-42"), `${path} shows it`);
    }
    quiet("secrets");
  });
  await check("Pages of other sites get nothing done", async () => {
    const session = (await context.cookies()).find((cookie) => cookie.name.startsWith("__Host-"));
    for (const headers of [{ origin: "http://evil.example" }, { origin: "null" }, { "sec-fetch-site": "cross-site" }]) {
      const answer = await fetch(`${origin}/admin/clients`, {
        method: "POST",
        redirect: "manual",
        headers: { ...headers, cookie: `${session.name}=${session.value}`, "content-type": "application/x-www-form-urlencoded" },
        body: "name=forged",
      });
      equal(answer.status, 403, JSON.stringify(headers));
    }
  });
  await context.close();
  await browser.close();
  await check("The hub ends when it is told to", async () => equal(await hub.end(), 0, "exit code"));
  finish();
}

await main();
