"""HTTP/2 by httpx, synchronous and asynchronous: python http2_client.py URL CA, where URL has files named by their sizes and takes uploads
below /put; prints what it did."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys

import content
import httpx

SIZES = (1, 1000, 100_000, 3_000_000)


def synchronous(url: str, trust: ssl.SSLContext) -> int:
    with httpx.Client(http2=True, verify=trust, timeout=60) as client:
        for size in SIZES:
            answer = client.get(f"{url}/{size}")
            assert (answer.http_version, answer.status_code, answer.content) == ("HTTP/2", 200, content.body(size)), size
        sent = client.put(f"{url}/put/file", content=content.body(SIZES[-1]))
        assert sent.status_code in (201, 204)
        assert client.get(f"{url}/put/file").content == content.body(SIZES[-1])
        assert client.delete(f"{url}/put/file").status_code == 204
        assert client.get(f"{url}/put/file").status_code == 404
    return len(SIZES) + 4


async def asynchronous(url: str, trust: ssl.SSLContext) -> int:
    """Many streams of one connection."""
    async with httpx.AsyncClient(http2=True, verify=trust, timeout=60) as client:
        answers = await asyncio.gather(*(client.get(f"{url}/{SIZES[number % 3]}") for number in range(200)))
        assert [answer.content for answer in answers] == [content.body(SIZES[number % 3]) for number in range(200)]
        assert {answer.http_version for answer in answers} == {"HTTP/2"}
        networks = {id(answer.extensions["network_stream"].get_extra_info("socket")) for answer in answers}
        assert len(networks) == 1
    return len(answers)


if __name__ == "__main__":
    trust = ssl.create_default_context(cafile=sys.argv[2])
    print(json.dumps({"asked": synchronous(sys.argv[1], trust), "streams": asyncio.run(asynchronous(sys.argv[1], trust))}))
