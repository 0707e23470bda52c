"""Compares `web_fetch` with the reference server `mcp-server-fetch`, on the same pages of this machine.

    fetch_bench.py PORTCULLIS

Prints one line per figure: what, measured, target and verdict, with tabs between.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROUNDS = 5
SHARE_MAX = 0.3
# The most that both take.
LENGTH = 999_999

PARAGRAPH = "The gate is lowered at dusk and raised at dawn, and whoever keeps it writes down who came and who went. " * 4


def around(main, title):
    """Puts what a site has around what a page says."""
    links = "".join(f'<li><a href="/nav/{n}">Navigation entry {n}</a></li>' for n in range(30))
    return f"""<!doctype html><html><head><title>{title}</title><style>body {{ color: red }}</style>
    <script>var tracking = "Script text";</script></head><body><header><nav><ul>{links}</ul></nav></header>
    <main><article>{main}</article></main><aside class="sidebar"><p>Sidebar advertisement</p></aside>
    <footer><p>Footer imprint</p></footer></body></html>"""


def article():
    parts = ["<h1>The keeper of the gate</h1>"]
    for n in range(1, 9):
        parts.append(f'<h2>Chapter {n}</h2><p>{PARAGRAPH}<a href="/source/{n}">Source {n}</a></p><blockquote><p>Quote {n}</p></blockquote>')
    return around("".join(parts), "The keeper")


def manual():
    parts = ["<h1>Manual</h1>"]
    for n in range(1, 7):
        rows = "".join(f"<tr><td>option-{n}-{row}</td><td>value-{n}-{row}</td></tr>" for row in range(5))
        parts.append(f"""<h2 id="s{n}">Section {n}</h2><p>{PARAGRAPH}</p>
        <pre><code class="language-sh">gate --raise {n}\n  --slowly</code></pre>
        <table><thead><tr><th>Option</th><th>Value {n}</th></tr></thead><tbody>{rows}</tbody></table>
        <ul><li>Point {n}.1</li><li>Point {n}.2 with <a href="https://example.com/{n}">a link {n}</a></li></ul>""")
    return around("".join(parts), "Manual")


def long_page():
    return around("<h1>All of it</h1>" + "".join(f"<h2>Part {n}</h2><p>{PARAGRAPH}</p>" for n in range(600)), "All of it")


def wanted_of(page, url):
    """Returns what should survive of a page, by kind."""
    if page == "article":
        return {"headings": [f"## Chapter {n}" for n in range(1, 9)] + ["# The keeper of the gate"],
                "links": [f"[Source {n}]({url}/source/{n})" for n in range(1, 9)],
                "quotes": [f"> Quote {n}" for n in range(1, 9)]}
    if page == "manual":
        return {"headings": [f"## Section {n}" for n in range(1, 7)] + ["# Manual"],
                "links": [f"[a link {n}](https://example.com/{n})" for n in range(1, 7)],
                "table rows": [f"| option-{n}-{row} | value-{n}-{row} |" for n in range(1, 7) for row in range(5)],
                "code blocks": [f"gate --raise {n}\n  --slowly\n```" for n in range(1, 7)]}
    return {"headings": [f"## Part {n}" for n in range(600)]}


UNWANTED = ["Script text", "color: red", "Navigation entry", "Sidebar advertisement", "Footer imprint"]
PAGES = {"article": article(), "manual": manual(), "long": long_page()}


class Site(BaseHTTPRequestHandler):
    def do_GET(self):
        page = PAGES.get(self.path.strip("/"), "").encode()
        self.send_response(200 if page else 404)
        self.send_header("content-type", "text/html; charset=utf-8")
        self.send_header("content-length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_):
        pass


class Server:
    """A server on stdio, spoken to without a library: both get the same bytes at the same speed."""

    def __init__(self, command, tool):
        self.tool, self.number = tool, 0
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        info = {"name": "bench", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info})
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method, params):
        self.number += 1
        self.send({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        while line := self.process.stdout.readline():
            message = json.loads(line)
            if message.get("id") == self.number and "method" not in message:
                return message["result"]
        raise SystemExit(f"{self.tool} ended")

    def fetch(self, url):
        result = self.ask("tools/call", {"name": self.tool, "arguments": {"url": url, "max_length": LENGTH}})
        if result.get("isError"):
            raise SystemExit(f"{self.tool}: {result}")
        return result["content"][0]["text"]

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=20)


def line(what, measured, target="", verdict=""):
    print("\t".join([what, measured, target, verdict]), flush=True)


def main():
    site = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    place = f"127.0.0.1:{site.server_port}"
    url = f"http://{place}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        Path(home, "portcullis.toml").write_text(
            f'[web]\n[egress]\nallow = ["{place}"]\nper_host_per_minute = 1000000\nper_host_burst = 1000000\n'
            "[rate_limit]\nrequests_per_second = 1000000\nburst = 1000000\n")
        ours = Server([sys.argv[1], "--mcp", "--home", home], "web_fetch")
        theirs = Server([sys.executable, "-m", "mcp_server_fetch", "--ignore-robots-txt", "--allow-private-ips"], "fetch")
        total = {"ours": 0.0, "theirs": 0.0}
        for page in PAGES:
            address = f"{url}/{page}"
            texts = {"ours": ours.fetch(address), "theirs": theirs.fetch(address)}
            for kind, wanted in wanted_of(page, url).items():
                count = {who: sum(piece in text for piece in wanted) for who, text in texts.items()}
                line(f"`web_fetch`, {page}: {kind} that survive, and by mcp-server-fetch",
                     f"{count['ours']} and {count['theirs']} of {len(wanted)}", f"= {len(wanted)}",
                     "pass" if count["ours"] == len(wanted) else "FAIL")
            count = {who: sum(piece in text for piece in UNWANTED) for who, text in texts.items()}
            line(f"… {page}: what is not the page's (of {len(UNWANTED)}), and by mcp-server-fetch",
                 f"{count['ours']} and {count['theirs']}", "= 0", "pass" if count["ours"] == 0 else "FAIL")
            taken = {"ours": [], "theirs": []}
            for _ in range(ROUNDS):
                for who, server in (("ours", ours), ("theirs", theirs)):
                    start = time.perf_counter()
                    server.fetch(address)
                    taken[who].append((time.perf_counter() - start) * 1000)
            medians = {who: statistics.median(times) for who, times in taken.items()}
            for who, median in medians.items():
                total[who] += median
            line(f"… {page}: time, and by mcp-server-fetch", f"{medians['ours']:.1f} ms and {medians['theirs']:.1f} ms")
        share = total["ours"] / total["theirs"]
        line("`web_fetch`: time as a share of mcp-server-fetch, all pages", f"{share:.2f}", f"≤ {SHARE_MAX}",
             "pass" if share <= SHARE_MAX else "FAIL")
        ours.end()
        theirs.process.terminate()
        theirs.process.wait(timeout=20)


main()
