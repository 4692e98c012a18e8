"""redis-py, synchronous and asynchronous: python redis_client.py HOST PORT; prints what it did."""

from __future__ import annotations

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import content
import redis
import redis.asyncio

BIG = 4 << 20


def synchronous(host: str, port: int) -> dict[str, object]:
    done: dict[str, object] = {}
    with redis.Redis(host=host, port=port, socket_timeout=30, single_connection_client=True) as one:
        one.flushall()
        for number in range(300):
            assert one.set(f"key{number}", number) is True
        assert [one.get(f"key{number}") for number in range(300)] == [b"%d" % number for number in range(300)]
        with one.pipeline(transaction=True) as pipe:
            for _ in range(1000):
                pipe.incr("count")
            assert pipe.execute() == list(range(1, 1001))
        one.set("big", content.body(BIG))
        assert one.get("big") == content.body(BIG)
        assert one.blpop(["nothing"], timeout=0.1) is None
        done["commands"] = 1603
    pool = redis.Redis(host=host, port=port, socket_timeout=30)
    with pool, ThreadPoolExecutor(20) as threads:
        list(threads.map(lambda number: pool.rpush("list", number), range(500)))
        assert sorted(map(int, pool.lrange("list", 0, -1))) == list(range(500))
        with pool.pubsub() as heard:
            heard.subscribe("news")
            assert heard.get_message(timeout=20)["type"] == "subscribe"
            for number in range(50):
                pool.publish("news", number)
            messages = [heard.get_message(timeout=20) for _ in range(50)]
        assert [message["data"] for message in messages] == [b"%d" % number for number in range(50)]
        done["published"] = len(messages)
    return done


async def asynchronous(host: str, port: int) -> dict[str, object]:
    async with redis.asyncio.Redis(host=host, port=port, socket_timeout=30, max_connections=300) as one:
        await one.flushall()
        await asyncio.gather(*(one.set(f"key{number}", number) for number in range(200)))
        got = await asyncio.gather(*(one.get(f"key{number}") for number in range(200)))
        assert got == [b"%d" % number for number in range(200)]
        async with one.pipeline(transaction=False) as pipe:
            for _ in range(1000):
                pipe.incr("count")
            assert await pipe.execute() == list(range(1, 1001))
        await one.set("big", content.body(BIG))
        assert await one.get("big") == content.body(BIG)

        async def answer() -> None:
            for _ in range(100):
                _, data = await one.blpop(["questions"], timeout=20)
                await one.lpush("answers", data.upper())

        task = asyncio.create_task(answer())
        for number in range(100):
            await one.lpush("questions", f"question {number}")
            assert await one.blpop(["answers"], timeout=20) == (b"answers", b"QUESTION %d" % number)
        await task
        async with one.pubsub() as heard:
            await heard.subscribe("news")
            assert (await heard.get_message(timeout=20))["type"] == "subscribe"
            for number in range(50):
                await one.publish("news", number)
            messages = [await heard.get_message(timeout=20) for _ in range(50)]
            assert [message["data"] for message in messages] == [b"%d" % number for number in range(50)]
        waiting = asyncio.create_task(one.blpop(["nothing"], timeout=20))
        await asyncio.sleep(0.05)
        waiting.cancel()
        try:
            await waiting
        except asyncio.CancelledError:
            assert await one.ping()
    return {"asked": 100, "gathered": 200}


if __name__ == "__main__":
    where = sys.argv[1], int(sys.argv[2])
    print(json.dumps({**synchronous(*where), **asyncio.run(asynchronous(*where))}))
