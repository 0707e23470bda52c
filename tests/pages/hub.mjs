// The page of a real hub: from the first start to a decision that an agent waits for, with a server that means harm.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { problemsOf } from "./access.mjs";
import { begin, check, equal, finish, holds, launch, open } from "./browser.mjs";
import { madeElements, rawCharacters } from "./foreign.mjs";
import { badInput } from "./hub_bad_input.mjs";
import { hostile } from "./hub_hostile.mjs";
import { scripts } from "./hub_scripts.mjs";
import { command, start, until } from "./started.mjs";

const OUT = process.env.PAGES_OUT;
const HOME = join(OUT, "home");
const PASSWORD = "correct horse battery";
/** Much is called at once here, and not to try how much may be. */
const CONFIGURATION = '# Kept as it is.\n[rate_limit]\nrequests_per_second = 1000\nburst = 1000\n[[policy]]\ntools = ["workspace_write"]\ndecision = "ask"\n[[policy]]\ntools = ["hostile_*"]\nclients = ["default"]\ndecision = "ask"\n';

const hub = await start(HOME, CONFIGURATION);
try {
  await main();
} finally {
  await check("The hub ends when it is told to", async () => equal(await hub.end(), 0, "exit code"));
  finish();
}

async function main() {
  const { origin, call } = hub;
  const browser = await launch();
  const { context, quiet } = await open(browser, hub.host, { expectsRefusals: true });
  let page;
  const foreign = async (where) => {
    equal(await page.evaluate(madeElements), [], `${where}: elements that somebody else made`);
    equal(await page.evaluate(rawCharacters), [], `${where}: characters that hide`);
    quiet(where);
  };

  await check("The first start prints a link, which leads to a password and to the page", async () => {
    holds(hub.admin_link?.startsWith(`${origin}/admin/welcome#`), `the link is ${hub.admin_link}`);
    page = await begin(context, hub.admin_link, PASSWORD);
    await page.getByText("No calls yet.").waitFor();
    quiet("the first page");
  });
  await check("A pending call that is approved on the page lets a waiting client go on", async () => {
    await page.goto(`${origin}/admin`);
    await page.getByText("Live", { exact: true }).waitFor();
    let isDone = false;
    const waiting = call("workspace_write", { path: "plan.md", content: "from the page\n" });
    waiting.then(() => (isDone = true));
    await page.getByRole("link", { name: "Review" }).click();
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
    await until(page, "the call appears", async () => {
      await page.reload();
      return (await page.getByRole("link", { name: "Review" }).count()) > 0;
    });
    await page.getByRole("link", { name: "Review" }).click();
    await page.getByRole("heading", { name: "Changes since the last request" }).waitFor();
    holds((await page.locator(".difference ins").count()) > 0, "no word is marked");
    await page.screenshot({ path: `${OUT}/hub-approval.png` });
    await page.getByLabel("Reason").fill("Not <b>that</b> text.");
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
  // Somebody else, with a browser of their own.
  const other = await open(browser, hub.host, { expectsRefusals: true });
  const link = new URL(command(hub, "admin", "link").link);
  const bob = await begin(other.context, `${origin}${link.pathname}${link.hash}`, PASSWORD, "bob");
  const world = { hub, page, bob, browser, foreign, quiet, password: PASSWORD, out: OUT };
  await scripts(world);
  await hostile(world);
  await check("Every page of the hub opens", async () => {
    const paths = ["", "/approvals", "/servers", "/servers/hostile", "/tools", "/tools/workspace_write", "/scripts", "/scripts/report.star", "/clients", "/secrets", "/policy?client=a&tool=workspace_write", "/audit?tool=workspace_*", "/settings"];
    for (const path of paths) {
      const answer = await page.goto(`${origin}/admin${path}`);
      equal(answer.status(), 200, path);
      equal(await page.evaluate(problemsOf), [], `${path}: accessibility`);
      await foreign(path);
    }
  });
  await check("A call's history is shown, and the log verifies", async () => {
    await page.goto(`${origin}/admin/audit?tool=workspace_write`);
    await page.locator("tbody tr a").first().click();
    await page.getByRole("heading", { name: "Finished" }).waitFor();
    await page.goto(`${origin}/admin/audit`);
    await page.getByRole("button", { name: "Verify log" }).click();
    await page.getByText("The audit log is intact").waitFor();
    quiet("the log");
  });
  await check("A rule is added and tested, and comments stay", async () => {
    await page.goto(`${origin}/admin/policy`);
    await page.getByLabel("Decision").selectOption("deny");
    await page.getByRole("region", { name: "Add a rule" }).getByLabel("Tools").fill("memory_*");
    await page.getByRole("button", { name: "Add", exact: true }).click();
    await page.getByText("Added the rule.").waitFor();
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
  await badInput(world);
  other.quiet("the other one");
  await context.close();
  await browser.close();
}
