"""A server on aiohttp: python aiohttp_server.py HOST,HOST PORT [CERTIFICATE]; with a certificate HTTPS on the port above, too."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import ssl
import sys

import content
from aiohttp import WSMsgType, web


async def hello(request: web.Request) -> web.Response:
    return web.Response(text="hello\n")


async def echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read())


async def peer(request: web.Request) -> web.Response:
    return web.Response(text=str(request.remote))


async def digest(request: web.Request) -> web.Response:
    """The SHA-256 of what comes, as it comes."""
    found = hashlib.sha256()
    async for piece in request.content.iter_any():
        found.update(piece)
    return web.Response(text=found.hexdigest())


async def form(request: web.Request) -> web.Response:
    """Of a multipart form the SHA-256 of each part, by name."""
    found = {}
    async for part in await request.multipart():
        digest = hashlib.sha256()
        while piece := await part.read_chunk(1 << 18):
            digest.update(piece)
        found[part.name] = digest.hexdigest()
    return web.json_response(found)


async def download(request: web.Request) -> web.StreamResponse:
    """Chunked."""
    answer = web.StreamResponse()
    answer.enable_chunked_encoding()
    await answer.prepare(request)
    for piece in content.pieces(int(request.match_info["size"])):
        await answer.write(piece)
    await answer.write_eof()
    return answer


async def slow(request: web.Request) -> web.Response:
    print("asked to sleep", flush=True)
    await asyncio.sleep(float(request.match_info["seconds"]))
    return web.Response(text="slept")


async def websocket(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(max_msg_size=0)
    await socket.prepare(request)
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            await socket.send_str(message.data.upper())
        elif message.type is WSMsgType.BINARY:
            await socket.send_bytes(message.data)
    return socket


async def main(hosts: list[str], port: int, certificate: str = "") -> None:
    app = web.Application(client_max_size=1 << 30)
    app.add_routes([web.get("/", hello), web.post("/echo", echo), web.get("/peer", peer), web.post("/digest", digest)])
    app.add_routes([web.post("/form", form), web.get("/bytes/{size}", download), web.get("/slow/{seconds}", slow)])
    app.add_routes([web.get("/ws", websocket)])
    runner = web.AppRunner(app, handler_cancellation=True, keepalive_timeout=20, shutdown_timeout=20)
    await runner.setup()
    await web.TCPSite(runner, hosts, port, backlog=1024).start()
    if certificate:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
        await web.TCPSite(runner, hosts, port + 1, ssl_context=context).start()
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    print("ready", flush=True)
    await ended.wait()
    await runner.cleanup()
    print("ended", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1].split(","), int(sys.argv[2]), *sys.argv[3:]))
