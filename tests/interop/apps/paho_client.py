"""paho-mqtt: python paho_client.py HOST PORT [TLS_PORT CA]; prints what it did."""

from __future__ import annotations

import json
import queue
import sys
from typing import Any

import content
import paho.mqtt.client as mqtt
import paho.mqtt.publish

COUNT = 100
BIG = 1_000_000


class Ear:
    """A client whose thread of the library's own puts what comes into a queue."""

    def __init__(self, host: str, port: int, name: str, ca: str = "") -> None:
        self.heard: queue.Queue[Any] = queue.Queue()
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, name, protocol=mqtt.MQTTv5)
        if ca:
            self.client.tls_set(ca)
        self.client.on_connect = lambda client, userdata, flags, reason, properties: self.heard.put(("connected", str(reason)))
        self.client.on_subscribe = lambda client, userdata, mid, reasons, properties: self.heard.put(("subscribed", len(reasons)))
        self.client.on_message = lambda client, userdata, message: self.heard.put((message.topic, message.payload))
        self.client.on_disconnect = lambda client, userdata, flags, reason, properties: self.heard.put(("ended", str(reason)))
        self.client.connect(host, port, keepalive=2)
        self.client.loop_start()
        self.expect("connected", "Success")

    def expect(self, *what: object) -> None:
        got = self.heard.get(timeout=30)
        assert got == what, (got[0], what[0])

    def close(self) -> None:
        self.client.disconnect()
        self.expect("ended", "Normal disconnection")
        self.client.loop_stop()


def talk(host: str, port: int, ca: str = "") -> int:
    ear, mouth = Ear(host, port, "ear", ca), Ear(host, port, "mouth", ca)
    ear.client.subscribe([("room/+/said", 1), ("big", 2)])
    ear.expect("subscribed", 2)
    for number in range(COUNT):
        mouth.client.publish(f"room/{number}/said", f"text {number}", qos=1)
    for number in range(COUNT):
        ear.expect(f"room/{number}/said", b"text %d" % number)
    info = mouth.client.publish("big", content.body(BIG), qos=2)
    ear.expect("big", content.body(BIG))
    info.wait_for_publish(30)
    paho.mqtt.publish.single("big", "alone", qos=1, hostname=host, port=port, tls={"ca_certs": ca} if ca else None)
    ear.expect("big", b"alone")
    for end in (ear, mouth):
        end.close()
    return COUNT + 2


def main(host: str, port: str, tls_port: str = "", ca: str = "") -> dict[str, object]:
    done: dict[str, object] = {"messages": talk(host, int(port))}
    if ca:
        done["tls"] = talk(host, int(tls_port), ca)
    return done


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
