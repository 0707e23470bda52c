"""What every Python client says to Portcullis, whichever SDK and transport carry it.

`mcp1.py` and `mcp2.py` connect and hand over a peer; the checks are the same. Results are compared as they were on
the wire, because the two SDKs name their attributes differently.

`cargo xtask clients` starts these scripts and sets:

    PORTCULLIS_BIN        the program, for stdio
    PORTCULLIS_TEST_HOME  its home folder, for stdio
    PORTCULLIS_URL        the address of a running hub, without a path, for http and sse
    PORTCULLIS_TOKEN      a token for it
"""

import os
import re
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

# One check; nothing that is asked here takes a hub longer than a moment.
CHECK_SECONDS_MAX = 15
# All of one script; the one who starts it waits a little longer than this.
SCRIPT_SECONDS_MAX = 60
# How long to wait before another look at what takes a moment.
LOOK_SECONDS = 0.05

TOOLS = [
    "memory_read",
    "memory_write",
    "script_exec",
    "script_list",
    "script_propose",
    "script_reload",
    "script_run",
    "workspace_list",
    "workspace_read",
    "workspace_write",
]
# What JSON-RPC says about wrong parameters, and MCP before 2026-07-28 about a missing resource.
INVALID_PARAMS = -32602
RESOURCE_NOT_FOUND = -32002


class Failed(Exception):
    """A check found something else than it should have."""


class Report:
    """One line per check, and whether all of them passed."""

    def __init__(self) -> None:
        self.failed = 0

    async def check(self, what: str, body: Callable[[], Awaitable[None]]) -> None:
        """Runs one check. A failure is told, and the next check runs all the same."""
        try:
            with anyio.fail_after(CHECK_SECONDS_MAX):
                await body()
        except Exception as error:
            self.failed += 1
            reason = str(error) if isinstance(error, Failed) else "".join(traceback.format_exception(error))
            print(f"FAILED {what}: {reason}", flush=True)
        else:
            print(f"ok     {what}", flush=True)


def expect(found: Any, wanted: Any, what: str) -> None:
    if found != wanted:
        raise Failed(f"{what} is {found!r}, expected {wanted!r}")


def wire(model: Any) -> dict[str, Any]:
    """Returns a result as it was sent."""
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


class Peer:
    """A connected client. What differs between the SDKs is filled in by the scripts."""

    session: Any
    error_type: type[Exception]
    is_modern: bool

    async def hello(self) -> tuple[str, dict[str, Any]]:
        """Returns the version agreed on, and what the server says about itself."""
        raise NotImplementedError

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return wire(await self.session.call_tool(name, arguments))

    async def read(self, uri: str) -> dict[str, Any]:
        raise NotImplementedError

    async def complete(self, reference: dict[str, str], argument: dict[str, str]) -> dict[str, Any]:
        raise NotImplementedError

    async def updated(self, uri: str, change: Callable[[], Awaitable[Any]]) -> None:
        """Subscribes to a resource, changes it, and returns when the server has told of it."""
        raise NotImplementedError

    async def error_of(self, awaitable: Awaitable[Any]) -> dict[str, Any]:
        """Returns the JSON-RPC error with which a request must be answered."""
        try:
            result = await awaitable
        except self.error_type as error:
            return wire(error.error)
        raise Failed(f"it was answered with {result!r}, expected an error")


async def converse(report: Report, peer: Peer, version: str | None, mark: str) -> None:
    """Runs every check. `mark` makes the names of files its own, for conversations share a home."""
    folder = f"clients/{mark}"
    note, text = f"{folder}/note.md", f"# Written by {mark}\n"
    address = f"workspace:///{note}"

    async def greets() -> None:
        agreed, server = await peer.hello()
        if version is not None:
            expect(agreed, version, "the protocol version")
        expect(server["name"], "portcullis", "the server's name")

    async def lists_tools() -> None:
        tools = wire(await peer.session.list_tools())["tools"]
        # The other server may still be starting, which holds up nobody.
        own = sorted(tool["name"] for tool in tools if not tool["name"].startswith("far_"))
        expect(own, TOOLS, "the list of tools")
        for tool in tools:
            expect(tool["inputSchema"]["type"], "object", f"the type of what `{tool['name']}` takes")

    async def writes() -> None:
        result = await peer.call("workspace_write", {"path": note, "content": text})
        expect(result.get("isError", False), False, "`isError`")
        facts = {"path": note, "bytes": len(text), "created": True}
        expect(result.get("structuredContent"), facts, "the structured content")

    async def reads() -> None:
        result = await peer.call("workspace_read", {"path": note})
        expect(result["content"][0]["text"], text, "the text")

    async def lists_folder() -> None:
        result = await peer.call("workspace_list", {"path": folder})
        expect([entry["name"] for entry in result["structuredContent"]["entries"]], ["note.md"], "the folder")

    async def remembers() -> None:
        await peer.call("memory_write", {"file": mark, "content": "one"})
        await peer.call("memory_write", {"file": mark, "content": "two", "append": True})
        result = await peer.call("memory_read", {"file": mark})
        expect(result["content"][0]["text"], "one\ntwo", "the memory")

    async def calls_other_server() -> None:
        while "far_echo" not in [tool["name"] for tool in wire(await peer.session.list_tools())["tools"]]:
            await anyio.sleep(LOOK_SECONDS)
        result = await peer.call("far_echo", {"text": mark})
        expect((result.get("isError", False), result["content"][0]["text"]), (False, mark), "the result")

    async def missing_file() -> None:
        result = await peer.call("workspace_read", {"path": f"{folder}/gone.md"})
        expect(result.get("isError"), True, "`isError`")
        expect(result["structuredContent"]["code"], "not_found", "the code")

    async def refused_path() -> None:
        result = await peer.call("workspace_write", {"path": "../out.md", "content": ""})
        expect((result.get("isError"), "../out.md" in result["content"][0]["text"]), (True, True), "the result")

    async def wrong_arguments() -> None:
        result = await peer.call("workspace_read", {"pth": note})
        expect(result.get("isError"), True, "`isError`")
        expect(result["structuredContent"]["code"], "invalid_args", "the code")

    async def unknown_tool() -> None:
        error = await peer.error_of(peer.call("nobody_knows", {}))
        expect((error["code"], error["message"]), (INVALID_PARAMS, "Unknown tool: nobody_knows"), "the error")

    async def progress_wanted() -> None:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            pass

        result = wire(await peer.session.call_tool("workspace_read", {"path": note}, progress_callback=on_progress))
        expect(result["content"][0]["text"], text, "the text")

    async def many_at_once() -> None:
        texts: list[str] = []

        async def one() -> None:
            texts.append((await peer.call("workspace_read", {"path": note}))["content"][0]["text"])

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(one)
        expect(texts, [text] * 8, "what the calls returned")

    async def lists_resources() -> None:
        resources = wire(await peer.session.list_resources())["resources"]
        listed = [resource["mimeType"] for resource in resources if resource["uri"] == address]
        expect(listed, ["text/markdown"], f"what is listed at `{address}`")

    async def reads_resource() -> None:
        contents = (await peer.read(address))["contents"]
        expect([(content["uri"], content["text"]) for content in contents], [(address, text)], "the contents")

    async def missing_resource() -> None:
        error = await peer.error_of(peer.read(f"workspace:///{folder}/gone.md"))
        expect(error["code"], INVALID_PARAMS if peer.is_modern else RESOURCE_NOT_FOUND, "the code")

    async def lists_templates() -> None:
        templates = wire(await peer.session.list_resource_templates())["resourceTemplates"]
        expect([template["uriTemplate"] for template in templates], ["workspace:///{+path}"], "the list of templates")

    async def completes_path() -> None:
        reference = {"type": "ref/resource", "uri": "workspace:///{+path}"}
        completion = await peer.complete(reference, {"name": "path", "value": folder})
        expect(completion["completion"]["values"], [note], "the proposals")

    async def lists_prompts() -> None:
        prompts = wire(await peer.session.list_prompts())["prompts"]
        found = [(prompt["name"], [argument["name"] for argument in prompt["arguments"]]) for prompt in prompts]
        expect(found, [("greet", ["who", "tone"])], "the list of prompts")

    async def gets_prompt() -> None:
        messages = wire(await peer.session.get_prompt("greet", {"who": "Ada", "tone": "warm"}))["messages"]
        expect(messages[0]["content"]["text"].strip(), "Greet Ada in a warm tone.", "the text")

    async def prompt_without_argument() -> None:
        error = await peer.error_of(peer.session.get_prompt("greet", {}))
        expect(error["code"], INVALID_PARAMS, "the code")

    async def completes_argument() -> None:
        reference = {"type": "ref/prompt", "name": "greet"}
        completion = await peer.complete(reference, {"name": "tone", "value": "w"})
        expect(completion["completion"]["values"], ["warm"], "the proposals")

    async def hears_of_change() -> None:
        await peer.updated(address, lambda: peer.call("workspace_write", {"path": note, "content": "changed\n"}))

    await report.check("greets and agrees on a version", greets)
    await report.check("lists the tools", lists_tools)
    await report.check("writes a file, with structured content", writes)
    await report.check("reads the file", reads)
    await report.check("lists the folder", lists_folder)
    await report.check("keeps and reads a memory", remembers)
    await report.check("calls a server behind the hub", calls_other_server)
    await report.check("a missing file is an error result", missing_file)
    await report.check("an error of a tool with an output schema is an error result", refused_path)
    await report.check("wrong arguments are an error result", wrong_arguments)
    await report.check("an unknown tool is a protocol error", unknown_tool)
    await report.check("a call that wants progress", progress_wanted)
    await report.check("eight calls at once", many_at_once)
    await report.check("lists the file as a resource", lists_resources)
    await report.check("reads the resource", reads_resource)
    await report.check("a missing resource is a protocol error", missing_resource)
    await report.check("lists the resource template", lists_templates)
    await report.check("completes a path", completes_path)
    await report.check("lists the prompt", lists_prompts)
    await report.check("gets the prompt with its arguments", gets_prompt)
    await report.check("a prompt without its argument is a protocol error", prompt_without_argument)
    await report.check("completes an argument of the prompt", completes_argument)
    await report.check("hears that a resource changed", hears_of_change)


def stdio_command() -> tuple[str, list[str]]:
    return os.environ["PORTCULLIS_BIN"], ["--home", os.environ["PORTCULLIS_TEST_HOME"], "--mcp"]


def url(path: str) -> str:
    return os.environ["PORTCULLIS_URL"] + path


def bearer() -> dict[str, str]:
    return {"Authorization": f"Bearer {os.environ['PORTCULLIS_TOKEN']}"}


def run(script: Callable[..., Awaitable[None]], *arguments: str) -> None:
    """Runs a script's conversation and ends the process with what came of it."""
    report = Report()
    mark = re.sub(r"[^a-z0-9]+", "-", "-".join(["py", *arguments, str(os.getpid())]).lower())

    async def bounded() -> None:
        with anyio.fail_after(SCRIPT_SECONDS_MAX):
            await script(report, mark, *arguments)

    try:
        anyio.run(bounded)
    except Exception:
        report.failed += 1
        print(f"FAILED the conversation: {traceback.format_exc()}", flush=True)
    sys.exit(1 if report.failed else 0)
