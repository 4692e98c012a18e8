"""websockets: python websockets_server.py HOST,HOST PORT; answers text in capitals and bytes as they are."""

from __future__ import annotations

import asyncio
import signal
import sys

from websockets.asyncio.server import ServerConnection, serve


async def handler(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(message.upper() if isinstance(message, str) else message)


async def main(hosts: list[str], port: int) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with serve(handler, hosts, port, max_size=None, ping_interval=0.2):
        print("ready", flush=True)
        await ended.wait()
    print("ended", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1].split(","), int(sys.argv[2])))
