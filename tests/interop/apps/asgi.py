"""An ASGI application with the same paths as aiohttp_server.py, for uvicorn."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable
from typing import Any

import content

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


async def answer(send: Send, data: bytes, status: int = 200) -> None:
    headers = [(b"content-length", str(len(data)).encode()), (b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})


async def received(receive: Receive, take: Callable[[bytes], object]) -> None:
    more = True
    while more:
        message = await receive()
        take(message.get("body", b""))
        more = message.get("more_body", False)


async def download(send: Send, size: int) -> None:
    """Without a length: chunked."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for piece in content.pieces(size):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def slow(receive: Receive, send: Send, seconds: float) -> None:
    """Not if whoever asked goes away meanwhile."""

    async def left() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    try:
        await asyncio.wait_for(left(), seconds)
    except asyncio.TimeoutError:
        await answer(send, b"slept")


async def websocket(receive: Receive, send: Send) -> None:
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        if message.get("text") is not None:
            await send({"type": "websocket.send", "text": message["text"].upper()})
        else:
            await send({"type": "websocket.send", "bytes": message["bytes"]})


async def lifespan(receive: Receive, send: Send) -> None:
    while (message := await receive())["type"] == "lifespan.startup":
        await send({"type": "lifespan.startup.complete"})
    assert message["type"] == "lifespan.shutdown"
    await send({"type": "lifespan.shutdown.complete"})


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        return await lifespan(receive, send)
    if scope["type"] == "websocket":
        return await websocket(receive, send)
    name, _, argument = scope["path"].strip("/").partition("/")
    if name == "":
        await answer(send, b"hello\n")
    elif name == "echo":
        parts: list[bytes] = []
        await received(receive, parts.append)
        await answer(send, b"".join(parts))
    elif name == "digest":
        digest = hashlib.sha256()
        await received(receive, digest.update)
        await answer(send, digest.hexdigest().encode())
    elif name == "peer":
        await answer(send, scope["client"][0].encode())
    elif name == "worker":
        await answer(send, str(os.getpid()).encode())
    elif name == "bytes":
        await download(send, int(argument))
    elif name == "slow":
        await slow(receive, send, float(argument))
    else:
        await answer(send, b"", 404)
    return None
