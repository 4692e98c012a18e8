"""asyncpg: python asyncpg_client.py HOST PORT USER [CA]; prints what it did."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import hashlib
import io
import json
import ssl
import sys
from typing import Any

import asyncpg
import content

ROWS = 20_000


async def types(one: asyncpg.Connection[Any]) -> int:
    """Values go there and come back."""
    values: list[tuple[str, object]] = [
        ("int8", 1 << 60),
        ("float8", 0.1),
        ("numeric", decimal.Decimal("12345678901234567890.0987654321")),
        ("text", "a\N{SNOWMAN}b"),
        ("bytea", content.body(3_000_000)),
        ("timestamptz", datetime.datetime(2020, 2, 29, 23, 59, 59, 999999, tzinfo=datetime.timezone.utc)),
        ("int4[]", [1, 2, None, 4]),
        ("bool", None),
    ]
    for name, value in values:
        assert await one.fetchval(f"select $1::{name}", value) == value, name
    return len(values)


async def main(host: str, port: int, user: str, ca: str = "") -> dict[str, object]:
    done: dict[str, object] = {}
    trust: Any = ssl.create_default_context(cafile=ca) if ca else False
    where: dict[str, Any] = {"host": host, "port": port, "user": user, "database": "postgres", "ssl": trust, "timeout": 30}
    one = await asyncpg.connect(**where)
    secure, address = await one.fetchrow("select ssl, inet_client_addr() from pg_stat_ssl where pid = pg_backend_pid()")
    done["ssl"], done["address"] = secure, str(address)
    done["types"] = await types(one)
    await one.execute("create temp table items (number int primary key, name text)")
    rows = [(number, hashlib.md5(b"%d" % number).hexdigest()) for number in range(ROWS)]
    await one.copy_records_to_table("items", records=rows[: ROWS // 2])
    await one.executemany("insert into items values ($1, $2)", rows[ROWS // 2 :])
    async with one.transaction():
        got = [tuple(row) async for row in one.cursor("select * from items order by number", prefetch=500)]
    assert got == rows
    copied = io.BytesIO()
    await one.copy_from_query("select * from items order by number", output=copied)
    assert copied.getvalue() == b"".join(b"%d\t%s\n" % (number, name.encode()) for number, name in rows)
    done["rows"] = len(got)
    try:
        async with one.transaction():
            await one.execute("insert into items values (0, 'again')")
    except asyncpg.UniqueViolationError as error:
        done["error"] = error.sqlstate
    try:
        await one.execute("select pg_sleep(30)", timeout=0.2)
    except asyncio.TimeoutError:  # cancelled by a second connection
        done["cancelled"] = await one.fetchval("select 1") == 1
    heard: asyncio.Queue[str] = asyncio.Queue()
    await one.add_listener("news", lambda connection, pid, channel, payload: heard.put_nowait(payload))
    async with asyncpg.create_pool(min_size=10, max_size=10, **where) as pool:
        answers = await asyncio.gather(*(pool.fetchval("select $1::int * 2", number) for number in range(500)))
        assert answers == [number * 2 for number in range(500)]
        await pool.execute("notify news, 'from the pool'")
        assert await asyncio.wait_for(heard.get(), 20) == "from the pool"
        victim = await asyncpg.connect(**where)
        assert await pool.fetchval("select pg_terminate_backend($1)", victim.get_server_pid())
        while not victim.is_closed():
            await asyncio.sleep(0.01)
        try:
            await victim.execute("select 1")
        except asyncpg.InterfaceError:
            done["terminated"] = True
    await one.close()
    return done


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))))
