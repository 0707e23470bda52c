"""The 2.x Python SDK: `mcp2.py stdio|http|sse legacy|auto|2026-07-28`."""

import os
import sys
import warnings
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio
import conversation
import httpx2
import mcp_types as types
from conversation import Failed, Peer, Report, converse, wire
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ResourceUpdated

# Subscribing the old way is what a client of the old era does.
warnings.simplefilter("ignore")

VERSIONS = {"legacy": "2025-11-25", "auto": "2026-07-28", "2026-07-28": "2026-07-28"}


class NewPeer(Peer):
    error_type = MCPError

    def __init__(self, session: Client, mode: str, updates: "anyio.abc.ObjectReceiveStream[str]") -> None:
        self.session = session
        self.mode = mode
        self.is_modern = mode != "legacy"
        self.updates = updates

    async def hello(self) -> tuple[str, dict[str, Any]]:
        # A client that pins a version asks nothing on connecting, so there is nobody's name yet.
        if self.mode == "2026-07-28":
            discovered = await self.session.session.send_discover(self.mode)
            return self.session.protocol_version, discovered["_meta"]["io.modelcontextprotocol/serverInfo"]
        return self.session.protocol_version, wire(self.session.server_info)

    async def read(self, uri: str) -> dict[str, Any]:
        return wire(await self.session.read_resource(uri, cache_mode="refresh"))

    async def complete(self, reference: dict[str, str], argument: dict[str, str]) -> dict[str, Any]:
        kind = types.PromptReference if reference["type"] == "ref/prompt" else types.ResourceTemplateReference
        return wire(await self.session.complete(kind.model_validate(reference), argument))

    async def updated(self, uri: str, change: Callable[[], Awaitable[Any]]) -> None:
        if self.is_modern:
            async with self.session.listen(resource_subscriptions=[uri]) as subscription:
                if subscription.honored.resource_subscriptions != [uri]:
                    raise Failed(f"the server honors {subscription.honored!r}")
                await change()
                async for event in subscription:
                    if event == ResourceUpdated(uri):
                        return
            raise Failed("the subscription ended")
        await self.session.subscribe_resource(uri)
        await change()
        while await self.updates.receive() != uri:
            pass
        await self.session.unsubscribe_resource(uri)


async def server(stack: AsyncExitStack, transport: str, headers: dict[str, str]) -> Any:
    match transport:
        case "stdio":
            command, arguments = conversation.stdio_command()
            return StdioServerParameters(command=command, args=arguments)
        case "http":
            client = httpx2.AsyncClient(headers=headers, timeout=conversation.CHECK_SECONDS_MAX)
            await stack.enter_async_context(client)
            return streamable_http_client(conversation.url("/mcp"), http_client=client)
        case "sse":
            return sse_client(conversation.url("/sse"), headers=headers)
        case other:
            raise SystemExit(f"no transport `{other}`")


async def script(report: Report, mark: str, transport: str, mode: str) -> None:
    tell, updates = anyio.create_memory_object_stream[str](100)

    async def on_message(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            tell.send_nowait(str(message.params.uri))

    async with AsyncExitStack() as stack:
        target = await server(stack, transport, conversation.bearer() if transport != "stdio" else {})
        client = Client(
            target, mode=mode, message_handler=on_message, read_timeout_seconds=conversation.CHECK_SECONDS_MAX
        )
        async with client:
            await converse(report, NewPeer(client, mode, updates), VERSIONS[mode], mark)

    if transport != "stdio":

        async def stranger() -> None:
            async with AsyncExitStack() as stack:
                target = await server(stack, transport, {"Authorization": "Bearer pcl_nobody"})
                try:
                    async with Client(target, mode=mode) as client:
                        await client.list_tools()
                except Exception:
                    return
                raise Failed("the tools were listed")

        await report.check("a wrong token gets nothing", stranger)


if __name__ == "__main__":
    conversation.run(script, sys.argv[1], sys.argv[2])
