// Scripts of a real hub: decided by their bytes on the page, run by an agent, changed behind everyone's back.

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { problemsOf } from "./access.mjs";
import { check, equal, holds } from "./browser.mjs";

const REPORT = `# @description: Multiplies
# @author: an agent
# @hosts: one.example
# @tools: workspace_list

def main():
    print("on the way")
    return 6 * 7
`;

/** Does all checks. `bob` is somebody else who is signed in. */
export async function scripts({ hub, page, bob, foreign, out }) {
  const file = join(hub.home, "scripts/report.star");
  const place = `${hub.origin}/admin/scripts/report.star`;
  const hash = () => createHash("sha256").update(readFileSync(file)).digest("hex");
  const state = () => page.locator(".head .badge").first().textContent();
  const run = () => hub.call("script_run", { name: "report" });
  const approve = (on) => on.getByRole("button", { name: "Approve this version" }).click();

  await check("A script in the folder waits, with its hash and what it wants, until it is approved", async () => {
    await page.goto(`${hub.origin}/admin`);
    await page.getByText("Live", { exact: true }).waitFor();
    mkdirSync(join(hub.home, "scripts"), { recursive: true });
    writeFileSync(file, REPORT);
    // Nobody pressed anything: the hub saw the file, and told the page.
    await page.getByRole("link", { name: "1 script needs approval" }).click({ timeout: 30_000 });
    await page.getByRole("row", { name: /report\.star Pending Multiplies/ }).waitFor();
    await page.getByRole("link", { name: "report.star" }).click();
    equal(await state(), "Pending", "state");
    await page.getByText(hash()).waitFor();
    for (const wanted of ["one.example", "workspace_list"]) holds(await page.getByRole("checkbox", { name: wanted }).isChecked(), wanted);
    holds((await page.locator(".tok-word").count()) > 2, "the text has no colours");
    const pending = await run();
    holds(JSON.stringify(pending).includes("is pending approval"), `it ran: ${JSON.stringify(pending)}`);
    await approve(page);
    await page.getByRole("status").filter({ hasText: "exactly this version" }).waitFor();
    equal(await state(), "Approved", "state");
    holds((await page.locator('nav [data-count="r"]').isHidden()), "the menu says that something waits");
    await foreign("an approved script");
  });
  await check("It runs, and its runs are remembered", async () => {
    const ran = await run();
    equal(ran.result.structuredContent?.value, 42, JSON.stringify(ran));
    await page.reload();
    const runs = page.getByRole("region", { name: "Runs" });
    equal(await runs.locator("li").count(), 1, "runs");
    holds((await runs.textContent()).includes("default"), "who ran it");
  });
  await check("One byte more, and the page shows what changed, in the text and in what it wants", async () => {
    writeFileSync(file, REPORT.replace("one.example", "ons.example"));
    const refused = await run();
    holds(JSON.stringify(refused).includes("is pending approval"), "it ran with other bytes");
    await page.goto(place);
    equal(await state(), "Changed", "state");
    const difference = page.getByRole("region", { name: "Changes in the source" });
    equal(await difference.locator("del").allTextContents(), ["one.example"], "what went");
    equal(await difference.locator("ins").allTextContents(), ["ons.example"], "what came");
    const change = page.getByRole("region", { name: "Changes since last approval" });
    const said = (await change.textContent()).replace(/\s+/g, " ");
    holds(/New permissions requested: .*ons\.example.*No longer requested: .*one\.example/.test(said), said);
    equal(await page.evaluate(problemsOf), [], "accessibility");
    await page.screenshot({ path: `${out}/hub-script-changed.png`, fullPage: true });
    await foreign("a changed script");
  });
  await check("What changes while somebody looks is not approved", async () => {
    writeFileSync(file, REPORT.replace("6 * 7", "6 * 9"));
    await approve(page);
    await page.getByRole("alert").filter({ hasText: "was replaced by" }).waitFor();
    equal(await state(), "Changed", "nothing half done");
    holds(JSON.stringify(await run()).includes("is pending approval"), "it ran");
    // What is shown now is what there is now.
    await page.getByText(hash()).waitFor();
    await approve(page);
    await page.getByRole("status").filter({ hasText: "is approved" }).waitFor();
    equal((await run()).result.structuredContent?.value, 54, "the value");
  });
  await check("Of two who decide at once the second learns of the first", async () => {
    writeFileSync(file, REPORT.replace("6 * 7", "6 * 8"));
    await page.goto(place);
    await bob.goto(place);
    await page.getByLabel("Reason").fill("Not <i>that</i> number.");
    await page.getByRole("button", { name: "Reject" }).click();
    await page.getByRole("status").filter({ hasText: "is rejected" }).waitFor();
    equal(await state(), "Rejected", "state");
    await page.getByText("Not <i>that</i> number.").waitFor();
    await approve(bob);
    await bob.getByRole("alert").filter({ hasText: "rejected by admin marta" }).waitFor();
    const told = JSON.stringify(await run());
    holds(told.includes("Not <i>that</i> number."), `the agent is not told why: ${told}`);
    await foreign("a rejected script");
  });
  await check("The editor runs a text without anything, and saves it", async () => {
    await page.goto(place);
    await page.getByText("Edit", { exact: true }).click();
    const editor = page.getByRole("textbox", { name: "Source" });
    await editor.fill('def main():\n    print("dry")\n    return [1, "<b>x</b>"]\n');
    await page.getByRole("button", { name: "Dry run" }).click();
    equal(JSON.parse(await page.getByRole("region", { name: "Result" }).textContent()), [1, "<b>x</b>"], "the result");
    equal((await page.getByRole("region", { name: "Output" }).textContent()).trim(), "dry", "what it printed");
    await editor.fill("def main():\n    return 1 +\n");
    await page.getByRole("button", { name: "Dry run" }).click();
    await page.getByText("line 2").waitFor();
    equal(readFileSync(file, "utf8"), REPORT.replace("6 * 7", "6 * 8"), "a dry run wrote the file");
    await editor.fill(REPORT.replace("6 * 7", "6 * 6"));
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("status").filter({ hasText: "needs approval" }).waitFor();
    equal(readFileSync(file, "utf8"), REPORT.replace("6 * 7", "6 * 6"), "the file");
    await foreign("the editor");
  });
  await check("What was decided is listed, an old version is compared and comes back", async () => {
    const versions = page.getByRole("region", { name: "Versions" });
    equal(await versions.locator(".badge").allTextContents(), ["Rejected", "Approved", "Approved"], "decisions");
    await versions.getByRole("link").last().click();
    const difference = page.getByRole("region", { name: "Changes from this version to the current source" });
    equal(await difference.locator("ins").allTextContents(), ["6"], "what is different");
    await page.getByRole("button", { name: /Restore/ }).last().click();
    await page.getByRole("status").filter({ hasText: "is restored to the approved version" }).waitFor();
    equal([await state(), (await run()).result.structuredContent?.value], ["Approved", 42], "state and value");
    await page.reload();
    equal(await page.getByRole("region", { name: "Runs" }).locator("li").count(), 3, "runs");
    await page.screenshot({ path: `${out}/hub-script.png`, fullPage: true });
  });
  await check("A yes is taken back", async () => {
    await page.getByLabel("Reason").fill("Not any more.");
    await page.getByRole("button", { name: "Reject" }).click();
    await page.getByRole("status").filter({ hasText: "is rejected" }).waitFor();
    holds(JSON.stringify(await run()).includes("Not any more."), "it runs all the same");
  });
  await check("What an agent proposes is a text that waits, and stays text", async () => {
    const code = "# @description: <img src=x onerror=alert(1)>\u202e\n# @hosts: one.example\nresult = '</pre><script>alert(2)</script>'\n";
    const proposed = await hub.call("script_propose", { name: "proposed", code });
    holds(!proposed.error && !proposed.result.isError, JSON.stringify(proposed));
    await page.goto(`${hub.origin}/admin/scripts`);
    await page.getByText("proposed by default").waitFor();
    await foreign("the list of scripts");
    await page.getByRole("link", { name: "proposed.star" }).click();
    holds((await page.getByRole("region", { name: "Source of the script" }).textContent()).includes("⟦U+202E⟧"), "not marked");
    await foreign("a proposed script");
    await page.getByRole("button", { name: "Reject" }).click();
    await page.getByRole("status").filter({ hasText: "is rejected" }).waitFor();
  });
}
