"""[--uvloop] HOST PORT: an HTTP server that answers /N with N bytes."""

import asyncio
import signal
import sys


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while line := await reader.readline():
            while (await reader.readline()).strip():
                pass
            size = int(line.split()[1][1:])
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def main(host: str, port: str) -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    server = await asyncio.start_server(serve, host, int(port))
    await over.wait()
    server.close()


arguments = sys.argv[1:]
if arguments[0] == "--uvloop":
    import uvloop

    uvloop.install()
    arguments.pop(0)
asyncio.run(main(*arguments))
