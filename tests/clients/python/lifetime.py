"""How processes end while a subscription is open: `lifetime.py stdio|http`.

A subscription of the 2026-07-28 revision is a request that is answered only when it ends, so a hub that waits for all
requests waits for ever. This needs no SDK, because those end the process by force when it does not end by itself.
"""

import http.client
import json
import os
import signal
import subprocess
import sys
import urllib.parse
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from typing import Any

import anyio.to_thread
import conversation
from conversation import Failed, Report, expect

# There is nothing to wait for, so this is far more than it takes.
END_SECONDS_MAX = 4

VERSION = "2026-07-28"
LISTEN = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "subscriptions/listen",
    "params": {
        "notifications": {"toolsListChanged": True},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "lifetime", "version": "1.0.0"},
        },
    },
}
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


@contextmanager
def process(*arguments: str, **environment: str):
    """Starts Portcullis, and ends it whatever happens."""
    command = [os.environ["PORTCULLIS_BIN"], "--home", os.environ["PORTCULLIS_TEST_HOME"], *arguments]
    environment = {**os.environ, **environment}
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    try:
        yield started
    finally:
        if started.poll() is None:
            started.kill()
        started.wait()


def ends(started: subprocess.Popen[bytes], when: str) -> None:
    try:
        expect(started.wait(END_SECONDS_MAX), 0, "the exit status")
    except subprocess.TimeoutExpired:
        raise Failed(f"it still runs {END_SECONDS_MAX} s after {when}") from None


def stdin_ends() -> None:
    """Subscribes on stdio and leaves."""
    with process("--mcp") as client:
        client.stdin.write(json.dumps(LISTEN).encode() + b"\n")
        client.stdin.flush()
        expect(json.loads(client.stdout.readline())["method"], ACKNOWLEDGED, "the first message")
        client.stdin.close()
        ends(client, "its input ended")


def hub_is_told() -> None:
    """Subscribes over HTTP to a hub that is then told to end."""
    # The home is this script's own, so the hub makes its first client and says its token.
    with process("serve", "--json", MCP_HTTP_PORT="0") as hub:
        greeting = json_from(hub.stdout)
        address = urllib.parse.urlsplit(greeting["url"])
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=conversation.CHECK_SECONDS_MAX)
        headers = {
            "Authorization": f"Bearer {greeting['token']}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": VERSION,
            "Mcp-Method": LISTEN["method"],
        }
        connection.request("POST", address.path, json.dumps(LISTEN), headers)
        stream = connection.getresponse()
        expect(next_message(stream)["method"], ACKNOWLEDGED, "the first message")
        hub.send_signal(signal.SIGTERM)
        expect(next_message(stream)["result"]["resultType"], "complete", "how the subscription was ended")
        ends(hub, "it was told to")


def json_from(stdout: Any) -> dict[str, Any]:
    """Reads one JSON object that is printed over several lines."""
    text = ""
    for line in stdout:
        text += line.decode()
        if line == b"}\n":
            return json.loads(text)
    raise Failed("the hub ended at once")


def next_message(stream: http.client.HTTPResponse) -> dict[str, Any]:
    for line in stream:
        if line.startswith(b"data: {"):
            return json.loads(line.removeprefix(b"data: "))
    raise Failed("the stream ended without a message")


def threaded(body: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    """Runs a check that blocks. One that hangs is left behind, so that the script can say so and end."""
    return lambda: anyio.to_thread.run_sync(body, abandon_on_cancel=True)


async def script(report: Report, mark: str, transport: str) -> None:
    if transport == "http":
        await report.check("a hub with a subscriber ends when it is told to, and says so", threaded(hub_is_told))
    else:
        await report.check("a process with a subscription ends when its input does", threaded(stdin_ends))


if __name__ == "__main__":
    conversation.run(script, sys.argv[1])
