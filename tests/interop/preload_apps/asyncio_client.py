"""[--uvloop] HOST PORT: four connections, 50 requests each."""

import asyncio
import sys


async def visit(host: str, port: int) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    for number in range(50):
        size = 10 + 97 * number
        writer.write(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % size)
        await writer.drain()
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        assert head.startswith(b"HTTP/1.1 200")
        assert await asyncio.wait_for(reader.readexactly(size), 30) == b"x" * size
    writer.close()
    await writer.wait_closed()


async def main(host: str, port: str) -> None:
    await asyncio.gather(*(visit(host, int(port)) for _ in range(4)))
    print("ok")


arguments = sys.argv[1:]
if arguments[0] == "--uvloop":
    import uvloop

    uvloop.install()
    arguments.pop(0)
asyncio.run(main(*arguments))
