"""The 1.x Python SDK: `mcp1.py stdio|http|sse`."""

import sys
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import conversation
import httpx
from conversation import Peer, Report, converse, wire
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl


class OldPeer(Peer):
    error_type = McpError
    is_modern = False

    def __init__(self, session: ClientSession, updates: "anyio.abc.ObjectReceiveStream[str]") -> None:
        self.session = session
        self.updates = updates

    async def hello(self) -> tuple[str, dict[str, Any]]:
        result = wire(await self.session.initialize())
        await self.session.send_ping()
        return result["protocolVersion"], result["serverInfo"]

    async def read(self, uri: str) -> dict[str, Any]:
        return wire(await self.session.read_resource(AnyUrl(uri)))

    async def complete(self, reference: dict[str, str], argument: dict[str, str]) -> dict[str, Any]:
        kind = types.PromptReference if reference["type"] == "ref/prompt" else types.ResourceTemplateReference
        return wire(await self.session.complete(kind.model_validate(reference), argument))

    async def updated(self, uri: str, change: Callable[[], Awaitable[Any]]) -> None:
        await self.session.subscribe_resource(AnyUrl(uri))
        await change()
        while await self.updates.receive() != uri:
            pass
        await self.session.unsubscribe_resource(AnyUrl(uri))


@asynccontextmanager
async def streams(transport: str):
    match transport:
        case "stdio":
            command, arguments = conversation.stdio_command()
            async with stdio_client(StdioServerParameters(command=command, args=arguments)) as (read, write):
                yield read, write
        case "http":
            async with (
                httpx.AsyncClient(headers=conversation.bearer(), timeout=conversation.CHECK_SECONDS_MAX) as client,
                streamable_http_client(conversation.url("/mcp"), http_client=client) as (read, write, _),
            ):
                yield read, write
        case "sse":
            async with sse_client(conversation.url("/sse"), headers=conversation.bearer()) as (read, write):
                yield read, write
        case other:
            raise SystemExit(f"no transport `{other}`")


async def script(report: Report, mark: str, transport: str) -> None:
    tell, updates = anyio.create_memory_object_stream[str](100)

    async def on_message(message: Any) -> None:
        if isinstance(message, types.ServerNotification) and isinstance(
            message.root, types.ResourceUpdatedNotification
        ):
            tell.send_nowait(str(message.root.params.uri))

    async with streams(transport) as (read, write), ClientSession(read, write, message_handler=on_message) as session:
        await converse(report, OldPeer(session, updates), types.LATEST_PROTOCOL_VERSION, mark)


if __name__ == "__main__":
    conversation.run(script, sys.argv[1])
