"""HOST PORT: four threads with a connection each, 50 requests of each."""

import concurrent.futures
import http.client
import sys


def visit(_: int) -> None:
    connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=30)
    for number in range(50):
        size = 10 + 97 * number
        connection.request("GET", f"/{size}")
        response = connection.getresponse()
        assert response.status == 200
        assert response.read() == b"x" * size
    connection.close()


with concurrent.futures.ThreadPoolExecutor(4) as pool:
    list(pool.map(visit, range(4)))
print("ok")
