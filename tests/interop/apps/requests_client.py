"""A client on requests: python requests_client.py URL OWN_ADDRESS SIZE [CA]; prints what it did."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import content
import requests
from requests.adapters import HTTPAdapter


def downloaded(session: requests.Session, url: str, size: int) -> str:
    digest = hashlib.sha256()
    with session.get(f"{url}/bytes/{size}", stream=True, timeout=60) as answer:
        answer.raise_for_status()
        for piece in answer.iter_content(1 << 18):
            digest.update(piece)
    return digest.hexdigest()


def main(url: str, own: str, size: int, ca: str = "") -> dict[str, object]:
    done: dict[str, object] = {}
    # Before there is a connection: the server ends one that idles for as long as this may take, and the next request would meet its end.
    whole, digest = content.body(size), content.digest(size)
    with requests.Session() as session:
        session.verify = ca or True
        pool = HTTPAdapter(pool_connections=4, pool_maxsize=20)
        session.mount("http://", pool)
        session.mount("https://", pool)
        for number in (0, 1, 1000, 70_000):
            answer = session.post(f"{url}/echo", data=content.body(number), timeout=60)
            assert (answer.status_code, answer.content) == (200, content.body(number)), number
        assert session.get(f"{url}/peer", timeout=60).text == own
        assert [session.get(f"{url}/", timeout=60).text for _ in range(30)] == ["hello\n"] * 30
        pools = pool.poolmanager.pools
        assert [pools[key].num_connections for key in list(pools.keys())] == [1]
        assert downloaded(session, url, size) == digest
        sent = session.post(f"{url}/digest", data=content.pieces(size), timeout=60)  # a generator: sent chunked
        assert sent.text == digest
        form = session.post(f"{url}/form", files={"file": io.BytesIO(whole), "other": ("n", b"small")}, timeout=60)
        if form.status_code != 404:
            assert form.json() == {"file": digest, "other": hashlib.sha256(b"small").hexdigest()}
            done["form"] = True
        try:
            session.get(f"{url}/slow/30", timeout=0.3)
        except requests.exceptions.ReadTimeout:
            done["timeout"] = True
        with ThreadPoolExecutor(16) as threads:
            got = list(threads.map(lambda number: downloaded(session, url, number), range(100_000, 100_064)))
        assert got == [content.digest(number) for number in range(100_000, 100_064)]
        # aiohttp's server ends idle connections; the next request has a new one. Only where there is time for it: in less than this a busy
        # machine would let a connection idle that a client is about to use.
        if done.get("form") and not ca and size >= 1 << 26:
            time.sleep(25)
        assert session.get(f"{url}/", timeout=60, headers={"Connection": "close"}).text == "hello\n"
        assert session.get(f"{url}/", timeout=60).text == "hello\n"
        assert session.get(f"{url}/nothing", timeout=60).status_code == 404
    try:
        requests.get(url.replace("https:", "http:").rpartition(":")[0] + ":9/", timeout=20)
    except requests.exceptions.ConnectionError as error:
        done["refused"] = "Connection refused" in str(error)
    if ca:
        try:
            requests.get(url, timeout=20)
        except requests.exceptions.SSLError as error:
            done["distrusted"] = "certificate verify failed" in str(error)
    return done


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])))
