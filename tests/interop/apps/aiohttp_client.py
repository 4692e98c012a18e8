"""A client on aiohttp: python aiohttp_client.py URL OWN_ADDRESS SIZE [CA]; prints what it did."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import ssl
import sys
from collections.abc import AsyncIterator

import aiohttp
import content


async def sent(size: int) -> AsyncIterator[bytes]:
    for piece in content.pieces(size):
        yield piece


async def downloaded(session: aiohttp.ClientSession, url: str, size: int) -> str:
    digest = hashlib.sha256()
    async with session.get(f"{url}/bytes/{size}") as answer:
        assert answer.status == 200
        async for piece in answer.content.iter_any():
            digest.update(piece)
    return digest.hexdigest()


async def websocket(session: aiohttp.ClientSession, url: str) -> int:
    count = 0
    async with session.ws_connect(f"{url}/ws", max_msg_size=0) as socket:
        for number in range(100):
            await socket.send_str(f"message {number}")
            assert await socket.receive_str() == f"MESSAGE {number}"
            count += 1
        for size in (0, 125, 126, 65_535, 65_536, 3_000_000):
            await socket.send_bytes(content.body(size))
            assert await socket.receive_bytes() == content.body(size), size
            count += 1
        await socket.ping()
    assert socket.close_code == 1000
    return count


async def main(url: str, own: str, size: int, ca: str = "") -> dict[str, object]:
    done: dict[str, object] = {}
    # Before there is a connection: making this much takes a busy machine longer than a server keeps one that idles, and who does not
    # look meanwhile sends the next request on a connection that is over.
    whole, digest = content.body(size), content.digest(size)
    trust = ssl.create_default_context(cafile=ca) if ca else True
    connector = aiohttp.TCPConnector(ssl=trust, limit=50)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(60)) as session:
        for number in (0, 1, 1000, 70_000):
            async with session.post(f"{url}/echo", data=content.body(number)) as answer:
                assert (answer.status, await answer.read()) == (200, content.body(number)), number
        async with session.get(f"{url}/peer") as answer:
            assert await answer.text() == own
        for _ in range(30):
            async with session.get(f"{url}/") as answer:
                assert await answer.text() == "hello\n"
        assert await downloaded(session, url, size) == digest
        async with session.post(f"{url}/digest", data=sent(size)) as answer:
            assert await answer.text() == digest
        form = aiohttp.FormData({"other": "small"})
        form.add_field("file", io.BytesIO(whole), filename="file")
        async with session.post(f"{url}/form", data=form) as answer:
            if answer.status != 404:
                assert await answer.json() == {"file": digest, "other": hashlib.sha256(b"small").hexdigest()}
                done["form"] = True
        got = await asyncio.gather(*(downloaded(session, url, number) for number in range(10_000, 10_200)))
        assert got == [content.digest(number) for number in range(10_000, 10_200)]
        done["gathered"] = len(got)
        done["messages"] = await websocket(session, url)
        try:
            await session.get(f"{url}/slow/30", timeout=aiohttp.ClientTimeout(0.3))
        except asyncio.TimeoutError:
            done["timeout"] = True
        try:
            await session.get(url.replace("https:", "http:").rpartition(":")[0] + ":9/")
        except aiohttp.ClientConnectorError as error:
            done["refused"] = isinstance(error.os_error, ConnectionRefusedError)
    if ca:
        async with aiohttp.ClientSession() as session:
            try:
                await session.get(url)
            except aiohttp.ClientConnectorCertificateError as error:
                done["distrusted"] = "certificate verify failed" in str(error)
    return done


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:]))))
