"""Tests `naa lb serve` with an independent client: grpcio and Python's protobuf, with messages from the catalogue.

First it makes each call as EJFAT's clients make it, and checks the reply. Then it makes each call with one fault at a time, and
checks that the status code is the one that is listed here. `cargo xtask bindings python` runs it.

    NAA_PROGRAM=target/release/naa venv/bin/python check.py
"""

import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import grpc
from google.protobuf import unknown_fields

from catalogue import CALLS, classes

IP = "127.0.82.1"
CODE = grpc.StatusCode
OK, INVALID, NOT_FOUND, DENIED = CODE.OK, CODE.INVALID_ARGUMENT, CODE.NOT_FOUND, CODE.PERMISSION_DENIED
EXHAUSTED, PRECONDITION, UNAUTHENTICATED = (
    CODE.RESOURCE_EXHAUSTED,
    CODE.FAILED_PRECONDITION,
    CODE.UNAUTHENTICATED,
)
UNIMPLEMENTED, TOO_LONG, EXISTS = CODE.UNIMPLEMENTED, CODE.OUT_OF_RANGE, CODE.ALREADY_EXISTS
DEADLINE = 10
MANY = 100_000_000_000

LB = classes()
failures = []
count = 0


def expect(what, found, wanted):
    global count
    count += 1
    if found != wanted:
        failures.append(f"{what}: {found}, not {wanted}")


def only_known(what, message):
    """Checks that the catalogue has all fields of a reply."""
    unknown = [field.field_number for field in unknown_fields.UnknownFieldSet(message)]
    expect(f"{what}: fields beyond the catalogue", unknown, [])
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            values = [value] if hasattr(value, "ListFields") else value
            for one in values:
                only_known(f"{what}.{field.name}", one)


class Site:
    """A running `naa lb serve` with two load balancers, and a channel to it."""

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        (folder / "site.yaml").write_text(
            f"listen: ['{IP}:0']\nworkers: {{loopback: true}}\n"
            "load_balancers:\n"
            f"  - {{ipv4: {IP}, ports: 16384-16390, sync_port: 19600}}\n"
            f"  - {{ipv4: 127.0.82.2, sync_port: 19601}}\n"
        )
        program = os.environ["NAA_PROGRAM"]
        arguments = [program, "lb", "serve", "--json", "--until-eof", "--config", folder / "site.yaml"]
        self.process = subprocess.Popen(
            [*arguments, "--state", folder / "state"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        ready = json.loads(self.process.stdout.readline())
        self.address = ready["addresses"][0]
        self.token = pathlib.Path(ready["token_file"]).read_text().strip()
        self.channel = grpc.insecure_channel(self.address)

    def raw(self, call, data, authorization):
        """Makes a call with these bytes as its request. Returns the status code, the bytes of the reply, and the error text."""
        metadata = [] if authorization is None else [("authorization", authorization)]
        method = self.channel.unary_unary(f"/loadbalancer.LoadBalancer/{call}")
        try:
            return OK, method(data, metadata=metadata, timeout=DEADLINE), ""
        except grpc.RpcError as error:
            return error.code(), b"", error.details()

    def code(self, call, fields, token=None):
        """Makes a call with these fields. Returns its status code."""
        request = LB[CALLS[call][0]](**fields)
        authorization = f"Bearer {token or self.token}"
        return self.raw(call, request.SerializeToString(), authorization)[0]

    def ask(self, call, token=None, **fields):
        """Makes a call that must succeed. Returns its reply."""
        request, reply = CALLS[call]
        data = LB[request](**fields).SerializeToString()
        code, answer, why = self.raw(call, data, f"Bearer {token or self.token}")
        expect(f"{call} ({why})", code, OK)
        answer = LB[reply].FromString(answer)
        only_known(call, answer)
        return answer

    def end(self):
        expect("it still runs", self.process.poll(), None)
        self.channel.close()
        self.process.stdin.close()
        expect("it ends", self.process.wait(10), 0)


def worker(lb, port, **more):
    fields = {"lbId": lb, "name": "w", "weight": 1.0, "ipAddress": IP, "udpPort": port, "minFactor": 0.5}
    return {**fields, "maxFactor": 2.0, **more}


def permission(kind, resource, right):
    return LB["TokenPermission"](resourceType=kind, resourceId=resource, permission=right)


def by_id(number):
    return LB["TokenSelector"](id=number)


def by_text(text):
    return LB["TokenSelector"](token=text)


def answers(site):
    """Makes all calls as clients make them. Returns a reservation, its token, and a worker session, which still exist."""
    version = site.ask("Version")
    expect("compatTag", version.compatTag, "0.3.1")
    expect("commit", version.commit.startswith("naa "), True)
    now = time.time()
    reserved = site.ask(
        "ReserveLoadBalancer",
        name="run:1/a_b",
        until={"seconds": int(now) + 3600},
        senderAddresses=["10.0.0.1", "10.0.0.2"],
        strategy="dynamic",
    )
    expect("lbId", reserved.lbId.isdigit(), True)
    expect("token", (len(reserved.token), reserved.token == reserved.token.lower()), (32, True))
    expect("addresses", (reserved.dataIpv4Address, reserved.dataIpv6Address), (IP, ""))
    expect("ports", (reserved.dataMinPort, reserved.dataMaxPort), (16384, 16390))
    expect("sync", (reserved.syncIpv4Address, reserved.syncUdpPort, reserved.syncIpv6Address), (IP, 19600, ""))
    expect("strategy", (reserved.strategy, reserved.fpgaLbId), ("dynamic", 0))
    uri = f"ejfat://{reserved.token}@{site.address}/lb/{reserved.lbId}?"
    expect("ejfatUri", reserved.ejfatUri.startswith(uri), True)
    expect("sync of the URI", f"sync={IP}:19600" in reserved.ejfatUri, True)
    lb, token = reserved.lbId, reserved.token
    got = site.ask("GetLoadBalancer", token, lbId=lb)
    expect("Get: token and URI", (got.token, got.ejfatUri), ("", ""))
    got.token, got.ejfatUri = reserved.token, reserved.ejfatUri
    expect("Get", got, reserved)

    one = site.ask("Register", token, **worker(lb, 5000, portRange=2, slotDemands=[{"index": -1, "length": 3}]))
    expect("sessionId", (one.sessionId.isdigit(), len(one.token)), (True, 32))
    two = site.ask("Register", token, **worker(lb, 6000, keepLbHeader=True, weight=2.5))
    counters = {"totalEventsRecv": 11, "totalEventsReassembled": 12, "totalEventsReassemblyErr": 13}
    counters |= {"totalEventsDequeued": 14, "totalEventEnqueueErr": 15, "totalBytesRecv": 16, "totalPacketsRecv": 17}
    state = {"fillPercent": 0.25, "controlSignal": -0.5, "isReady": True, "timestamp": {"seconds": int(now)}}
    site.ask("SendState", one.token, sessionId=one.sessionId, lbId=lb, **state, **counters)
    site.ask("SendState", token, sessionId=two.sessionId, fillPercent=7.5, isReady=True)
    until = time.time() + 10
    while True:
        site.ask("SendState", one.token, sessionId=one.sessionId, lbId=lb, **state, **counters)
        status = site.ask("LoadBalancerStatus", token, lbId=lb)
        if sum(of.slotsAssigned for of in status.workers) == 512 or time.time() > until:
            break
        time.sleep(0.05)
    expect("slotResolution", status.slotResolution, 512)
    expect("senders", sorted(status.senderAddresses), ["10.0.0.1", "10.0.0.2"])
    expect("expiresAt", status.expiresAt.seconds, int(now) + 3600)
    expect("currentEpoch", status.currentEpoch > 0, True)
    expect("timestamp", abs(status.timestamp.seconds - time.time()) < 5, True)
    first, second = sorted(status.workers, key=lambda of: of.udpPort)
    for name, value in counters.items():
        expect(name, getattr(first, name), value)
    expect("worker", (first.name, first.ipAddress, first.udpPort, first.portRange), ("w", IP, 5000, 2))
    expect("factors", (first.minFactor, first.maxFactor, first.keepLbHeader), (0.5, 2.0, False))
    expect("state", (first.fillPercent, first.controlSignal), (0.25, -0.5))
    expect("sessionId of the status", str(first.sessionId), one.sessionId)
    expect("lastUpdated", abs(first.lastUpdated.seconds - time.time()) < 5, True)
    expect("a demand", [(of.index, of.length) for of in first.slotDemands], [(0, 3)])
    expect("the other", (second.udpPort, second.keepLbHeader, second.fillPercent), (6000, True, 1.0))
    slots = sum(of.length for one in status.workers for of in one.slots)
    expect("slots", (slots, first.slotsAssigned + second.slotsAssigned), (512, 512))

    site.ask("AddSenders", token, lbId=lb, senderAddresses=["10.0.0.3"])
    site.ask("RemoveSenders", token, lbId=lb, senderAddresses=["10.0.0.1", "10.9.9.9"])
    status = site.ask("LoadBalancerStatus", lbId=lb)
    expect("senders after", sorted(status.senderAddresses), ["10.0.0.2", "10.0.0.3"])
    extended = site.ask("ExtendReservation", token, lbId=lb, until={"seconds": int(now) + 7200})
    expect("until", extended.until.seconds, int(now) + 7200)
    extended = site.ask("ExtendReservation", token, lbId=lb)
    expect("a year", abs(extended.until.seconds - now - 365 * 86400) < 10, True)
    demand = {"sessionId": two.sessionId, "slots": [{"index": 500, "length": 12}]}
    site.ask("SetSlotDemands", token, lbId=lb, slotConstraints=[demand])
    expect("static", site.ask("GetLoadBalancer", lbId=lb).strategy, "static")
    overview = site.ask("Overview")
    expect("overview", [(of.name, of.reservation.lbId) for of in overview.loadBalancers], [("run:1/a_b", lb)])
    expect("of workers", len(overview.loadBalancers[0].status.workers), 2)
    expect("of others", len(site.ask("Overview", one.token).loadBalancers), 0)
    time.sleep(1.1)
    found = site.ask("Timeseries", token, seriesSelector=[f"/lb/{lb}/*"])
    names = {of.name: of for of in found.timeseries}
    filled = names[f"/lb/{lb}/session/{one.sessionId}/fill_percent"]
    expect("a series", (filled.unit, filled.WhichOneof("one")), ("1", "float_samples"))
    expect("a sample", filled.float_samples.data[-1].value, 0.25)
    expect("its time", abs(filled.float_samples.data[-1].timestamp / 1000 - time.time()) < 10, True)
    expect("epochs", names[f"/lb/{lb}/epoch"].integer_samples.data[-1].value > 0, True)
    expect("since", found.since.seconds > now - 4000, True)

    made = site.ask("CreateToken", token, name="monitor", permissions=[permission(2, lb, 0)])
    expect("URI of a token", made.ejfatUri, f"ejfat://{made.token}@{site.address}/")
    own = site.ask("ListTokenPermissions", made.token, target=by_id(0)).token
    expect("details", (own.name, [(of.resourceType, of.resourceId, of.permission) for of in own.permissions]),
           ("monitor", [(2, lb, 0)]))
    expect("created_at", own.created_at[:4], time.strftime("%Y"))
    children = site.ask("ListChildTokens", token, target=by_text(token)).tokens
    expect("a child", own.id in [of.id for of in children], True)
    site.ask("RevokeToken", token, target=by_text(made.token))
    expect("revoked", site.code("Version", {}, made.token), DENIED)

    reset = site.ask("ResetLoadBalancer", token, lbId=lb, sync=True, senders=True)
    expect("reset", (reset.sync, reset.epochs, reset.senders, reset.workers), (True, False, True, False))
    graph = site.ask("GetChainGraph", token, lbId=lb)
    expect("graph", (len(graph.edges), graph.cycleDetected), (0, False))
    expect("Chain", site.code("ChainLoadBalancer", {"lbId": lb, "ejfatUri": "ejfat://x:1/lb/2"}), UNIMPLEMENTED)
    expect("Unchain", site.code("UnchainLoadBalancer", {"lbId": lb, "chainId": "1"}), UNIMPLEMENTED)
    site.ask("Deregister", two.token, sessionId=two.sessionId, lbId=lb)
    expect("its token", site.code("SendState", {"sessionId": two.sessionId}, two.token), DENIED)
    expect("it is gone", site.code("SendState", {"sessionId": two.sessionId}), NOT_FOUND)
    other = site.ask("ReserveLoadBalancer", name="other")
    expect("all taken", site.code("ReserveLoadBalancer", {}), EXHAUSTED)
    site.ask("FreeLoadBalancer", other.token, lbId=other.lbId)
    expect("freed", site.code("LoadBalancerStatus", {"lbId": other.lbId}), NOT_FOUND)
    expect("its token", site.code("LoadBalancerStatus", {"lbId": other.lbId}, other.token), DENIED)
    return lb, token, one.sessionId


def faults(site, lb, token, session):
    """Makes each call with each fault, and checks the status code."""
    nan, inf = math.nan, math.inf
    now = int(time.time())
    named = {"lbId": lb}
    register, state = worker(lb, 7000), {"sessionId": session, "lbId": lb, "fillPercent": 0.5, "isReady": True}
    target = {"target": by_id(0)}
    made = {"name": "t", "permissions": [permission(2, lb, 0)]}
    wrong_ids = [("", INVALID), ("x", INVALID), ("-7", INVALID), ("1e3", INVALID), ("9" * 30, INVALID),
                 ("4711", NOT_FOUND), ("l" * 20_000, INVALID), ("l" * 100_000, TOO_LONG), ("\0", INVALID)]
    wrong_times = [({"seconds": -1}, INVALID), ({"seconds": now - 10}, INVALID),
                   ({"seconds": 1 << 60}, INVALID), ({"seconds": now + 9, "nanos": -1}, INVALID),
                   ({"seconds": now + 9, "nanos": 2_000_000_000}, INVALID)]
    wrong_senders = [(["x"], INVALID), ([""], INVALID), (["10.0.0.999"], INVALID), (["0.0.0.0"], INVALID),
                     (["224.0.0.1"], INVALID), (["fd00::1"], INVALID), (["10.0.0.1"] * 600, INVALID),
                     ([f"10.1.{n // 250}.{n % 250 + 1}" for n in range(300)], EXHAUSTED)]
    wrong_slots = [([{"index": -7, "length": 1}], INVALID), ([{"index": 0}], INVALID),
                   ([{"index": 511, "length": 2}], INVALID), ([{"index": 2**31 - 1, "length": 2**32 - 1}], INVALID),
                   ([{"index": 7, "length": 2}, {"index": 8, "length": 1}], INVALID),
                   ([{"index": -1, "length": 1}] * 600, INVALID), ([{"index": -1, "length": 513}], INVALID)]
    wrong_names = [("-x", INVALID), ("n" * 254, INVALID), ("a b", INVALID), ("n" * 100_000, TOO_LONG)]
    of_factor = lambda values: [(value, INVALID) for value in (nan, inf, -inf, -1.0, 1e30, *values)]
    # For each call: a valid request, and for each field the wrong values with their status codes.
    cases = {
        "ReserveLoadBalancer": ({}, {"name": wrong_names, "until": wrong_times, "ipFamily": [(7, INVALID), (-1, INVALID)],
                                     "strategy": [("magic", INVALID), ("s" * 1000, INVALID)],
                                     "senderAddresses": wrong_senders}),
        "GetLoadBalancer": (named, {"lbId": wrong_ids}),
        "LoadBalancerStatus": (named, {"lbId": wrong_ids[:-2] + [("l" * 2_000_000, TOO_LONG)]}),
        "FreeLoadBalancer": (named, {"lbId": wrong_ids}),
        "ResetLoadBalancer": (named, {"lbId": wrong_ids}),
        "ExtendReservation": (named, {"lbId": wrong_ids, "until": wrong_times}),
        "AddSenders": (named, {"lbId": wrong_ids, "senderAddresses": wrong_senders}),
        "RemoveSenders": (named, {"lbId": wrong_ids, "senderAddresses": [w for w in wrong_senders if w[1] == INVALID and w[0] != ["fd00::1"]]}),
        "Register": (register, {
            "lbId": wrong_ids, "name": [("n" * 5000, INVALID)] + wrong_names[-1:],
            "weight": of_factor([0.0]), "minFactor": of_factor([]), "maxFactor": of_factor([0.1]),
            "ipAddress": [("", INVALID), ("x", INVALID), ("0.0.0.0", INVALID), ("224.0.0.1", INVALID),
                          ("255.255.255.255", INVALID), ("fd00::1", INVALID)],
            "udpPort": [(0, INVALID), (70_000, INVALID), (2**32 - 1, INVALID), (5001, EXISTS)],
            "portRange": [(99, INVALID), (15, INVALID), (-1, INVALID), (-(2**31), INVALID)],
            "slotDemands": wrong_slots}),
        "SetSlotDemands": (named, {
            "lbId": wrong_ids[:-2],
            "slotConstraints": [([{"sessionId": session, "slots": slots}], code) for slots, code in wrong_slots]
            + [([{"sessionId": "4711"}], NOT_FOUND), ([{"sessionId": "x"}], INVALID), ([{}], INVALID),
               ([{"sessionId": session}] * 2, INVALID)]}),
        "Deregister": ({"sessionId": session}, {"sessionId": wrong_ids, "lbId": [("x", INVALID), ("4711", NOT_FOUND)]}),
        "SendState": (state, {
            "sessionId": wrong_ids, "fillPercent": [(nan, INVALID), (inf, INVALID), (-inf, INVALID), (-0.5, INVALID), (1e30, OK)],
            "controlSignal": [(nan, INVALID), (inf, INVALID), (-inf, INVALID)],
            "timestamp": [({"seconds": -MANY}, OK), ({"seconds": 2**62, "nanos": -5}, OK)],
            **{name: [(-1, INVALID), (-(2**63), INVALID), (2**63 - 1, OK)] for name in (
                "totalEventsRecv", "totalEventsReassembled", "totalEventsReassemblyErr", "totalEventsDequeued",
                "totalEventEnqueueErr", "totalBytesRecv", "totalPacketsRecv")}}),
        "Overview": ({}, {}),
        "Timeseries": ({"seriesSelector": ["*"]}, {
            "since": [({"seconds": -1}, INVALID), ({"seconds": 1 << 60}, INVALID), ({"seconds": 0}, OK)],
            "seriesSelector": [(["*"] * 65, INVALID), (["/" * 129], INVALID), (["x" * 2_000_000], TOO_LONG),
                               (["", "/lb/../*", "\0"], OK)]}),
        "Version": ({}, {}),
        "CreateToken": (made, {
            "name": wrong_names[-1:] + [("n" * 5000, INVALID)],
            "permissions": [([], INVALID), ([permission(2, lb, 0)] * 500, INVALID), ([permission(9, "", 0)], INVALID),
                            ([permission(-1, "", 0)], INVALID), ([permission(0, "", 9)], INVALID),
                            ([permission(2, "x", 0)], INVALID), ([permission(2, "4711", 0)], NOT_FOUND),
                            ([permission(3, "4711", 0)], NOT_FOUND), ([permission(1, "99", 0)], INVALID),
                            ([permission(1, "7", 0)], NOT_FOUND)]}),
        **{call: (target, {"target": [(None, INVALID), (LB["TokenSelector"](), INVALID), (by_id(2**32 - 1), NOT_FOUND),
                                      (by_text("nonsense"), NOT_FOUND), (by_text(""), NOT_FOUND)]})
           for call in ("ListTokenPermissions", "ListChildTokens")},
        "RevokeToken": (target, {"target": [(None, INVALID), (LB["TokenSelector"](), INVALID), (by_id(2**32 - 1), NOT_FOUND),
                                            (by_text("nonsense"), NOT_FOUND), (by_id(0), PRECONDITION)]}),
        "ChainLoadBalancer": (named, {"lbId": wrong_ids, "weight": [(nan, UNIMPLEMENTED)], "ipFamily": [(99, UNIMPLEMENTED)]}),
        "UnchainLoadBalancer": (named, {"lbId": wrong_ids, "chainId": [("c" * 1000, UNIMPLEMENTED)]}),
        "GetChainGraph": (named, {"lbId": wrong_ids, "visited": [(["v" * 100] * 50, OK)]}),
    }
    expect("every call", set(cases), set(CALLS))
    # A token without the right to these calls: it may only read another reservation.
    other = site.ask("ReserveLoadBalancer", name="other")
    weak = site.ask("CreateToken", name="weak", permissions=[permission(2, other.lbId, 0)]).token
    any_token = {"Overview", "Version", "Timeseries", "ListTokenPermissions", "ListChildTokens"}
    for call, (right, fields) in cases.items():
        data = LB[CALLS[call][0]](**right).SerializeToString()
        for authorization, code in [(None, UNAUTHENTICATED), ("", INVALID), (site.token, INVALID),
                                    (f"bearer {site.token}", INVALID), (f"Basic {site.token}", INVALID),
                                    ("Bearer ", DENIED), ("Bearer 0123456789abcdef", DENIED),
                                    (f"Bearer  {site.token}", DENIED), (f"Bearer {site.token[:-1]}", DENIED),
                                    (f"Bearer {'x' * 4000}", DENIED)]:
            expect(f"{call} as {authorization!r:.30}", site.raw(call, data, authorization)[0], code)
        if call not in any_token and call != "RevokeToken":
            expect(f"{call} without the right", site.code(call, right, weak), DENIED)
        if "lbId" in fields and call not in ("Deregister",):
            expect(f"{call} of another", site.code(call, {**right, "lbId": "4711"}, token), DENIED)
        for junk in (b"\xff" * 7, b"\x0a\xff\xff\xff\xff\x0f", b"\x12\x01", b"\x0b" * 200):
            expect(f"{call} of {junk[:9]}", site.raw(call, junk, f"Bearer {site.token}")[0], INVALID)
        for name, values in fields.items():
            for value, code in values:
                found = site.code(call, {**right, name: value})
                expect(f"{call} with {name} {str(value)!r:.60}", found, code)
    expect("no such call", site.raw("Nothing", b"", f"Bearer {site.token}")[0], UNIMPLEMENTED)
    expect("the reservation is there", site.code("LoadBalancerStatus", named), OK)
    expect("the session is there", site.code("SendState", state), OK)


def main():
    begin = time.time()
    with tempfile.TemporaryDirectory() as folder:
        site = Site(folder)
        try:
            faults(site, *answers(site))
            site.end()
        finally:
            site.process.kill()
    for failure in failures:
        print(failure, file=sys.stderr)
    print(f"control wire: {count} checks of 22 calls, {len(failures)} failed, {time.time() - begin:.1f} s")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
