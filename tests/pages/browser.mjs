// A browser that notices everything a page must not do, and how checks are counted.

import { chromium } from "playwright-core";

/** How long one check may take. */
const CHECK_MS = 60_000;
/** How long an element may take to appear. */
const ELEMENT_MS = 15_000;

let failed = 0;
/** The page that was opened last, to tell what it said when a check fails. */
let latest;

/** Does one check, and prints what came of it. Later checks are done in any case. */
export async function check(name, work) {
  const start = performance.now();
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${CHECK_MS / 1000} s`)), CHECK_MS);
  });
  try {
    const note = await Promise.race([work(), late]);
    console.log(`ok     ${name}${note ? ` (${note})` : ""} ${Math.round(performance.now() - start)} ms`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}\n${error.stack ?? error}\n${await lastSeen()}`);
  } finally {
    clearTimeout(timer);
  }
}

/** Returns where the browser was, and what the page said of it. */
async function lastSeen() {
  try {
    const said = await latest.locator("[role=alert], [role=status], h1").allTextContents();
    return `at ${latest.url()}: ${said.map((text) => text.trim()).filter(Boolean).join(" | ")}`;
  } catch {
    return "";
  }
}

export function equal(found, expected, what) {
  const [a, b] = [JSON.stringify(found), JSON.stringify(expected)];
  if (a !== b) throw new Error(`${what}: found ${a}, expected ${b}`);
}

export function holds(condition, what) {
  if (!condition) throw new Error(what);
}

export function finish() {
  if (failed > 0) console.log(`\n${failed} checks failed`);
  process.exitCode = failed > 0 ? 1 : 0;
}

/** Starts the browser of the distribution. Nothing is downloaded. */
export function launch() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM,
    // As root, which containers and CI machines are, it does not start with its sandbox.
    args: process.getuid() === 0 ? ["--no-sandbox"] : [],
  });
}

/** Opens a context whose pages are watched. `own` is the only host that they may talk to. */
export async function open(browser, own, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, locale: "en-GB", ...options });
  context.setDefaultTimeout(ELEMENT_MS);
  const seen = [];
  await context.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      console.error(`policy violated: ${event.violatedDirective} ${event.blockedURI}`);
    });
  });
  // Whatever would leave is stopped here, and told.
  await context.route("**/*", (route) => {
    const url = route.request().url();
    if (url.startsWith("data:") || new URL(url).host === own) return route.continue();
    seen.push(`request to ${url}`);
    return route.abort();
  });
  context.on("page", (page) => {
    latest = page;
    page.on("dialog", (dialog) => {
      seen.push(`dialog: ${dialog.message()}`);
      dialog.dismiss().catch(() => {});
    });
    page.on("pageerror", (error) => seen.push(`script failed: ${error.message}`));
    page.on("console", (message) => {
      if (!["error", "warning"].includes(message.type())) return;
      const text = message.text();
      // That a form was answered with what is wrong is said here too; it is no fault of the page.
      if (/status of (400|401|403|404|409|429)/.test(text) && options.expectsRefusals) return;
      seen.push(`console: ${text}`);
    });
    page.on("popup", () => seen.push("a window was opened"));
  });
  /** Says what was seen since the last time, as an error if it was anything. */
  const quiet = (where) => {
    const found = seen.splice(0);
    holds(found.length === 0, `${where}: ${found.join("; ")}`);
  };
  return { context, quiet, seen };
}

/** Sets the first password with a link, and signs in. Returns the page. */
export async function begin(context, link, password, name = "marta") {
  const page = await context.newPage();
  await page.goto(link);
  await page.getByLabel("Name").fill(name);
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByLabel("Repeat password").fill(password);
  await page.getByRole("button", { name: "Set password" }).click();
  await page.getByRole("heading", { level: 1, name: "Now" }).waitFor();
  return page;
}
