// What must not work at a real hub: late, twice, from elsewhere. Each says why, and nothing is half done.

import { createServer } from "node:http";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { check, equal, holds } from "./browser.mjs";
import { command, waiting } from "./started.mjs";

const clients = (hub) => command(hub, "clients", "list").map((client) => client.name);

export async function badInput({ hub, page, bob, browser, password, quiet }) {
  await check("Of two who decide about a call at once the second learns of the first", async () => {
    const call = hub.call("workspace_write", { path: "both.md", content: "both" });
    await (await waiting(page, hub, "both.md")).click();
    await page.getByRole("heading", { name: "Decide" }).waitFor();
    const place = page.url();
    await bob.goto(`${hub.origin}/admin/approvals`);
    // One on the page of the call, the other on the list.
    await page.getByRole("button", { name: "Reject" }).click();
    await page.getByRole("status").filter({ hasText: "may not run" }).waitFor();
    await bob.getByRole("article").filter({ hasText: "both.md" }).getByRole("button", { name: "Approve once" }).click();
    await bob.getByText("is rejected already, by admin marta").waitFor();
    holds((await call).result.isError, "it ran");
    // Whoever has seen the no may still say yes, and take that back.
    await bob.goto(place);
    await bob.getByRole("heading", { name: "Change decision" }).waitFor();
    await page.goto(place);
    await bob.getByRole("button", { name: "Approve for session" }).click();
    await bob.getByRole("status").filter({ hasText: "the client has no session" }).waitFor();
    await page.getByRole("button", { name: "Approve once" }).click();
    await page.getByRole("alert").filter({ hasText: "is approved already, by admin bob" }).waitFor();
    await page.getByRole("heading", { name: "Revoke approval" }).waitFor();
    await page.getByRole("button", { name: "Revoke approval" }).click();
    await page.getByRole("status").filter({ hasText: "may not run" }).waitFor();
    holds((await hub.call("workspace_write", { path: "both.md", content: "both" })).result.isError, "it ran");
    quiet("two people");
  });
  await check("A form of another site does nothing, whatever the browser sends along", async () => {
    // Another port of this machine: for the cookie that is the same site, so it comes along.
    const form = `<form method="post" action="${hub.origin}/admin/clients"><input name="name" value="forged"><button>Win a prize</button></form>`;
    const other = createServer((_, answer) => answer.setHeader("content-type", "text/html").end(form));
    await new Promise((done) => other.listen(0, "127.0.0.1", done));
    try {
      const context = await browser.newContext({ storageState: await page.context().storageState() });
      const evil = await context.newPage();
      await evil.goto(`http://127.0.0.1:${other.address().port}/`);
      const sent = evil.waitForRequest((request) => request.method() === "POST");
      await evil.getByRole("button").click();
      const { cookie = "" } = await (await sent).allHeaders();
      holds(cookie.includes("__Host-portcullis="), "the cookie did not come along, so this shows nothing");
      await evil.getByText("this Origin is not allowed").waitFor();
      const tried = await evil.evaluate(async (target) => {
        const body = new URLSearchParams({ name: "forged" });
        const quietly = await fetch(target, { method: "POST", body, mode: "no-cors", credentials: "include" }).then(() => "sent", () => "failed");
        const framed = document.createElement("iframe");
        framed.src = target;
        document.body.append(framed);
        await new Promise((done) => framed.addEventListener("load", done));
        return quietly;
      }, `${hub.origin}/admin/clients`);
      equal(tried, "sent", "a request that nobody sees");
      const inFrame = await evil.frames()[1]?.content().catch(() => "");
      holds(!inFrame?.includes("Add a client"), "the page is shown inside of another");
      await context.close();
      holds(!clients(hub).includes("forged"), "the client was made");
      // The same with our own page works, so it was not the form that was wrong.
      await page.goto(`${hub.origin}/admin/clients`);
      await page.getByLabel("Name").fill("honest");
      await page.getByRole("button", { name: "Add", exact: true }).click();
      await page.getByText("It is not shown again.").waitFor();
      holds(clients(hub).includes("honest"), "the honest client was not made");
    } finally {
      other.close();
    }
  });
  await check("Headers that only a page of another site has are refused", async () => {
    const session = (await page.context().cookies()).find((cookie) => cookie.name.startsWith("__Host-"));
    for (const headers of [{ origin: "http://evil.example" }, { origin: "null" }, { "sec-fetch-site": "cross-site" }]) {
      const answer = await fetch(`${hub.origin}/admin/clients`, {
        method: "POST",
        redirect: "manual",
        headers: { ...headers, cookie: `${session.name}=${session.value}`, "content-type": "application/x-www-form-urlencoded" },
        body: "name=forged",
      });
      equal(answer.status, 403, JSON.stringify(headers));
    }
    holds(!clients(hub).includes("forged"), "the client was made");
  });
  await check("After the sign-in expired nothing is done or shown, and the page says why", async () => {
    await page.goto(`${hub.origin}/admin/secrets`);
    await bob.goto(`${hub.origin}/admin`);
    await bob.getByText("Live", { exact: true }).waitFor();
    // As if nobody had done anything for an hour.
    const before = "strftime('%Y-%m-%dT%H:%M:%SZ', 'now', '-1 hour')";
    const edit = `BEGIN IMMEDIATE;
      UPDATE admin_sessions SET record = json_set(record, '$.created', ${before}, '$.seen', ${before});
      UPDATE admin_sessions SET seal = seal('admin_sessions', key, record);
      UPDATE topics SET version = version + 1 WHERE name IN ('admins', '');`;
    // As the hub seals its rows and tables, with the key beside the database.
    const program = `
import base64, hashlib, hmac, sqlite3, struct, sys
path, edit = sys.argv[1:]
digest = lambda key, message: hmac.new(key, message, hashlib.sha256).digest()
with open(path.replace("portcullis.db", "row.key"), "rb") as file:
    key = digest(digest(b"portcullis row seal", file.read()), b"hmac-sha256 1" + bytes([1]))
def seal(*parts):
    message = b"".join(struct.pack(">Q", len(part.encode())) + part.encode() for part in parts)
    return base64.urlsafe_b64encode(digest(key, message)).rstrip(b"=").decode()
database = sqlite3.connect(path)
database.create_function("seal", 3, seal)
database.executescript(edit)
rows = database.execute("SELECT key, seal FROM admin_sessions").fetchall()
parts = [part.encode() for row in sorted(rows) for part in row]
table = hashlib.sha256(b"".join(struct.pack(">Q", len(part)) + part for part in parts)).hexdigest()
database.execute("UPDATE table_digests SET digest = ? WHERE name = 'admin_sessions'", [table])
topics = sorted(database.execute("SELECT name, version FROM topics").fetchall())
tables = sorted(database.execute("SELECT name, digest FROM table_digests WHERE name != ''").fetchall())
text = "".join(f'topic "{name}" {version}\\n' for name, version in topics)
text += "".join(f'table "{name}" "{digest}"\\n' for name, digest in tables)
database.execute("UPDATE table_digests SET digest = ? WHERE name = ''", [seal("table_digests", "", text)])
database.commit()
`;
    execFileSync("python3", ["-c", program, join(hub.home, "workspace/secure/portcullis.db"), edit]);
    // The hub reads the versions once a second.
    await new Promise((done) => setTimeout(done, 1_500));
    await page.getByLabel("Name").fill("LATE");
    await page.getByLabel("Value", { exact: true }).fill("long enough to be kept");
    await page.getByRole("button", { name: "Add", exact: true }).click();
    await page.getByText("your session has expired, so nothing was changed").waitFor();
    holds(!command(hub, "secrets", "list").some((secret) => secret.name === "LATE"), "the secret was kept");
    await page.goto(`${hub.origin}/admin/audit?tool=workspace_*`);
    await page.getByRole("heading", { level: 1, name: "Sign in" }).waitFor();
    await page.getByLabel("Name").fill("marta");
    await page.getByLabel("Password").fill("wrong horse battery");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("alert").waitFor();
    await page.getByLabel("Name").fill("marta");
    await page.getByLabel("Password").fill(password);
    await page.getByRole("button", { name: "Sign in" }).click();
    // Where one wanted to go.
    await page.waitForURL(/audit\?tool=workspace_/);
    // Somebody whose page was open learns that it does not go on.
    await bob.getByText("Disconnected. Reload the page").waitFor();
    quiet("an expired sign-in");
  });
}
