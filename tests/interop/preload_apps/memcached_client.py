"""HOST PORT COUNT: four connections that set and get, and one datagram."""

import socket
import sys

host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
found = [socket.create_connection((host, port), timeout=30) for _ in range(4)]
files = [one.makefile("rwb") for one in found]
for number in range(count):
    file = files[number % 4]
    value = b"%d" % number * 20
    file.write(b"set key%d 0 0 %d\r\n%s\r\n" % (number, len(value), value))
    file.flush()
    assert file.readline() == b"STORED\r\n"
    file.write(b"get key%d\r\n" % number)
    file.flush()
    assert [file.readline() for _ in range(3)] == [b"VALUE key%d 0 %d\r\n" % (number, len(value)), value + b"\r\n", b"END\r\n"]
family = socket.AF_INET6 if ":" in host else socket.AF_INET
with socket.socket(family, socket.SOCK_DGRAM) as datagrams:
    datagrams.settimeout(30)
    datagrams.connect((host, port))
    datagrams.send(b"\0\1\0\0\0\1\0\0get key1\r\n")
    assert datagrams.recv(2000)[8:].startswith(b"VALUE key1 0 20\r\n")
print("all as stored")
