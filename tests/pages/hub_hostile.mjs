// What strangers say to a real hub: a server in its definitions and replies, an agent in its arguments, a person in a reason.

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { problemsOf } from "./access.mjs";
import { check, equal, holds } from "./browser.mjs";
import { notShown } from "./foreign.mjs";
import { until, waiting } from "./started.mjs";

const HERE = dirname(fileURLToPath(import.meta.url));
/** How many calls the agent asks about at once; it may have 50. */
const TOGETHER = 12;

/** What is said where the shared corpus is not there. */
const OWN_TEXTS = [
  "Adds.<script>alert(1)</script><img src=x onerror=alert(2)>\u202etxet\u202c",
  "</pre></textarea><svg onload=alert(3)>\u200b\u2060\u{e0061}\u{e0062}",
  '"><style>body{display:none}</style><iframe src="javascript:alert(4)">\u001b[31m',
  "<a href='javascript:alert(5)'>x</a>{{7*7}}${7*7}<%= 7*7 %>\u0000\u0007",
];

export function hostileTexts() {
  const corpus = join(process.env.PORTCULLIS_SHARED, "fixtures/corpora/unicode_ansi.jsonl");
  if (!existsSync(corpus)) {
    console.log("skipped: the shared corpus is not here; the strings of this test are used alone");
    return OWN_TEXTS;
  }
  const lines = readFileSync(corpus, "utf8").split("\n").filter((line) => line);
  return [...OWN_TEXTS, ...lines.map((line) => JSON.parse(line).text)];
}

export async function hostile({ hub, page, foreign, out }) {
  const texts = hostileTexts();
  const file = join(out, "texts.json");
  writeFileSync(file, JSON.stringify(texts));
  const tool = (at) => `hostile_say_${at}`;
  /** What of a text is nowhere on the page, not even as a mark. */
  const missing = async (text) => notShown(text, await page.locator("main").textContent());

  await check("A server is added, looked at and trusted on the page", async () => {
    await page.goto(`${hub.origin}/admin/servers`);
    await page.getByLabel("Name").fill("hostile");
    await page.getByLabel("Command").fill(process.execPath);
    await page.getByRole("textbox", { name: "Arguments" }).fill(`${join(HERE, "hostile_server.mjs")}\n${file}`);
    await page.getByRole("button", { name: "Add", exact: true }).click();
    await page.getByRole("heading", { level: 1, name: "hostile" }).waitFor();
    holds(readFileSync(join(hub.home, "portcullis.toml"), "utf8").startsWith("# Kept as it is."), "the comment is gone");
    await foreign("an added server");
    await page.getByRole("button", { name: "Connect and review" }).click();
    const trust = page.getByRole("button", { name: "Trust hostile" });
    await trust.waitFor();
    equal(await page.evaluate(problemsOf), [], "accessibility");
    await foreign("what a server offers");
    for (const text of texts) equal(await missing(text), [], "hidden characters of a description that are not marked");
    await page.screenshot({ path: `${out}/hub-server.png` });
    // Its tools are tried below, one after the other.
    await page.getByLabel("Calls, where no rule matches").selectOption("allow");
    await trust.click();
    await page.getByRole("status").filter({ hasText: "trusted" }).waitFor();
  });
  let dropped = [];
  await check(`${texts.length} hostile descriptions stay text, each on the page of its tool`, async () => {
    const appear = async () => {
      await page.goto(`${hub.origin}/admin/servers/hostile`);
      // One that the hub lets nobody see is still told here, with the reason.
      const told = await page.getByText("is not exposed:").allTextContents();
      dropped = texts.map((_, at) => at).filter((at) => told.some((line) => new RegExp(`\\bsay_${at}\\b`).test(line)));
      await page.goto(`${hub.origin}/admin/tools?q=say_`);
      return dropped.length + (await page.locator("tbody tr").count());
    };
    await until(page, `${texts.length} tools appear`, async () => (await appear()) >= texts.length, 30);
    await foreign("the list of tools");
    for (const at of texts.keys()) {
      if (dropped.includes(at)) continue;
      await page.goto(`${hub.origin}/admin/tools/${tool(at)}`);
      await foreign(tool(at));
      if (at >= OWN_TEXTS.length) continue;
      await page.getByLabel("word").fill(texts[at]);
      await page.getByRole("button", { name: "Call", exact: true }).click();
      await page.getByRole("heading", { name: /Result|Try it/ }).first().waitFor();
      await foreign(`${tool(at)}, tried`);
    }
    return `${dropped.length} not let in at all`;
  });
  // Many at once, as a hostile agent would; each looked at closely, and rejected in its own words.
  for (let from = 0; from < texts.length; from += TOGETHER) {
    const some = texts.slice(from, from + TOGETHER);
    await check(`Hostile arguments ${from + 1} to ${from + some.length} stay text while they wait, and what is hidden in them is shown`, async () => {
      const calls = some.map((text, at) => hub.call("workspace_write", { path: `${from + at}.md`, content: text }));
      await waiting(page, hub, "workspace_write", some.length);
      await foreign("the list of approvals");
      if (from === 0) await page.screenshot({ path: `${out}/hub-approvals.png`, fullPage: true });
      for (const at of some.keys()) {
        await page.getByRole("article").filter({ hasText: "workspace_write" }).first().getByRole("link", { name: "Review" }).click();
        await page.getByRole("heading", { level: 1, name: "workspace_write" }).waitFor();
        const [, number] = (await page.locator("pre[aria-label=Arguments]").textContent()).match(/^path: (\d+)\.md$/m);
        const text = texts[Number(number)];
        const marks = await page.locator("pre[aria-label=Arguments] mark.hidden").count();
        // A line that ends as on some systems is a line like any other, and hides nothing.
        holds(marks > 0 || notShown(text.replaceAll("\r\n", "\n"), "").length === 0, `nothing is marked in ${JSON.stringify(text)}`);
        equal(await missing(text), [], `hidden characters of ${JSON.stringify(text)} that are not marked`);
        await foreign(`an approval, ${at}`);
        await page.getByLabel("Reason").fill(text.slice(0, 200));
        await page.getByRole("button", { name: "Reject" }).click();
        await page.getByRole("status").filter({ hasText: "may not run" }).waitFor();
        await foreign(`a rejection, ${at}`);
      }
      for (const answer of await Promise.all(calls)) holds(answer.result?.isError, "it ran all the same");
    });
  }
  await check("They stay text where they are looked up later, and as they happen", async () => {
    for (const path of ["/admin/approvals", "/admin", "/admin/audit", "/admin/audit?tool=hostile_*"]) {
      await page.goto(`${hub.origin}${path}`);
      await page.waitForTimeout(300);
      await foreign(path);
    }
    await page.goto(`${hub.origin}/admin`);
    await page.getByText("Live", { exact: true }).waitFor();
    for (const text of texts) await hub.call("workspace_read", { path: text });
    await page.getByText("Invalid arguments").or(page.getByText("Not found")).first().waitFor();
    await page.waitForTimeout(600);
    await foreign("calls as they happen");
  });
  await check("A call is not approved once its tool has changed", async () => {
    const at = texts.keys().find((at) => !dropped.includes(at));
    const call = hub.call(tool(at), { word: "before it changed" });
    await (await waiting(page, hub, "before it changed")).click();
    await page.getByRole("heading", { name: "Decide" }).waitFor();
    const approval = page.url();
    writeFileSync(file, JSON.stringify(texts.map((text, own) => (own === at ? `${text} And more.` : text))));
    const other = await page.context().newPage();
    await other.goto(`${hub.origin}/admin/servers/hostile`);
    await other.getByRole("button", { name: "Restart" }).click();
    await until(other, "the change is noticed", async () => {
      await other.goto(approval);
      return (await other.getByText("The tool changed since this call was made").count()) > 0;
    });
    await other.close();
    // This page still shows what was there before.
    await page.getByRole("button", { name: "Approve once" }).click();
    await page.getByRole("alert").filter({ hasText: "changed since this call was made" }).waitFor();
    equal(await page.locator(".head .badge").first().textContent(), "Pending", "nothing half done");
    await page.getByRole("button", { name: "Reject" }).click();
    holds((await call).result?.isError, "it ran");
    await page.goto(`${hub.origin}/admin/servers/hostile`);
    await foreign("a changed server");
  });
}
