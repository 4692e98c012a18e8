"""A graph for a Dask cluster: python dask_client.py SCHEDULER; prints what came out of it."""

from __future__ import annotations

import functools
import hashlib
import json
import operator
import sys

import content
from distributed import Client, wait


def step(size: int, *before: str) -> str:
    return hashlib.sha256(content.body(size) + "".join(before).encode()).hexdigest()


def block(number: int) -> bytes:
    return content.body(2_000_000 + number)


def joined(*blocks: bytes) -> str:
    """On one worker; what the other has made comes to it."""
    return hashlib.sha256(b"".join(blocks)).hexdigest()


def main(scheduler: str) -> dict[str, object]:
    with Client(scheduler, timeout=60, direct_to_workers=False) as client:
        client.wait_for_workers(2, timeout=60)
        numbers = client.map(operator.mul, range(300), range(300))
        total = client.submit(sum, numbers).result(timeout=60)
        workers = sorted(client.scheduler_info()["workers"])
        blocks = [client.submit(block, number, workers=[workers[number % 2]]) for number in range(6)]
        wait(blocks, timeout=60)
        whole = client.submit(joined, *blocks, workers=[workers[0]]).result(timeout=60)
        leaves = client.map(step, range(100, 120))
        fives = [client.submit(step, 1, *leaves[i : i + 5]) for i in range(0, 20, 5)]
        root = client.submit(step, 2, *fives).result(timeout=60)
        # The same with nobody's help.
        here = [step(size) for size in range(100, 120)]
        assert root == step(2, *(step(1, *here[i : i + 5]) for i in range(0, 20, 5)))
        assert total == sum(number * number for number in range(300))
        assert whole == joined(*map(block, range(6)))
        back = client.gather(client.scatter(content.body(5_000_000)))
        assert back == content.body(5_000_000)
        failed = client.submit(functools.partial(operator.truediv, 1), 0)
        assert isinstance(failed.exception(timeout=60), ZeroDivisionError)
        return {"workers": len(workers), "total": total}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
