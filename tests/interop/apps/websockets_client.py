"""websockets, asynchronous and with threads: python websockets_client.py URL; prints what it did."""

from __future__ import annotations

import asyncio
import json
import sys

import content
from websockets.asyncio.client import connect
from websockets.sync.client import connect as connect_sync

SIZES = (0, 1, 125, 126, 65_535, 65_536, 5_000_000)


async def asynchronous(url: str) -> dict[str, object]:
    async def talk(number: int) -> int:
        async with connect(url, max_size=None, ping_interval=0.2) as connection:
            for turn in range(20):
                await connection.send(f"message {number} {turn}")
                assert await connection.recv() == f"MESSAGE {number} {turn}"
        return number

    async with connect(url, max_size=None) as connection:
        await (await connection.ping())
        for size in SIZES:
            await connection.send(content.body(size))
            assert await connection.recv() == content.body(size), size
        await connection.send(piece for piece in ("in ", "three ", "frames"))
        assert await connection.recv() == "IN THREE FRAMES"
        await asyncio.sleep(0.5)  # pings of the server's meanwhile
        assert await asyncio.gather(*(talk(number) for number in range(50))) == list(range(50))
        await connection.close(1000, "enough")
        return {"connections": 51, "code": connection.close_code}


def synchronous(url: str) -> int:
    with connect_sync(url, max_size=None) as connection:
        for size in SIZES:
            connection.send(content.body(size))
            assert connection.recv(timeout=30) == content.body(size), size
        connection.ping().wait(30)
    return len(SIZES)


if __name__ == "__main__":
    print(json.dumps({**asyncio.run(asynchronous(sys.argv[1])), "sync": synchronous(sys.argv[1])}))
