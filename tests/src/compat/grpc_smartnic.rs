//! What a control plane of ESnet's SmartNICs asks a data plane for.

use prost::Message as _;
use proto::sn_p4::v2::{
    Action, ActionParameter, BatchOperation, BatchRequest, DeviceInfoRequest, Match, MatchKeyMask,
    MatchKeyOnly, MatchKeyPrefix, PipelineStatsRequest, ServerStatusRequest, StatsFilters, StatsMetricFilter,
    StatsMetricMatch, StatsMetricMatchIndexSlice, StatsMetricMatchIndices, StatsMetricMatchString,
    StatsRequest, TableRequest, TableRule, TableRuleRequest, batch_request,
    r#match::Type,
    stats_metric_filter::{Set, Term},
    stats_metric_match::Attribute,
    stats_metric_match_string::Method,
};

use super::{
    HOST, SERVER,
    grpc::Step,
    grpc_record::{batch, bits, call, lb, member_port, route, with_rules},
};

fn hex(value: u128) -> Match {
    Match { r#type: Some(Type::KeyOnly(MatchKeyOnly { key: format!("{value:#x}") })) }
}

fn any_port() -> Match {
    Match { r#type: Some(Type::KeyMask(MatchKeyMask { key: "0x0".into(), mask: "0x0".into() })) }
}

fn ticks(first: u64, prefix_length: u32) -> Match {
    Match { r#type: Some(Type::KeyPrefix(MatchKeyPrefix { key: format!("{first:#x}"), prefix_length })) }
}

fn rule(table: &str, matches: &[Match], action: &str, parameters: &[u128]) -> TableRule {
    let parameters = parameters.iter().map(|value| ActionParameter { value: format!("{value:#x}") });
    let action = Some(Action { name: action.into(), parameters: parameters.collect() });
    TableRule { table_name: table.into(), priority: 0, replace: false, matches: matches.to_vec(), action }
}

/// What a control plane has in the tables before there is any reservation.
fn defaults() -> Vec<TableRule> {
    let destination = |ether_type: u128| {
        let matches = [any_port(), hex(ether_type), hex(bits(SERVER))];
        rule("ip_dst_filter_table", &matches, "set_ip_sa", &[bits(SERVER), lb()])
    };
    let mac = |address: u128| {
        rule("mac_dst_filter_table", &[any_port(), hex(address)], "set_mac_sa", &[0x0200_0000_0001])
    };
    vec![mac(0x0200_0000_0001), mac(0xffff_ffff_ffff), destination(0x800), destination(0x806)]
}

fn source() -> TableRule {
    rule("ipv4_src_filter_table", &[hex(lb()), hex(bits(HOST))], "allow_ip_src", &[])
}

/// Four slots, selected by the lowest two bits of the tick.
fn epoch(first: u64, length: u32, epoch: u128) -> TableRule {
    let action = "do_assign_epoch_with_slot_sel_opts";
    rule("epoch_assign_table", &[hex(lb()), ticks(first, length)], action, &[epoch, 2, 0])
}

fn calendar(epoch: u128, member: u128) -> Vec<TableRule> {
    let slot = |slot| {
        let matches = [hex(lb()), hex(epoch), hex(slot)];
        rule("load_balance_calendar_table", &matches, "do_assign_member", &[member])
    };
    (0..4).map(slot).collect()
}

fn member(id: usize) -> TableRule {
    let parameters = [0x0200_0000_0001, bits(HOST), member_port(id - 1).into(), 0, 0];
    let matches = [hex(lb()), hex(0x800), hex(id as u128)];
    rule("member_info_lookup_table", &matches, "do_ipv4_member_rewrite", &parameters)
}

fn gone(id: u128) -> TableRule {
    rule("member_info_lookup_table", &[hex(lb()), hex(0x800), hex(id)], "drop", &[])
}

fn replacing(mut rule: TableRule) -> TableRule {
    rule.replace = true;
    rule
}

/// The packet and byte counters of a member, as a control plane asks for them.
fn of_member(id: i32) -> StatsFilters {
    let term = |term| StatsMetricFilter { negated: false, term: Some(term) };
    let matched = |attribute| term(Term::Match(StatsMetricMatch { attribute: Some(attribute) }));
    let name = |name: &str| {
        let method = Some(Method::Exact(name.into()));
        matched(Attribute::Name(StatsMetricMatchString { method }))
    };
    let names = vec![name("lb_mbr_tx_pkt_counter"), name("lb_mbr_tx_byte_counter")];
    let slices = vec![StatsMetricMatchIndexSlice { start: id, end: id, step: 1 }];
    let index = matched(Attribute::Indices(StatsMetricMatchIndices { slices }));
    let members = vec![term(Term::AnySet(Set { members: names })), index];
    StatsFilters { metric_filter: Some(term(Term::AllSet(Set { members }))), ..Default::default() }
}

fn method(name: &str) -> String {
    format!("/sn_p4.v2.SmartnicP4/{name}")
}

fn batches(what: &str, requests: Vec<Vec<u8>>) -> Step {
    call(what, &method("Batch"), requests)
}

fn insert(what: &str, rules: Vec<TableRule>) -> Step {
    batches(what, vec![batch(BatchOperation::BopInsert, rules)])
}

/// A response with statistics. Later servers may add metrics and elements, in any order; times of metrics are not compared.
fn statistics(what: &str, name: &str, request: Vec<u8>) -> Step {
    // PipelineStatsResponse has them in field 4, StatsResponse in field 3.
    let metrics = if name == "GetStats" { "3.1" } else { "4.1" };
    let (elements, time) = (format!("{metrics}.5"), format!("{metrics}.6"));
    with_rules(call(what, &method(name), vec![request]), &[&time], &[metrics, &elements])
}

pub(super) fn steps() -> Vec<Step> {
    let clear = |table: &str| {
        let table_name = table.into();
        TableRequest { dev_id: -1, pipeline_id: 0, table_name }.encode_to_vec()
    };
    let pipeline = |filters| PipelineStatsRequest { dev_id: -1, pipeline_id: 0, filters }.encode_to_vec();
    let rules = |rules| TableRuleRequest { dev_id: 0, pipeline_id: 0, rules }.encode_to_vec();
    let device = |dev_id| DeviceInfoRequest { dev_id }.encode_to_vec();
    let mixed = vec![
        batch(BatchOperation::BopInsert, vec![member(1)]),
        batch(BatchOperation::BopDelete, vec![gone(9)]),
        batch(BatchOperation::BopGet, vec![]),
        BatchRequest { op: BatchOperation::BopInsert.into(), item: None }.encode_to_vec(),
        BatchRequest { op: 77, item: Some(batch_request::Item::ServerStatus(ServerStatusRequest {})) }
            .encode_to_vec(),
    ];
    let mut wrong = member(2);
    wrong.matches.pop();
    let status = ServerStatusRequest {}.encode_to_vec();
    let mut stranger = call("a request without the token is refused", &method("ClearTable"), vec![clear("")]);
    if let Some(call) = &mut stranger.call {
        call.token = false;
    }
    vec![
        stranger,
        call("all tables are cleared", &method("ClearTable"), vec![clear("")]),
        call("a table that is not there", &method("ClearTable"), vec![clear("no_table")]),
        insert("what is there before any reservation", defaults()),
        insert("a sender of the reservation", vec![source()]),
        insert("a member", vec![member(1)]),
        insert("the calendar of epoch 0", calendar(0, 1)),
        insert("epoch 0 has all ticks", vec![epoch(0, 0, 0)]),
        route("tick 1000 goes to the first member", 1000, 0),
        insert("another member", vec![member(2)]),
        insert("the calendar of epoch 1", calendar(1, 2)),
        insert("epoch 0 keeps the ticks up to 4095", vec![epoch(0, 52, 0)]),
        insert("epoch 1 gets all others", vec![replacing(epoch(0, 0, 1))]),
        route("tick 4095 goes to the first member", 4095, 0),
        route("tick 4096 goes to the second member", 4096, 1),
        batches("five requests of a batch, most of which are wrong", mixed),
        call("a rule with too few matches", &method("InsertTableRule"), vec![rules(vec![wrong])]),
        call("a rule outside a batch", &method("InsertTableRule"), vec![rules(vec![gone(5)])]),
        call("it is deleted again", &method("DeleteTableRule"), vec![rules(vec![gone(5)])]),
        statistics("counters of the pipeline", "GetPipelineStats", pipeline(None)),
        statistics("counters of a member", "GetPipelineStats", pipeline(Some(of_member(2)))),
        statistics("they are cleared", "ClearPipelineStats", pipeline(Some(of_member(2)))),
        statistics("they are cleared now", "GetPipelineStats", pipeline(Some(of_member(2)))),
        statistics("counters of all", "GetStats", StatsRequest { dev_id: 0, filters: None }.encode_to_vec()),
        insert("the first member is gone", vec![replacing(gone(1))]),
        batches(
            "its epoch and calendar are deleted",
            vec![
                batch(BatchOperation::BopDelete, vec![epoch(0, 52, 0)]),
                batch(BatchOperation::BopDelete, calendar(0, 1)),
                batch(BatchOperation::BopDelete, vec![gone(1)]),
            ],
        ),
        route("tick 4097 goes to the second member", 4097, 1),
        with_rules(call("the device", &method("GetDeviceInfo"), vec![device(0)]), &["3.2"], &[]),
        call("a device that is not there", &method("GetDeviceInfo"), vec![device(7)]),
        with_rules(
            call("the server's status", &method("GetServerStatus"), vec![status]),
            &["2.1", "2.2"],
            &[],
        ),
    ]
}
