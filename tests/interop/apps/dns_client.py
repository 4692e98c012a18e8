"""dnspython: python dns_client.py SERVER PORT; prints what it did."""

from __future__ import annotations

import asyncio
import json
import sys

import dns.asyncresolver
import dns.exception
import dns.message
import dns.query
import dns.rdatatype
import dns.resolver
import dns.reversename

BIG = 40  # addresses of a name, whose answer is too long for a datagram of 512 bytes


def made(server: str, port: int, kind: type) -> dns.resolver.BaseResolver:
    resolver = kind(configure=False)
    resolver.nameservers, resolver.port, resolver.lifetime = [server], port, 20
    return resolver


def synchronous(server: str, port: int) -> dict[str, object]:
    resolver = made(server, port, dns.resolver.Resolver)
    for tcp in (False, True):
        for number in range(50):
            assert [row.address for row in resolver.resolve(f"host{number}.test", "A", tcp=tcp)] == [f"10.1.0.{number}"]
        assert [row.address for row in resolver.resolve("host1.test", "AAAA", tcp=tcp)] == ["fd01::1"]
        assert str(resolver.resolve(dns.reversename.from_address("10.1.0.7"), "PTR", tcp=tcp)[0]) == "host7.test."
        assert resolver.resolve("text.test", "TXT", tcp=tcp)[0].strings == (b"v=1", b"two")
        try:
            resolver.resolve("nobody.test", "A", tcp=tcp)
        except dns.resolver.NXDOMAIN:
            pass
        else:
            raise AssertionError("a name that does not exist")
    query = dns.message.make_query("many.test", "A")
    answer, by_tcp = dns.query.udp_with_fallback(query, server, 20, port)
    assert by_tcp and len(answer.answer[0]) == BIG
    wide = dns.message.make_query("many.test", "A", use_edns=0, payload=4096)
    assert len(dns.query.udp(wide, server, 20, port).answer[0]) == BIG
    try:
        dns.query.udp(query, server, 0.3, 9)
    except dns.exception.Timeout:
        return {"asked": 108, "timeout": True}
    return {}


async def asynchronous(server: str, port: int) -> dict[str, object]:
    resolver = made(server, port, dns.asyncresolver.Resolver)
    for tcp in (False, True):
        found = await asyncio.gather(*(resolver.resolve(f"host{number}.test", "A", tcp=tcp) for number in range(100)))
        assert [[row.address for row in rows] for rows in found] == [[f"10.1.0.{number}"] for number in range(100)]
    return {"gathered": 200}


if __name__ == "__main__":
    where = sys.argv[1], int(sys.argv[2])
    print(json.dumps({**synchronous(*where), **asyncio.run(asynchronous(*where))}))
