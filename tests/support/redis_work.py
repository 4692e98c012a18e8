"""What a child of a test does with redis-py over pyvma.socket. Every function takes a client of `connect` and asserts for itself."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import redis
import redis.connection
from redis.backoff import ConstantBackoff
from redis.retry import Retry

import pyvma.socket as socket

LIMIT_S = 60.0

# All that it takes: redis-py makes its sockets by this module's name.
redis.connection.socket = socket  # type: ignore[attr-defined]


def connect(host: str, port: int) -> redis.Redis:
    retry = Retry(ConstantBackoff(0.05), 3)
    return redis.Redis(host=host, port=port, socket_timeout=LIMIT_S, socket_connect_timeout=LIMIT_S, retry=retry)


def offloads(client: redis.Redis) -> list[str]:
    """What became of the sockets of the client's idle connections."""
    client.ping()
    idle: Any = client.connection_pool._available_connections
    return [connection._sock.offload.state for connection in idle if connection._sock]


def commands(client: redis.Redis, count: int, seed: int) -> dict[str, int]:
    """That many commands of several kinds, each answer compared with that of a dictionary here."""
    rng, strings, numbers, lists, done = random.Random(seed), {}, {}, {}, {}  # type: ignore[var-annotated]
    client.flushall()

    def put(key: str) -> bool:
        strings[key] = rng.randbytes(rng.choice((0, 1, 100, 5000)))
        return client.set(key, strings[key]) is True

    def add(key: str) -> bool:
        numbers[key] = numbers.get(key, 0) + 7
        return client.incrby("n" + key, 7) == numbers[key]

    def push(key: str) -> bool:
        lists.setdefault(key, []).append(rng.randbytes(20))
        return client.rpush("l" + key, lists[key][-1]) == len(lists[key])

    def pop(key: str) -> bool:
        return client.lpop("l" + key) == (lists[key].pop(0) if lists.get(key) else None)

    kinds: list[Callable[[str], bool]] = [put, add, push, pop]
    kinds += [lambda key: client.get(key) == strings.get(key), lambda key: client.exists(key) == (key in strings)]
    for _ in range(count):
        kind = rng.randrange(len(kinds))
        key = f"k{rng.randrange(100)}"
        assert kinds[kind](key), (kind, key)
        done[kind] = done.get(kind, 0) + 1
    return done


def pipelines(client: redis.Redis, count: int, each: int) -> int:
    """`count` pipelines of `each` pairs of commands; how many answers were right."""
    right = 0
    for number in range(count):
        with client.pipeline(transaction=bool(number % 2)) as pipe:
            for i in range(each):
                pipe.set(f"p{i}", b"%d.%d" % (number, i))
                pipe.get(f"p{i}")
            answers = pipe.execute()
        assert answers == [item for i in range(each) for item in (True, b"%d.%d" % (number, i))]
        right += len(answers)
    return right


def beside(work: Callable[[], None], block: Callable[[], Any]) -> Any:
    """The block's result, with the work in a thread beside it; what that raised is raised here."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        result = block()
    finally:
        thread.join(LIMIT_S)
    assert not thread.is_alive()
    if failed:
        raise failed[0]
    return result


def publish(client: redis.Redis, count: int) -> None:
    """Two subscribers, one by pattern, hear every message in order."""
    subscribers = [client.pubsub(ignore_subscribe_messages=True) for _ in range(2)]
    subscribers[0].subscribe("news")
    subscribers[1].psubscribe("n*")
    deadline = time.monotonic() + LIMIT_S
    while client.execute_command("PUBSUB", "NUMPAT") != 1 or dict(client.pubsub_numsub("news"))[b"news"] != 1:
        assert time.monotonic() < deadline
    heard: list[list[bytes]] = [[], []]

    def listen() -> None:
        for subscriber, got in zip(subscribers, heard, strict=True):
            while len(got) < count:
                message = subscriber.get_message(timeout=LIMIT_S)
                if message is not None:
                    got.append(message["data"])

    expected = [b"message %d" % number for number in range(count)]
    assert beside(listen, lambda: [client.publish("news", data) for data in expected]) == [2] * count
    assert heard == [expected, expected]
    for subscriber in subscribers:
        subscriber.close()


def blocking_pops(client: redis.Redis, count: int) -> None:
    """A reader that waits in BLPOP for a writer, turn by turn; and one for whom nobody writes."""

    def answer() -> None:
        for _ in range(count):
            _, data = client.blpop(["questions"], timeout=LIMIT_S / 2)
            client.lpush("answers", data.upper())

    def ask() -> None:
        for number in range(count):
            client.lpush("questions", b"question %d" % number)
            assert client.blpop(["answers"], timeout=LIMIT_S / 2) == (b"answers", b"QUESTION %d" % number)

    beside(answer, ask)
    assert client.blpop(["nobody"], timeout=0.2) is None


def big_value(client: redis.Redis, size: int) -> str:
    data = random.Random(size).randbytes(1 << 20) * (size >> 20)
    assert client.set("big", data) is True
    assert client.strlen("big") == len(data)
    got = client.get("big")
    client.delete("big")
    assert hashlib.sha256(got).digest() == hashlib.sha256(data).digest()
    return hashlib.sha256(data).hexdigest()


def killed(client: redis.Redis, other: redis.Redis, times: int) -> int:
    """Our connection is killed by the server; the next command has a new one. How many different ones there were."""
    seen = set()
    for number in range(times):
        seen.add(client.client_id())
        assert other.client_kill_filter(_id=client.client_id()) == 1
        assert client.set("after", number) is True
        assert client.get("after") == b"%d" % number
    return len(seen)


def refused(client: redis.Redis) -> bool:
    """While the server is down."""
    client.connection_pool.disconnect()
    try:
        client.ping()
    except redis.exceptions.ConnectionError:
        return True
    return False
