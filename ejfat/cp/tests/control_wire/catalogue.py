"""The messages of the package `loadbalancer` with their field numbers, as EJFAT's clients and control planes have them.

This list is independent of our .proto file and of our encoder. Enums are listed as int32, as they are on the wire.
"""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2, timestamp_pb2

PACKAGE = "loadbalancer"
FIELD = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "string": FIELD.TYPE_STRING,
    "uint32": FIELD.TYPE_UINT32,
    "uint64": FIELD.TYPE_UINT64,
    "int32": FIELD.TYPE_INT32,
    "int64": FIELD.TYPE_INT64,
    "float": FIELD.TYPE_FLOAT,
    "bool": FIELD.TYPE_BOOL,
}
ELSEWHERE = {"TS": ".google.protobuf.Timestamp", "Struct": ".google.protobuf.Struct"}

# Each field is "number name type". A type ends in `*` if the field is repeated, and in `|` if it belongs to the message's oneof.
MESSAGES = {
    "SlotRange": "1 index int32, 2 length uint32",
    "SessionSlotRanges": "1 sessionId string, 2 slots SlotRange*",
    "HealthIssue": "1 type string, 2 severity string, 3 message string, 4 details Struct, 5 detected_at TS",
    "ReserveLoadBalancerRequest": "2 name string, 4 until TS, 5 senderAddresses string*, 6 ipFamily int32, "
    "10 strategy string",
    "GetLoadBalancerRequest": "2 lbId string",
    "ReserveLoadBalancerReply": "1 token string, 2 lbId string, 3 syncIpv4Address string, 4 syncUdpPort uint32, "
    "5 dataIpv4Address string, 6 dataIpv6Address string, 7 fpgaLbId uint32, 8 syncIpv6Address string, "
    "9 dataMinPort uint32, 10 dataMaxPort uint32, 11 strategy string, 12 ejfatUri string",
    "LoadBalancerStatusRequest": "2 lbId string",
    "WorkerStatus": "1 name string, 2 fillPercent float, 3 controlSignal float, 4 slotsAssigned uint32, "
    "5 lastUpdated TS, 6 ipAddress string, 7 udpPort uint32, 8 portRange int32, 9 minFactor float, "
    "10 maxFactor float, 11 keepLbHeader bool, 12 totalEventsRecv int64, 13 totalEventsReassembled int64, "
    "14 totalEventsReassemblyErr int64, 15 totalEventsDequeued int64, 16 totalEventEnqueueErr int64, "
    "17 totalBytesRecv int64, 18 totalPacketsRecv int64, 19 slots SlotRange*, 20 slotDemands SlotRange*, "
    "21 healthIssues HealthIssue*, 22 sessionId int64",
    "LoadBalancerStatusReply": "1 timestamp TS, 2 currentEpoch uint64, 3 currentPredictedEventNumber uint64, "
    "4 workers WorkerStatus*, 5 senderAddresses string*, 6 expiresAt TS, 11 slotResolution uint32, "
    "12 healthIssues HealthIssue*",
    "AddSendersRequest": "2 lbId string, 3 senderAddresses string*",
    "RemoveSendersRequest": "2 lbId string, 3 senderAddresses string*",
    "FreeLoadBalancerRequest": "2 lbId string",
    "ResetLoadBalancerRequest": "1 lbId string, 2 sync bool, 3 epochs bool, 4 senders bool, 5 workers bool",
    "ResetLoadBalancerReply": "2 sync bool, 3 epochs bool, 4 senders bool, 5 workers bool",
    "ExtendReservationRequest": "1 lbId string, 2 until TS",
    "ExtendReservationReply": "2 until TS",
    "RegisterRequest": "2 lbId string, 3 name string, 4 weight float, 5 ipAddress string, 6 udpPort uint32, "
    "7 portRange int32, 8 minFactor float, 9 maxFactor float, 10 keepLbHeader bool, 12 slotDemands SlotRange*",
    "RegisterReply": "1 token string, 2 sessionId string",
    "SetSlotDemandsRequest": "1 lbId string, 2 slotConstraints SessionSlotRanges*",
    "DeregisterRequest": "2 lbId string, 3 sessionId string",
    "SendStateRequest": "2 sessionId string, 3 lbId string, 4 timestamp TS, 5 fillPercent float, "
    "6 controlSignal float, 7 isReady bool, 8 totalEventsRecv int64, 9 totalEventsReassembled int64, "
    "10 totalEventsReassemblyErr int64, 11 totalEventsDequeued int64, 12 totalEventEnqueueErr int64, "
    "13 totalBytesRecv int64, 14 totalPacketsRecv int64",
    "VersionReply": "1 commit string, 2 build string, 3 compatTag string",
    "Overview": "1 name string, 3 reservation ReserveLoadBalancerReply, 4 status LoadBalancerStatusReply",
    "OverviewReply": "1 loadBalancers Overview*",
    "TimeseriesRequest": "1 seriesSelector string*, 2 since TS",
    "FloatSample": "1 timestamp int64, 2 value float, 3 meta Struct",
    "FloatTimeseries": "4 data FloatSample*",
    "IntegerSample": "1 timestamp int64, 2 value int64, 3 meta Struct",
    "IntegerTimeseries": "1 data IntegerSample*",
    "Timeseries": "1 name string, 2 unit string, 3 integer_samples IntegerTimeseries|, "
    "4 float_samples FloatTimeseries|",
    "TimeseriesResponse": "1 timeseries Timeseries*, 2 since TS",
    "TokenPermission": "1 resourceType int32, 2 resourceId string, 3 permission int32",
    "CreateTokenRequest": "1 name string, 2 permissions TokenPermission*",
    "CreateTokenReply": "1 token string, 2 ejfatUri string",
    "TokenSelector": "1 id uint32|, 2 token string|",
    "ListTokenPermissionsRequest": "1 target TokenSelector",
    "ListChildTokensRequest": "1 target TokenSelector",
    "RevokeTokenRequest": "1 target TokenSelector",
    "TokenDetails": "1 name string, 2 permissions TokenPermission*, 3 created_at string, 4 id uint32",
    "ListTokenPermissionsReply": "1 token TokenDetails",
    "ListChildTokensReply": "1 tokens TokenDetails*",
    "ChainLoadBalancerRequest": "1 lbId string, 2 ejfatUri string, 3 ipFamily int32, 4 weight float, "
    "5 minFactor float, 6 maxFactor float, 7 slotDemands SlotRange*",
    "ChainLoadBalancerReply": "1 chainId string",
    "GetChainGraphRequest": "1 lbId string, 2 visited string*",
    "ChainGraphEdge": "1 upstreamLbId string, 2 upstreamDataIpv4 string, 3 upstreamDataIpv6 string, "
    "4 downstreamLbId string, 5 downstreamDataIpv4 string, 6 downstreamDataIpv6 string, 7 chainId string",
    "GetChainGraphReply": "1 edges ChainGraphEdge*, 2 cycleDetected bool",
    "UnchainLoadBalancerRequest": "1 lbId string, 2 chainId string",
    # Messages without fields.
    **{
        name: ""
        for name in (
            "AddSendersReply",
            "RemoveSendersReply",
            "FreeLoadBalancerReply",
            "SetSlotDemandsReply",
            "DeregisterReply",
            "SendStateReply",
            "VersionRequest",
            "OverviewRequest",
            "RevokeTokenReply",
            "UnchainLoadBalancerReply",
        )
    },
}

# The messages of each call: its request and its reply.
CALLS = {
    call: (f"{call}Request", {"GetLoadBalancer": "ReserveLoadBalancerReply", "Timeseries": "TimeseriesResponse"}.get(call, f"{call}Reply"))
    for call in (
        "ReserveLoadBalancer",
        "GetLoadBalancer",
        "LoadBalancerStatus",
        "FreeLoadBalancer",
        "ResetLoadBalancer",
        "ExtendReservation",
        "AddSenders",
        "RemoveSenders",
        "Register",
        "SetSlotDemands",
        "Deregister",
        "SendState",
        "Overview",
        "Timeseries",
        "Version",
        "CreateToken",
        "ListTokenPermissions",
        "ListChildTokens",
        "RevokeToken",
        "ChainLoadBalancer",
        "UnchainLoadBalancer",
        "GetChainGraph",
    )
}
assert len(CALLS) == 22


def classes():
    """Returns a class for each message, by the message's name."""
    file = descriptor_pb2.FileDescriptorProto(name="catalogue.proto", package=PACKAGE, syntax="proto3")
    file.dependency.extend([timestamp_pb2.DESCRIPTOR.name, struct_pb2.DESCRIPTOR.name])
    for message_name, fields in MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for text in filter(None, fields.split(", ")):
            number, name, kind = text.split()
            field = message.field.add(name=name, number=int(number), label=FIELD.LABEL_OPTIONAL)
            if kind.endswith("*"):
                field.label = FIELD.LABEL_REPEATED
            if kind.endswith("|"):
                if not message.oneof_decl:
                    message.oneof_decl.add(name="one")
                field.oneof_index = 0
            kind = kind.rstrip("*|")
            if kind in SCALARS:
                field.type = SCALARS[kind]
            else:
                field.type = FIELD.TYPE_MESSAGE
                field.type_name = ELSEWHERE.get(kind, f".{PACKAGE}.{kind}")
    pool = descriptor_pool.DescriptorPool()
    for needed in (timestamp_pb2, struct_pb2):
        pool.AddSerializedFile(needed.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    find = lambda name: pool.FindMessageTypeByName(f"{PACKAGE}.{name}")
    return {name: message_factory.GetMessageClass(find(name)) for name in MESSAGES}
