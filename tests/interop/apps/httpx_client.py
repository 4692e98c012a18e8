"""A client on httpx, synchronous and asynchronous: python httpx_client.py URL OWN_ADDRESS SIZE [CA]; prints what it did."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import ssl
import sys
from collections.abc import AsyncIterator
from typing import Any

import content
import httpx


def synchronous(url: str, own: str, size: int, verify: Any) -> dict[str, object]:
    done: dict[str, object] = {}
    # Before there is a connection: the server ends one that idles for as long as this may take, and the next request would meet its end.
    whole, digest = content.body(size), content.digest(size)
    with httpx.Client(verify=verify, timeout=60) as client:
        for number in (0, 1, 1000, 70_000):
            answer = client.post(f"{url}/echo", content=content.body(number))
            assert (answer.status_code, answer.content) == (200, content.body(number)), number
        assert client.get(f"{url}/peer").text == own
        assert [client.get(f"{url}/").text for _ in range(30)] == ["hello\n"] * 30
        got = hashlib.sha256()
        with client.stream("GET", f"{url}/bytes/{size}") as streamed:
            for piece in streamed.iter_bytes():
                got.update(piece)
        assert got.hexdigest() == digest
        form = client.post(f"{url}/form", files={"file": io.BytesIO(whole)})
        if form.status_code != 404:
            assert form.json() == {"file": digest}
        try:
            client.get(f"{url}/slow/30", timeout=0.3)
        except httpx.ReadTimeout:
            done["timeout"] = True
    try:
        httpx.get(url.replace("https:", "http:").rpartition(":")[0] + ":9/", timeout=20)
    except httpx.ConnectError as error:
        done["refused"] = "Connection refused" in str(error)
    if verify is not True:
        try:
            httpx.get(url, timeout=20)
        except httpx.ConnectError as error:
            done["distrusted"] = "certificate verify failed" in str(error)
    return done


async def sent(size: int) -> AsyncIterator[bytes]:
    for piece in content.pieces(size):
        yield piece


async def asynchronous(url: str, own: str, size: int, verify: Any) -> dict[str, object]:
    digest = content.digest(size)
    async with httpx.AsyncClient(verify=verify, timeout=60, limits=httpx.Limits(max_connections=50)) as client:
        assert (await client.get(f"{url}/peer")).text == own
        assert (await client.post(f"{url}/digest", content=sent(size))).text == digest
        answers = await asyncio.gather(*(client.get(f"{url}/bytes/{number}") for number in range(10_000, 10_100)))
        assert [answer.content for answer in answers] == [content.body(number) for number in range(10_000, 10_100)]
        try:
            await client.get(f"{url}/slow/30", timeout=0.3)
        except httpx.ReadTimeout:
            return {"gathered": len(answers), "async timeout": True}
    return {}


def main(url: str, own: str, size: int, ca: str = "") -> dict[str, object]:
    verify = ssl.create_default_context(cafile=ca) if ca else True
    return {**synchronous(url, own, size, verify), **asyncio.run(asynchronous(url, own, size, verify))}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])))
