"""A raw-Ethernet queue pair of pyverbs in a process of its own, driven from the test."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from typing import Any, NamedTuple

import softnic_env

DEPTH = 64
BUFFER = 9216


class Received(NamedTuple):
    """A frame and what its completion said."""

    frame: bytes
    csum_ok: bool
    qp_num: int


class Queue:
    """In the child: one QP in RTS with its CQ and buffers on a device, and the flow rules of the test."""

    def __init__(self, device: str) -> None:
        from pyverbs.cq import CQ
        from pyverbs.device import Context
        from pyverbs.enums import IBV_ACCESS_LOCAL_WRITE, IBV_QPT_RAW_PACKET
        from pyverbs.mr import MR
        from pyverbs.pd import PD
        from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr

        self.ctx = Context(name=device)
        self.pd = PD(self.ctx)
        self.send_cq = CQ(self.ctx, DEPTH)
        self.recv_cq = CQ(self.ctx, DEPTH)
        cap = QPCap(max_send_wr=DEPTH, max_recv_wr=DEPTH, max_send_sge=1, max_recv_sge=1, max_inline_data=0)
        init = QPInitAttr(qp_type=IBV_QPT_RAW_PACKET, scq=self.send_cq, rcq=self.recv_cq, cap=cap)
        self.qp = QP(self.pd, init, QPAttr(port_num=1))
        # The last buffer is for sending.
        self.mr = MR(self.pd, (DEPTH + 1) * BUFFER, IBV_ACCESS_LOCAL_WRITE)
        self.flows: list[Any] = []
        self.more: dict[str, Any] = {}
        for slot in range(DEPTH):
            self._post(slot)

    def _post(self, slot: int) -> None:
        from pyverbs.wr import SGE, RecvWR

        self.qp.post_recv(RecvWR(wr_id=slot, num_sge=1, sg=[SGE(self.mr.buf + slot * BUFFER, BUFFER, self.mr.lkey)]))

    def send(self, frame: bytes, csum: bool = False) -> int:
        """Sends; the status of the completion."""
        from pyverbs import enums
        from pyverbs.wr import SGE, SendWR

        self.mr.write(frame, len(frame), DEPTH * BUFFER)
        flags = enums.IBV_SEND_SIGNALED | (enums.IBV_SEND_IP_CSUM if csum else 0)
        sge = SGE(self.mr.buf + DEPTH * BUFFER, len(frame), self.mr.lkey)
        self.qp.post_send(SendWR(wr_id=7, opcode=enums.IBV_WR_SEND, num_sge=1, sg=[sge], send_flags=flags))
        while True:
            count, completions = self.send_cq.poll()
            if count:
                assert completions[0].wr_id == 7
                return int(completions[0].status)

    def receive(self, count: int, seconds: float = 20.0) -> list[Received]:
        """The next `count` frames, or those that came within `seconds`."""
        from pyverbs import enums

        out: list[Received] = []
        until = time.monotonic() + seconds
        while len(out) < count:
            number, completions = self.recv_cq.poll()
            if not number:
                if time.monotonic() > until:
                    break
                continue
            wc = completions[0]
            assert wc.status == enums.IBV_WC_SUCCESS, wc.status
            assert wc.opcode == enums.IBV_WC_RECV
            frame = self.mr.read(wc.byte_len, wc.wr_id * BUFFER)
            out.append(Received(bytes(frame), bool(wc.wc_flags & enums.IBV_WC_IP_CSUM_OK), wc.qp_num))
            self._post(wc.wr_id)
        return out

    def flow(self, *specs: tuple[str, dict[str, Any]], kind: str = "NORMAL", priority: int = 0) -> int:
        """A rule of specifications, each the name of a class of pyverbs.spec, or of a function of verbs_specs, and its arguments; its
        number."""
        import verbs_specs
        from pyverbs import enums, spec
        from pyverbs.flow import Flow, FlowAttr

        attr = FlowAttr(num_of_specs=len(specs), port=1, priority=priority, flow_type=getattr(enums, f"IBV_FLOW_ATTR_{kind}"))
        for name, arguments in specs:
            known = {
                key: getattr(enums, value) if isinstance(value, str) and value.startswith("IBV_") else value
                for key, value in arguments.items()
            }
            attr.specs.append((getattr(spec, name, None) or getattr(verbs_specs, name))(**known))
        self.flows.append(Flow(self.qp, attr))
        return len(self.flows) - 1

    def unflow(self, number: int) -> None:
        """Removes a rule."""
        self.flows[number].close()

    def info(self) -> dict[str, Any]:
        """What the device says of its port."""
        attr = self.ctx.query_port(1)
        return {"mtu": attr.max_msg_sz - 18, "gid": self.ctx.query_gid(1, 0).gid, "state": int(attr.state), "qp_num": self.qp.qp_num}

    def segment(self, header: bytes, payload: bytes, mss: int) -> int:
        """Has the device cut a long TCP segment, by the extended interface; the status of the completion."""
        from pyverbs import enums
        from pyverbs.qp import QPAttr, QPCap, QPEx, QPInitAttrEx
        from pyverbs.wr import SGE

        if "cutter" not in self.more:
            mask = enums.IBV_QP_INIT_ATTR_PD | enums.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | enums.IBV_QP_INIT_ATTR_MAX_TSO_HEADER
            init = QPInitAttrEx(
                qp_type=enums.IBV_QPT_RAW_PACKET,
                scq=self.send_cq,
                rcq=self.recv_cq,
                cap=QPCap(max_send_wr=4, max_recv_wr=0, max_send_sge=1, max_recv_sge=1),
                comp_mask=mask,
                pd=self.pd,
                max_tso_header=128,
                send_ops_flags=enums.IBV_QP_EX_WITH_SEND | enums.IBV_QP_EX_WITH_TSO,
            )
            self.more["cutter"] = QPEx(self.ctx, init, QPAttr(port_num=1))
        cutter = self.more["cutter"]
        self.mr.write(payload, len(payload), 0)
        self.mr.write(header, len(header), DEPTH * BUFFER)
        cutter.wr_start()
        cutter.wr_id = 8
        cutter.wr_flags = enums.IBV_SEND_SIGNALED | enums.IBV_SEND_IP_CSUM
        # By address, which pyverbs wants.
        cutter.wr_send_tso(self.mr.buf + DEPTH * BUFFER, len(header), mss)
        cutter.wr_set_sge(SGE(self.mr.buf, len(payload), self.mr.lkey))
        cutter.wr_complete()
        return self._completion()

    def _completion(self) -> int:
        while True:
            count, completions = self.send_cq.poll()
            if count:
                return int(completions[0].status)

    def from_device_memory(self, frame: bytes, offset: int) -> int:
        """Sends a frame out of the device's memory; the status of the completion."""
        from pyverbs import enums
        from pyverbs.device import DM, AllocDmAttr
        from pyverbs.mr import DMMR
        from pyverbs.wr import SGE, SendWR

        with (
            DM(self.ctx, AllocDmAttr(length=4096)) as memory,
            DMMR(self.pd, 4096, enums.IBV_ACCESS_ZERO_BASED | enums.IBV_ACCESS_LOCAL_WRITE, memory, 0) as region,
        ):
            memory.copy_to_dm(offset, frame + bytes(-len(frame) % 4), len(frame) + -len(frame) % 4)
            sge = SGE(offset, len(frame), region.lkey)
            self.qp.post_send(SendWR(opcode=enums.IBV_WR_SEND, num_sge=1, sg=[sge], send_flags=enums.IBV_SEND_SIGNALED))
            return self._completion()

    def pace(self, kbps: int) -> None:
        """Sets the rate of what this queue pair sends."""
        from pyverbs import enums
        from pyverbs.qp import QPAttr

        attr = QPAttr(qp_state=enums.IBV_QPS_RTS, cur_qp_state=enums.IBV_QPS_RTS)
        attr.rate_limit = kbps
        self.qp.modify(attr, enums.IBV_QP_RATE_LIMIT)

    def post(self, frame: bytes, count: int) -> None:
        """Hands over the same frame several times; nothing is waited for."""
        from pyverbs import enums
        from pyverbs.wr import SGE, SendWR

        self.mr.write(frame, len(frame), DEPTH * BUFFER)
        sge = SGE(self.mr.buf + DEPTH * BUFFER, len(frame), self.mr.lkey)
        for _ in range(count):
            self.qp.post_send(SendWR(opcode=enums.IBV_WR_SEND, num_sge=1, sg=[sge], send_flags=enums.IBV_SEND_SIGNALED))

    def completions(self, count: int) -> list[int]:
        """The status of so many sends."""
        return [self._completion() for _ in range(count)]

    def watch(self, mac: str, strip: bool = False) -> None:
        """A second queue pair, whose completions say more, gets what is addressed to `mac`."""
        from pyverbs import enums
        from pyverbs.cq import CQEX, CqInitAttrEx
        from pyverbs.flow import Flow, FlowAttr
        from pyverbs.qp import QPAttr, QPCap, QPEx, QPInitAttrEx
        from pyverbs.spec import EthSpec
        from pyverbs.wr import SGE, RecvWR

        flags = enums.IBV_WC_EX_WITH_BYTE_LEN | enums.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | enums.IBV_WC_EX_WITH_CVLAN
        cq = CQEX(self.ctx, CqInitAttrEx(cqe=DEPTH, wc_flags=flags))
        init = QPInitAttrEx(
            qp_type=enums.IBV_QPT_RAW_PACKET,
            scq=cq,
            rcq=cq,
            cap=QPCap(max_send_wr=0, max_recv_wr=DEPTH, max_send_sge=1, max_recv_sge=1),
            comp_mask=enums.IBV_QP_INIT_ATTR_PD | enums.IBV_QP_INIT_ATTR_CREATE_FLAGS,
            pd=self.pd,
            create_flags=enums.IBV_QP_CREATE_CVLAN_STRIPPING if strip else 0,
        )
        qp = QPEx(self.ctx, init, QPAttr(port_num=1))
        attr = FlowAttr(num_of_specs=1, port=1)
        attr.specs.append(EthSpec(dst_mac=mac))
        self.more.update(watched=cq, watcher=qp, watch=Flow(qp, attr))
        for slot in range(DEPTH):
            qp.post_recv(RecvWR(wr_id=slot, num_sge=1, sg=[SGE(self.mr.buf + slot * BUFFER, BUFFER, self.mr.lkey)]))

    def watched(self, count: int, seconds: float = 60.0) -> list[tuple[bytes, int, int]]:
        """What the second queue pair got, at most DEPTH frames in all: the frame, its stamp and its tag."""
        from pyverbs.cq import PollCqAttr

        cq, out = self.more["watched"], []
        until = time.monotonic() + seconds
        while len(out) < count and time.monotonic() < until:
            if cq.start_poll(PollCqAttr()):
                continue
            frame = bytes(self.mr.read(cq.read_byte_len(), cq.wr_id * BUFFER))
            out.append((frame, cq.read_timestamp(), cq.read_cvlan()))
            cq.end_poll()
        return out

    def close(self) -> None:
        """Everything, users before what they use."""
        for name in ("watch", "watcher", "cutter", "watched"):
            if name in self.more:
                self.more[name].close()
        for thing in (*self.flows, self.qp, self.mr, self.send_cq, self.recv_cq, self.pd, self.ctx):
            thing.close()


def serve(pipe: Any, device: str, environ: dict[str, str]) -> None:
    """Main function of the child: calls come in as (method, positional, keyword), answers go out as (value, error)."""
    os.environ.clear()
    os.environ.update(environ)
    softnic_env.load()
    queue: Queue | None = None
    while True:
        try:
            method, args, kwargs = pipe.recv()
        except EOFError:
            break
        try:
            if queue is None:
                queue = Queue(device)
            pipe.send((getattr(queue, method)(*args, **kwargs), None))
        except Exception:
            pipe.send((None, traceback.format_exc()))
        if method == "close":
            break


class Peer:
    """In the test: a Queue elsewhere. A method of Queue that fails there fails here."""

    def __init__(self, fabric: str, port: int, options: str = "") -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, there = context.Pipe()
        environ = softnic_env.environment(f"{fabric}/{port}{options}")
        self.process = context.Process(target=serve, args=(there, softnic_env.device(fabric, port), environ))
        self.process.start()
        there.close()

    def __getattr__(self, method: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.pipe.send((method, args, kwargs))
            assert self.pipe.poll(60), f"no answer to {method}"
            value, error = self.pipe.recv()
            if error:
                raise AssertionError(error)
            return value

        return call

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            if exc[0] is None:
                self.close()
        finally:
            self.pipe.close()
            self.process.join(30)
            if self.process.exitcode is None:
                self.process.kill()
                self.process.join()
            self.process.close()
