"""Uses `leasehold mcp`, the program named first, as a client written with the package mcp does. Goes on at each line of input."""

import os
import sys

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def line():
    await anyio.to_thread.run_sync(sys.stdin.readline)


async def main():
    server = StdioServerParameters(command=sys.argv[1], args=["mcp"], env={"LEASEHOLD_URL": os.environ["LEASEHOLD_URL"]})
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        print(*sorted(tool.name for tool in (await session.list_tools()).tools))
        got = await session.call_tool("acquire", {"name": "x", "ttl_seconds": 60})
        print("acquired", got.structured_content["acquired"])
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                wait = {"name": "y", "ttl_seconds": 60, "wait_seconds": 600}
                tasks.start_soon(session.call_tool, "acquire", wait)
                print("waiting", flush=True)
                await line()
                scope.cancel()
        print("cancelled", flush=True)
        await line()


anyio.run(main)
