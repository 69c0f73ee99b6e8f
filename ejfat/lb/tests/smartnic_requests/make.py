"""Requests to ESnet's SmartNICs, made by Python's protobuf: `requests.txt` beside this file.

The client of `sn_p4.v2` has to send these bytes (`ejfat/lb/tests/grpc_smartnic_client.rs`). Nothing here comes from our .proto
file or our encoder: field numbers, names and the form of values are written down once more, as a catalogue of what udplbd2
and the firmware send has them.

    python3 -m venv venv && venv/bin/pip install protobuf
    venv/bin/python make.py            compares requests.txt with what is made, as `cargo xtask bindings python` does
    venv/bin/python make.py --write    writes it
"""

import ipaddress
import pathlib
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FILE = pathlib.Path(__file__).with_name("requests.txt")
PACKAGE = "sn_p4.v2"

FIELD = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "string": FIELD.TYPE_STRING,
    "uint32": FIELD.TYPE_UINT32,
    "sint32": FIELD.TYPE_SINT32,
    "bool": FIELD.TYPE_BOOL,
}

# Message -> field -> number, type, and the oneof or "repeated" if it is in one or is.
MESSAGES = {
    "MatchKeyMask": {"key": (1, "string"), "mask": (2, "string")},
    "MatchKeyOnly": {"key": (1, "string")},
    "MatchKeyPrefix": {"key": (1, "string"), "prefix_length": (2, "uint32")},
    "MatchRange": {"lower": (1, "uint32"), "upper": (2, "uint32")},
    "Match": {
        "key_mask": (1, "MatchKeyMask", "type"),
        "key_only": (2, "MatchKeyOnly", "type"),
        "key_prefix": (3, "MatchKeyPrefix", "type"),
        "range": (4, "MatchRange", "type"),
        "unused": (5, "bool", "type"),
    },
    "ActionParameter": {"value": (1, "string")},
    "Action": {"name": (1, "string"), "parameters": (2, "ActionParameter", "repeated")},
    "TableRule": {
        "table_name": (1, "string"),
        "priority": (2, "uint32"),
        "replace": (3, "bool"),
        "matches": (4, "Match", "repeated"),
        "action": (5, "Action"),
    },
    "TableRuleRequest": {
        "dev_id": (1, "sint32"),
        "pipeline_id": (2, "sint32"),
        "rules": (3, "TableRule", "repeated"),
    },
    "TableRequest": {"dev_id": (1, "sint32"), "pipeline_id": (2, "sint32"), "table_name": (3, "string")},
    "PipelineStatsRequest": {"dev_id": (1, "sint32"), "pipeline_id": (2, "sint32")},
    # `op` is an enum, which is a uint32 on the wire where its value is not negative.
    "BatchRequest": {"op": (1, "uint32"), "table_rule": (31, "TableRuleRequest", "item")},
}
INSERT, DELETE = 4, 5


def classes():
    file = descriptor_pb2.FileDescriptorProto(name="catalogue.proto", package=PACKAGE, syntax="proto3")
    for message_name, fields in MESSAGES.items():
        message = file.message_type.add(name=message_name)
        oneofs = []
        for name, (number, kind, *rest) in fields.items():
            field = message.field.add(name=name, number=number, label=FIELD.LABEL_OPTIONAL)
            if rest == ["repeated"]:
                field.label = FIELD.LABEL_REPEATED
            elif rest:
                if rest[0] not in oneofs:
                    oneofs.append(rest[0])
                    message.oneof_decl.add(name=rest[0])
                field.oneof_index = oneofs.index(rest[0])
            if kind in SCALARS:
                field.type = SCALARS[kind]
            else:
                field.type, field.type_name = FIELD.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    find = lambda name: pool.FindMessageTypeByName(f"{PACKAGE}.{name}")
    return {name: message_factory.GetMessageClass(find(name)) for name in MESSAGES}


P4 = classes()


def only(value):
    return P4["Match"](key_only=P4["MatchKeyOnly"](key=hex(value)))


def any_interface():
    return P4["Match"](key_mask=P4["MatchKeyMask"](key="0x0", mask="0x0"))


def ticks(first, length):
    return P4["Match"](key_prefix=P4["MatchKeyPrefix"](key=hex(first), prefix_length=length))


def ip(text):
    return int(ipaddress.ip_address(text))


def rule(table, matches, action=None, values=(), priority=0, replace=False):
    made = P4["TableRule"](table_name=table, matches=matches, priority=priority, replace=replace)
    if action is not None:
        made.action.name = action
        made.action.parameters.extend(P4["ActionParameter"](value=hex(value)) for value in values)
    return made


def destination(ether_type, address, *action):
    return rule("ip_dst_filter_table", [any_interface(), only(ether_type), only(ip(address))], *action)


def frames(to, mac):
    return rule("mac_dst_filter_table", [any_interface(), only(to)], "set_mac_sa", [mac])


def epoch(lb, first, length, *action, **more):
    return rule("epoch_assign_table", [only(lb), ticks(first, length)], *action, **more)


def slot(lb, epoch, slot, *action):
    return rule("load_balance_calendar_table", [only(lb), only(epoch), only(slot)], *action)


def member(lb, ether_type, member, *action, **more):
    return rule("member_info_lookup_table", [only(lb), only(ether_type), only(member)], *action, **more)


def batch(op, rules):
    return P4["BatchRequest"](op=op, table_rule=P4["TableRuleRequest"](dev_id=0, pipeline_id=0, rules=rules))


def requests():
    v4, v6 = "192.0.2.1", "2001:db8::12:3456"
    mac = 0x0200_0000_00FE
    yield "insert destinations", batch(INSERT, [
        destination(0x800, v4, "set_ip_sa", [ip(v4), 3]),
        destination(0x86DD, v6, "set_ip_sa", [ip(v6), 0]),
    ])
    yield "insert IPv4 sources", batch(INSERT, [
        rule("ipv4_src_filter_table", [only(3), only(ip("198.51.100.7"))], "allow_ip_src"),
        rule("ipv4_src_filter_table", [only(0), only(ip("0.0.0.1"))], "allow_ip_src"),
    ])
    yield "insert IPv6 sources", batch(INSERT, [
        rule("ipv6_src_filter_table", [only(7), only(ip("2001:db8::7"))], "allow_ip_src"),
        rule("ipv6_src_filter_table", [only(1), only(ip("::1"))], "allow_ip_src"),
    ])
    yield "insert members", batch(INSERT, [
        member(3, 0x800, 0, "do_ipv4_member_rewrite", [mac, ip("10.0.0.1"), 10_000, 0, 0]),
        member(3, 0x800, 65_535, "do_ipv4_member_rewrite", [mac, ip("10.0.0.2"), 19_522, 14, 1]),
        member(0, 0x86DD, 2, "do_ipv6_member_rewrite", [mac, ip("fd00::abcd"), 65_535, 4, 1]),
        member(0, 0x86DD, 3, "drop_soft_evicted"),
        member(7, 0x800, 4, "drop_deregistered"),
    ])
    yield "insert slots", batch(INSERT, [
        slot(3, 0, 0, "do_assign_member", [0]),
        slot(3, 3, 511, "do_assign_member", [65_535]),
        slot(0, 0xFFFF_FFFF, 16_383, "do_assign_member", [1023]),
    ])
    yield "insert epochs", batch(INSERT, [
        epoch(3, 0, 0, "do_assign_epoch", [0], priority=63),
        epoch(3, 0, 52, "do_assign_epoch", [1]),
        epoch(3, 0x8000_0000_0000_0000, 1, "do_assign_epoch", [0xFFFF_FFFF]),
        epoch(3, 0xFFFF_FFFF_FFFF_FFFF, 64, "do_assign_epoch", [2]),
        epoch(0, 0x1000, 56, "do_assign_epoch_with_slot_sel_opts", [3, 7, 0x55]),
        epoch(1, 0, 0, "do_assign_epoch_with_slot_sel_opts", [3, 0, 0], priority=63),
    ])
    yield "replace epochs", batch(INSERT, [
        epoch(3, 0, 0, "do_assign_epoch", [1], priority=63, replace=True),
    ])
    yield "replace members", batch(INSERT, [
        member(3, 0x800, 0, "drop_deregistered", replace=True),
    ])
    yield "delete epochs", batch(DELETE, [epoch(3, 0, 52), epoch(3, 0, 0)])
    yield "delete slots", batch(DELETE, [slot(3, 3, 511), slot(3, 0, 0)])
    yield "delete members", batch(DELETE, [member(3, 0x800, 65_535), member(0, 0x86DD, 3)])
    yield "delete IPv4 sources", batch(DELETE, [
        rule("ipv4_src_filter_table", [only(3), only(ip("198.51.100.7"))]),
    ])
    yield "delete IPv6 sources", batch(DELETE, [
        rule("ipv6_src_filter_table", [only(7), only(ip("2001:db8::7"))]),
    ])
    yield "delete destinations", batch(DELETE, [destination(0x800, v4), destination(0x86DD, v6)])
    yield "clear all", P4["TableRequest"](dev_id=0, pipeline_id=0, table_name="")
    yield "clear members", P4["TableRequest"](table_name="member_info_lookup_table")
    yield "counters", P4["PipelineStatsRequest"](dev_id=0, pipeline_id=0)
    solicited, alike = "ff02::1:ff12:3456", "2001:db8:1::12:3456"
    yield "attach", batch(INSERT, [
        frames(mac, mac),
        frames(0xFFFF_FFFF_FFFF, mac),
        frames(0x3333_0000_0001, mac),
        frames(0x3333_FF12_3456, mac),
        destination(0x806, v4, "set_ip_sa", [ip(v4), 3]),
        destination(0x86DD, solicited, "set_ip_sa", [ip(v6), 0]),
        destination(0x86DD, solicited, "set_ip_sa", [ip(alike), 0]),
    ])


def main():
    made = "".join(
        f"{name}: {message.SerializeToString(deterministic=True).hex()}\n" for name, message in requests()
    )
    if sys.argv[1:] == ["--write"]:
        FILE.write_text(made)
    elif sys.argv[1:]:
        sys.exit(f"unknown: {sys.argv[1:]}; give --write or nothing")
    elif FILE.read_text() != made:
        sys.exit(f"{FILE} is not what Python's protobuf makes; remedy: {sys.argv[0]} --write")
    else:
        print(f"{FILE.name} is what Python's protobuf makes")


if __name__ == "__main__":
    main()
