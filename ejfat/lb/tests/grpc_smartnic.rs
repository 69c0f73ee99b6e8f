//! Service `sn_p4.v2.SmartnicP4` over real sockets, as udplbd2 uses it.

mod grpc_common;

use std::{
    collections::BTreeSet,
    net::IpAddr,
    num::NonZeroU64,
    sync::Arc,
    time::{Duration, Instant},
};

use ejfat::lb::{DropCause, Table};
use ejfat_lb::{SharedDataPlane, grpc::GrpcServer};
use grpc_common::{LB, LB_V6, SENDER, channel, routed, runtime, start};
use proto::sn_p4::v2::{
    Action, ActionParameter, BatchOperation, BatchRequest, DeviceInfoRequest, ErrorCode, Match, MatchKeyMask,
    MatchKeyOnly, MatchKeyPrefix, MatchRange, PipelineStatsRequest, ServerStatusRequest, StatsFilters,
    StatsMetricFilter, StatsMetricMatch, StatsMetricMatchIndexSlice, StatsMetricMatchIndices,
    StatsMetricMatchString, StatsMetricType, StatsRequest, StringRegexp, TableRequest, TableRule,
    TableRuleRequest, batch_request, batch_response,
    r#match::Type,
    smartnic_p4_client::SmartnicP4Client,
    stats_metric_filter::{Set, Term},
    stats_metric_match::Attribute,
    stats_metric_match_string::Method,
};
use tokio::runtime::Runtime;
use tonic::{Code, Status, transport::Channel};

fn key(text: impl Into<String>) -> Match {
    Match { r#type: Some(Type::KeyOnly(MatchKeyOnly { key: text.into() })) }
}

fn hex(value: u128) -> Match {
    key(format!("{value:#x}"))
}

fn any_port() -> Match {
    Match { r#type: Some(Type::KeyMask(MatchKeyMask { key: "0x0".into(), mask: "0x0".into() })) }
}

fn ticks(first: u64, prefix_length: u32) -> Match {
    Match { r#type: Some(Type::KeyPrefix(MatchKeyPrefix { key: format!("{first:#x}"), prefix_length })) }
}

fn rule(table: &str, matches: &[Match], action: &str, parameters: &[u128]) -> TableRule {
    let parameters = parameters.iter().map(|value| ActionParameter { value: format!("{value:#x}") });
    TableRule {
        table_name: table.into(),
        priority: 0,
        replace: false,
        matches: matches.to_vec(),
        action: Some(Action { name: action.into(), parameters: parameters.collect() }),
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn mac(address: u128) -> TableRule {
    rule("mac_dst_filter_table", &[any_port(), hex(address)], "set_mac_sa", &[0x0200_0000_0001])
}

fn destination(ether_type: u128, to: u128, from: IpAddr) -> TableRule {
    let matches = [any_port(), hex(ether_type), hex(to)];
    rule("ip_dst_filter_table", &matches, "set_ip_sa", &[bits(from), 3])
}

fn source(from: IpAddr) -> TableRule {
    rule("ipv4_src_filter_table", &[hex(3), hex(bits(from))], "allow_ip_src", &[])
}

fn epoch(first: u64, length: u32, epoch: u128) -> TableRule {
    rule("epoch_assign_table", &[hex(3), ticks(first, length)], "do_assign_epoch", &[epoch])
}

fn slot(epoch: u128, slot: u128, member: u128) -> TableRule {
    rule("load_balance_calendar_table", &[hex(3), hex(epoch), hex(slot)], "do_assign_member", &[member])
}

fn calendar(epoch: u128, member: u128) -> Vec<TableRule> {
    (0..512).map(|at| slot(epoch, at, member)).collect()
}

fn member(id: u128) -> TableRule {
    let parameters = [0x0200_0000_0001, 0x0a00_0001, 10_000 + id, 0, 0];
    rule("member_info_lookup_table", &[hex(3), hex(0x800), hex(id)], "do_ipv4_member_rewrite", &parameters)
}

fn gone(id: u128) -> TableRule {
    rule("member_info_lookup_table", &[hex(3), hex(0x800), hex(id)], "drop", &[])
}

/// What udplbd2 has in the tables before any reservation: also what answers ARP and neighbours' solicitations.
fn defaults() -> Vec<TableRule> {
    let solicited_node = 0xff02_0000_0000_0000_0000_0001_ff12_3456;
    vec![
        mac(0x0200_0000_0001),
        mac(0xffff_ffff_ffff),
        mac(0x3333_0000_0001),
        mac(0x3333_ff12_3456),
        // Two load balancers whose addresses end alike.
        mac(0x3333_ff12_3456),
        destination(0x800, bits(LB), LB),
        destination(0x806, bits(LB), LB),
        destination(0x86dd, bits(LB_V6), LB_V6),
        destination(0x86dd, solicited_node, LB_V6),
    ]
}

struct ControlPlane {
    plane: Arc<SharedDataPlane>,
    runtime: Runtime,
    client: SmartnicP4Client<Channel>,
    _server: GrpcServer,
}

fn request(rules: Vec<TableRule>) -> TableRuleRequest {
    TableRuleRequest { dev_id: -1, pipeline_id: 0, rules }
}

fn batch(op: BatchOperation, rules: Vec<TableRule>) -> BatchRequest {
    BatchRequest { op: op.into(), item: Some(batch_request::Item::TableRule(request(rules))) }
}

impl ControlPlane {
    fn start() -> Self {
        let (plane, server) = start(None);
        let runtime = runtime();
        let client = SmartnicP4Client::new(runtime.block_on(channel(&server)));
        Self { plane, runtime, client, _server: server }
    }

    /// One batch, as udplbd2 sends it: the answer to a request is at its place.
    fn batch(&mut self, requests: Vec<BatchRequest>) -> Vec<ErrorCode> {
        let sent = requests.len();
        let answers: Vec<_> = self.runtime.block_on(async {
            let mut stream = self.client.batch(tokio_stream::iter(requests)).await.unwrap().into_inner();
            let mut answers = Vec::new();
            while let Some(answer) = stream.message().await.unwrap() {
                answers.push(answer);
            }
            answers
        });
        assert_eq!(answers.len(), sent);
        let code = |answer: proto::sn_p4::v2::BatchResponse| match answer.item {
            Some(batch_response::Item::TableRule(it)) => it.error_code(),
            Some(batch_response::Item::Table(it)) => it.error_code(),
            _ => answer.error_code(),
        };
        answers.into_iter().map(code).collect()
    }

    fn insert(&mut self, rules: Vec<TableRule>) -> ErrorCode {
        self.batch(vec![batch(BatchOperation::BopInsert, rules)])[0]
    }

    fn replace(&mut self, mut rules: Vec<TableRule>) -> ErrorCode {
        rules.iter_mut().for_each(|rule| rule.replace = true);
        self.insert(rules)
    }

    fn delete(&mut self, rules: Vec<TableRule>) -> ErrorCode {
        self.batch(vec![batch(BatchOperation::BopDelete, rules)])[0]
    }

    fn clear(&mut self, table: &str) -> ErrorCode {
        let request = TableRequest { dev_id: -1, pipeline_id: 0, table_name: table.into() };
        self.runtime.block_on(async {
            let mut stream = self.client.clear_table(request).await.unwrap().into_inner();
            stream.message().await.unwrap().unwrap().error_code()
        })
    }

    fn count(&self, table: Table) -> usize {
        self.plane.sets().unwrap().last().unwrap().rules.count(table)
    }

    fn stats(&mut self, filters: Option<StatsFilters>) -> Result<Vec<(String, u32, u64)>, Status> {
        let request = PipelineStatsRequest { dev_id: -1, pipeline_id: 0, filters };
        let stats = self.runtime.block_on(async {
            let mut stream = self.client.get_pipeline_stats(request).await?.into_inner();
            Ok::<_, Status>(stream.message().await?.unwrap().stats.unwrap())
        })?;
        let values = stats.metrics.into_iter().flat_map(|metric| {
            assert_eq!(metric.r#type(), StatsMetricType::Counter);
            assert!(metric.last_update.unwrap().seconds > 0 && metric.num_elements > 0);
            metric.values.into_iter().map(move |value| (metric.name.clone(), value.index, value.u64))
        });
        Ok(values.collect())
    }

    fn stat(&mut self, name: &str, index: u32) -> u64 {
        let all = self.stats(None).unwrap();
        all.iter().find(|stat| stat.0 == name && stat.1 == index).expect("is there").2
    }
}

#[test]
fn what_udplbd2_does_from_reservation_to_the_second_epoch() {
    let mut control = ControlPlane::start();
    assert_eq!(control.clear(""), ErrorCode::EcOk);
    assert_eq!(control.insert(defaults()), ErrorCode::EcOk);
    assert_eq!(control.count(Table::Destination), 2);

    // Reserved, with a sender; a worker registers.
    assert_eq!(control.insert(vec![source(SENDER)]), ErrorCode::EcOk);
    assert_eq!(routed(&control.plane, 1000), Err(DropCause::EpochAssignMiss));
    assert_eq!(control.insert(vec![member(1)]), ErrorCode::EcOk);
    assert_eq!(control.insert(calendar(0, 1)), ErrorCode::EcOk);
    assert_eq!(control.insert(vec![epoch(0, 0, 0)]), ErrorCode::EcOk);
    assert_eq!(routed(&control.plane, 1000), Ok(1));

    // Another one; from tick 4096 on it gets all.
    assert_eq!(control.insert(vec![member(2)]), ErrorCode::EcOk);
    assert_eq!(control.insert(calendar(1, 2)), ErrorCode::EcOk);
    assert_eq!(control.insert(vec![epoch(0, 52, 0)]), ErrorCode::EcOk);
    assert_eq!(control.replace(vec![epoch(0, 0, 1)]), ErrorCode::EcOk);
    assert_eq!((routed(&control.plane, 4095), routed(&control.plane, 4096)), (Ok(1), Ok(2)));

    // The first one is gone, and its epoch with it.
    assert_eq!(control.replace(vec![gone(1)]), ErrorCode::EcOk);
    assert_eq!(routed(&control.plane, 4095), Err(DropCause::MbrDropDeregistered));
    assert_eq!(control.delete(vec![epoch(0, 52, 0)]), ErrorCode::EcOk);
    assert_eq!(control.delete(calendar(0, 1)), ErrorCode::EcOk);
    assert_eq!(control.delete(vec![gone(1)]), ErrorCode::EcOk);
    assert_eq!(routed(&control.plane, 4095), Ok(2), "the last epoch has all other ticks");
    assert_eq!((control.count(Table::Calendar), control.count(Table::Member)), (512, 1));
    assert_eq!(control.delete(defaults()), ErrorCode::EcFailedDeleteTableRule, "one is twice in it");
    assert_eq!(routed(&control.plane, 4096), Ok(2));
}

#[test]
fn requests_of_a_batch_are_made_in_order() {
    let mut control = ControlPlane::start();
    let clear = TableRequest { dev_id: 0, pipeline_id: -1, table_name: "member_info_lookup_table".into() };
    let clear = Some(batch_request::Item::Table(clear));
    let status = Some(batch_request::Item::ServerStatus(ServerStatusRequest {}));
    let requests = [
        (batch(BatchOperation::BopInsert, vec![member(1)]), ErrorCode::EcOk),
        (batch(BatchOperation::BopInsert, vec![member(1)]), ErrorCode::EcFailedInsertTableRule),
        (batch(BatchOperation::BopDelete, vec![member(1)]), ErrorCode::EcOk),
        (batch(BatchOperation::BopDelete, vec![member(1)]), ErrorCode::EcFailedDeleteTableRule),
        (batch(BatchOperation::BopInsert, vec![member(1), member(2)]), ErrorCode::EcOk),
        (BatchRequest { op: BatchOperation::BopClear.into(), item: clear }, ErrorCode::EcOk),
        (batch(BatchOperation::BopGet, vec![]), ErrorCode::EcUnknownBatchOp),
        (BatchRequest { op: BatchOperation::BopInsert.into(), item: None }, ErrorCode::EcUnknownBatchRequest),
        (BatchRequest { op: 77, item: status }, ErrorCode::EcUnknownBatchOp),
    ];
    let (requests, codes): (Vec<_>, Vec<_>) = requests.into_iter().unzip();
    assert_eq!(control.batch(requests), codes);
    assert_eq!(control.count(Table::Member), 0);
}

#[test]
fn a_request_is_made_whole_or_not_at_all() {
    let mut control = ControlPlane::start();
    let sets = control.plane.sets().unwrap();
    let rules = vec![mac(9), member(1), member(2), member(1)];
    assert_eq!(control.insert(rules), ErrorCode::EcFailedInsertTableRule);
    assert_eq!(control.plane.sets().unwrap(), sets);
    assert_eq!(control.delete(vec![mac(9)]), ErrorCode::EcFailedDeleteTableRule, "it was not kept either");
    control.insert(vec![mac(9), member(1)]);
    assert_eq!(control.delete(vec![mac(9), member(1), member(2)]), ErrorCode::EcFailedDeleteTableRule);
    assert_eq!(control.delete(vec![mac(9), member(1)]), ErrorCode::EcOk);
    let many = (0..65).map(mac).collect();
    assert_eq!(control.insert(many), ErrorCode::EcFailedInsertTableRule, "the table is full");
}

#[test]
fn tables_are_cleared_one_or_all() {
    let mut control = ControlPlane::start();
    control.insert(defaults());
    control.insert(vec![source(SENDER), member(1), epoch(0, 0, 0)]);
    control.insert(calendar(0, 1));
    assert_eq!(control.clear("load_balance_calendar_table"), ErrorCode::EcOk);
    assert_eq!(routed(&control.plane, 1), Err(DropCause::LbCalendarMiss));
    assert_eq!(control.clear("ip_dst_filter_table"), ErrorCode::EcOk);
    assert_eq!(control.clear("mac_dst_filter_table"), ErrorCode::EcOk);
    assert_eq!(control.count(Table::Member), 1);
    assert_eq!(control.insert(defaults()), ErrorCode::EcOk, "none of them is left");
    assert_eq!(control.clear("no_table"), ErrorCode::EcInvalidTableName);
    assert_eq!(control.clear(""), ErrorCode::EcOk);
    assert!(Table::ALL.iter().all(|&table| control.count(table) == 0));
    assert_eq!(control.insert(defaults()), ErrorCode::EcOk);
}

#[test]
fn actions_with_all_their_parameters() {
    let mut control = ControlPlane::start();
    control.insert(defaults());
    control.insert(vec![source(SENDER)]);
    let select = "do_assign_epoch_with_slot_sel_opts";
    control.insert(vec![rule("epoch_assign_table", &[hex(3), ticks(0, 0)], select, &[7, 2, 3])]);
    // Slots 3, 2, 1, 0 of ticks 0, 1, 2, 3.
    control.insert((0..4).map(|at| slot(7, at, 10 + at)).collect());
    control.insert(vec![member(13)]);
    let mut soft = gone(12);
    soft.action.as_mut().unwrap().name = "drop_soft_evicted".into();
    control.insert(vec![soft]);
    // In decimal, and in capitals.
    let mut decimal =
        rule("member_info_lookup_table", &[hex(3), hex(0), hex(0)], "do_ipv4_member_rewrite", &[]);
    decimal.matches[1..].clone_from_slice(&[key("2048"), key("0XB")]);
    let values = ["0", "167772161", "0X4E20", "4", "1"];
    decimal.action.as_mut().unwrap().parameters =
        values.iter().map(|value| ActionParameter { value: (*value).into() }).collect();
    assert_eq!(control.insert(vec![decimal]), ErrorCode::EcOk);

    assert_eq!(routed(&control.plane, 0), Ok(13));
    assert_eq!(routed(&control.plane, 1), Err(DropCause::MbrDropSoftEvicted));
    let route = grpc_common::route(&control.plane, 2).unwrap();
    assert_eq!((route.member, route.mac, route.keep_lb_header), (11, None, true));
    assert_eq!(route.to, "10.0.0.1:20005".parse().unwrap(), "entropy 5 of 16 ports");
    assert_eq!(routed(&control.plane, 3), Err(DropCause::MbrInfoMiss));

    let v6 = [0, bits(LB_V6), 10_000, 0, 0];
    let matches = [hex(3), hex(0x86dd), hex(1)];
    let v6 = rule("member_info_lookup_table", &matches, "do_ipv6_member_rewrite", &v6);
    let from = rule("ipv6_src_filter_table", &[hex(3), hex(bits(LB_V6))], "allow_ip_src", &[]);
    assert_eq!(control.insert(vec![v6, from]), ErrorCode::EcOk);
    assert_eq!((control.count(Table::SourceV6), control.count(Table::Member)), (1, 4));
}

#[test]
fn every_fault_has_its_code() {
    use ErrorCode as Code;
    let mut control = ControlPlane::start();
    let with = |mut rule: TableRule, change: &dyn Fn(&mut TableRule)| {
        change(&mut rule);
        rule
    };
    let parameter = |at: usize, value: &'static str| {
        with(member(1), &|rule| rule.action.as_mut().unwrap().parameters[at].value = value.into())
    };
    let matched = |at: usize, with_this: Match| with(member(1), &|rule| rule.matches[at] = with_this.clone());
    let range = Match { r#type: Some(Type::Range(MatchRange { lower: 0, upper: 1 })) };
    let port_mask = Match { r#type: Some(Type::KeyMask(MatchKeyMask { key: "1".into(), mask: "7".into() })) };
    let junk_mask = Match { r#type: Some(Type::KeyMask(MatchKeyMask { key: "1".into(), mask: "x".into() })) };
    let port = |port: &Match| with(destination(0x800, bits(LB), LB), &|rule| rule.matches[0] = port.clone());
    let cases = [
        (with(member(1), &|rule| rule.table_name = "l2_iface_table".into()), Code::EcInvalidTableName),
        (with(member(1), &|rule| rule.table_name = "x".repeat(100_000)), Code::EcInvalidTableName),
        (with(member(1), &|rule| drop(rule.matches.pop())), Code::EcTableRuleTooFewMatches),
        (with(member(1), &|rule| rule.matches.push(hex(1))), Code::EcTableRuleTooManyMatches),
        (with(member(1), &|rule| rule.matches.clear()), Code::EcTableRuleTooFewMatches),
        (with(member(1), &|rule| rule.action = None), Code::EcInvalidActionName),
        (with(member(1), &|rule| rule.action.as_mut().unwrap().name.clear()), Code::EcInvalidActionName),
        (
            with(member(1), &|rule| drop(rule.action.as_mut().unwrap().parameters.pop())),
            Code::EcTableRuleTooFewActionParameters,
        ),
        (
            with(gone(1), &|rule| rule.action.as_mut().unwrap().parameters.push(ActionParameter::default())),
            Code::EcTableRuleTooManyActionParameters,
        ),
        (with(source(SENDER), &|rule| rule.action = gone(1).action), Code::EcInvalidActionName),
        (matched(2, key("0xzz")), Code::EcTableRuleMatchInvalidKeyFormat),
        (matched(2, key("")), Code::EcTableRuleMatchInvalidKeyFormat),
        (matched(2, key("0x10000")), Code::EcTableRuleMatchKeyTooBig),
        (matched(2, key("9".repeat(100_000))), Code::EcTableRuleMatchKeyTooBig),
        (matched(0, hex(8)), Code::EcTableRuleMatchKeyTooBig),
        (matched(1, hex(0x806)), Code::EcTableRuleMatchInvalidKeyFormat),
        (matched(2, range), Code::EcTableRuleMatchInvalidFormat),
        (matched(2, Match::default()), Code::EcUnknownTableRuleMatchType),
        (parameter(1, "10.0.0.1"), Code::EcTableRuleInvalidActionParameterFormat),
        (parameter(0, "0x1000000000000"), Code::EcTableRuleParamTooBig),
        (parameter(2, "0x10000"), Code::EcTableRuleParamTooBig),
        (parameter(2, "0x0"), Code::EcTableRuleParamInvalidFormat),
        (parameter(3, "0xf"), Code::EcTableRuleParamTooBig),
        (parameter(4, "2"), Code::EcTableRuleParamTooBig),
        (parameter(1, "0xffffffff"), Code::EcTableRuleParamInvalidFormat),
        (matched(1, hex(0x86dd)), Code::EcTableRuleParamInvalidFormat),
        (slot(0, 0x4000, 1), Code::EcTableRuleMatchKeyTooBig),
        (epoch(0, 65, 1), Code::EcTableRuleMatchInvalidPrefixLength),
        (epoch(0, u32::MAX, 1), Code::EcTableRuleMatchInvalidPrefixLength),
        (epoch(1, 63, 1), Code::EcTableRuleMatchInvalidPrefixMask),
        (with(epoch(0, 0, 1), &|rule| rule.matches[1] = hex(1)), Code::EcTableRuleMatchInvalidFormat),
        (port(&port_mask), Code::EcTableRuleMatchInvalidBitfieldMask),
        (port(&junk_mask), Code::EcTableRuleMatchInvalidMaskFormat),
        (destination(0x800, bits(LB_V6), LB), Code::EcTableRuleMatchKeyTooBig),
        (destination(0x800, bits(LB), SENDER), Code::EcTableRuleParamInvalidFormat),
        (destination(0x8100, bits(LB), LB), Code::EcTableRuleMatchInvalidKeyFormat),
    ];
    for (rule, code) in cases {
        let shown: String = format!("{rule:?}").chars().take(500).collect();
        assert_eq!(control.insert(vec![rule]), code, "{shown}");
    }
    assert!(Table::ALL.iter().all(|&table| control.count(table) == 0));
}

#[test]
fn other_devices_and_pipelines_are_not_there() {
    let mut control = ControlPlane::start();
    let ask = |dev_id, pipeline_id| TableRuleRequest { dev_id, pipeline_id, rules: vec![member(1)] };
    let codes = control.runtime.block_on(async {
        let mut codes = Vec::new();
        for (device, pipeline) in [(1, 0), (-2, 0), (0, 1), (0, i32::MIN), (0, 0)] {
            let mut stream =
                control.client.insert_table_rule(ask(device, pipeline)).await.unwrap().into_inner();
            codes.push(stream.message().await.unwrap().unwrap().error_code());
        }
        let mut stream = control.client.delete_table_rule(ask(-1, -1)).await.unwrap().into_inner();
        codes.push(stream.message().await.unwrap().unwrap().error_code());
        codes
    });
    use ErrorCode as Code;
    let pipeline = Code::EcInvalidPipelineId;
    assert_eq!(
        codes,
        [Code::EcInvalidDeviceId, Code::EcInvalidDeviceId, pipeline, pipeline, Code::EcOk, Code::EcOk]
    );
}

#[test]
fn it_tells_what_it_is() {
    let mut control = ControlPlane::start();
    control.runtime.block_on(async {
        let ask = DeviceInfoRequest { dev_id: -1 };
        let mut stream = control.client.get_device_info(ask).await.unwrap().into_inner();
        let device = stream.message().await.unwrap().unwrap();
        assert_eq!(device.error_code(), ErrorCode::EcOk);
        assert_eq!(device.info.unwrap().pci.unwrap().bus_id, "software");
        assert!(stream.message().await.unwrap().is_none());

        let mut stream = control.client.get_server_status(ServerStatusRequest {}).await.unwrap().into_inner();
        let status = stream.message().await.unwrap().unwrap().status.unwrap();
        assert!(status.start_time.unwrap().seconds > 0 && status.up_time.unwrap().seconds < 600);
    });
}

/// As udplbd2 asks for counters to be cleared.
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

#[test]
fn counters_have_the_names_that_udplbd2_reads_and_are_cleared() {
    let mut control = ControlPlane::start();
    control.insert(defaults());
    control.insert(vec![source(SENDER), member(1), member(2), epoch(0, 0, 0)]);
    control.insert((0..512).map(|at| slot(0, at, 1 + at % 2)).collect());
    (0..10).for_each(|tick| assert_eq!(routed(&control.plane, tick), Ok(1 + (tick % 2) as u16)));
    assert_eq!(control.plane.path().route(LB, LB, &[0; 50]), Err(DropCause::BlockedSrc));

    assert_eq!(control.stat("lb_ctx_rx_pkt_counter", 3), 11);
    assert_eq!(control.stat("lb_ctx_rx_byte_counter", 3), 10 * 116 + 50);
    assert_eq!(control.stat("lb_ctx_rx_v2_counter", 3), 10);
    assert_eq!(control.stat("lb_ctx_drop_blocked_src_pkt_counter", 3), 1);
    assert_eq!(control.stat("lb_ctx_drop_mbr_info_miss_pkt_counter", 3), 0);
    assert_eq!(control.stat("lb_mbr_tx_pkt_counter", 2), 5);
    assert_eq!(control.stat("lb_mbr_tx_byte_counter", 2), 500);

    let clear = |filters| PipelineStatsRequest { dev_id: 0, pipeline_id: 0, filters };
    control.runtime.block_on(async {
        control.client.clear_pipeline_stats(clear(Some(of_member(2)))).await.unwrap();
    });
    assert_eq!((control.stat("lb_mbr_tx_pkt_counter", 1), control.stat("lb_mbr_tx_pkt_counter", 2)), (5, 0));
    assert_eq!(routed(&control.plane, 1), Ok(2));
    assert_eq!(
        (control.stat("lb_mbr_tx_pkt_counter", 2), control.stat("lb_mbr_tx_byte_counter", 2)),
        (1, 100)
    );
    let found = control.stats(Some(of_member(2))).unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    control.runtime.block_on(async {
        control.client.clear_pipeline_stats(clear(None)).await.unwrap();
    });
    let non_zero = StatsFilters { non_zero: true, ..Default::default() };
    assert_eq!(control.stats(Some(non_zero)).unwrap(), []);
    let gauges = StatsFilters { metric_types: vec![StatsMetricType::Gauge.into()], ..Default::default() };
    assert_eq!(control.stats(Some(gauges)).unwrap(), []);
    assert_eq!(control.plane.counters().lbs[3].received.packets, 12, "the data plane goes on counting");
    control.runtime.block_on(async {
        let ask = StatsRequest { dev_id: 0, filters: None };
        let mut stream = control.client.get_stats(ask).await.unwrap().into_inner();
        assert!(stream.message().await.unwrap().unwrap().stats.unwrap().metrics.len() > 10);
    });
}

/// udplbd2 clears all counters, and stores none, when the counters of an answer are others than those of the one before.
#[test]
fn the_same_counters_are_told_before_a_member_exists_and_after_it_is_gone() {
    let mut control = ControlPlane::start();
    let names = |control: &mut ControlPlane| -> BTreeSet<String> {
        control.stats(None).unwrap().into_iter().map(|(name, ..)| name).collect()
    };
    let before = names(&mut control);
    for name in ["lb_mbr_tx_pkt_counter", "lb_mbr_tx_byte_counter"] {
        assert!(before.contains(name), "{before:?}");
        assert_eq!((control.stat(name, 0), control.stat(name, 1023)), (0, 0));
    }
    control.insert(defaults());
    control.insert(vec![source(SENDER), member(2), member(40_000), epoch(0, 0, 0)]);
    control.insert((0..512).map(|at| slot(0, at, [2, 40_000][at as usize % 2])).collect());
    assert_eq!([0, 1].map(|tick| routed(&control.plane, tick)), [Ok(2), Ok(40_000)]);
    assert_eq!((control.stat("lb_mbr_tx_pkt_counter", 2), control.stat("lb_mbr_tx_pkt_counter", 3)), (1, 0));
    assert_eq!(control.stat("lb_mbr_tx_pkt_counter", 40_000), 1);
    assert_eq!(names(&mut control), before);
    assert_eq!(control.clear(""), ErrorCode::EcOk);
    assert_eq!(names(&mut control), before);
    // Minutes later the data plane has forgotten both members, and their counters have not fallen.
    for minute in 1..4 {
        control.plane.tidy(Instant::now() + Duration::from_secs(minute * 61));
    }
    assert!(control.plane.counters().members.is_empty());
    for member in [2, 40_000] {
        assert_eq!(control.stat("lb_mbr_tx_pkt_counter", member), 1, "of member {member}");
    }
    // As udplbd2 does for a member that will come: its counters are there and stay.
    assert_eq!(control.stats(Some(of_member(7))).unwrap().len(), 2);
}

#[test]
fn filters_that_cost_too_much_are_refused() {
    let mut control = ControlPlane::start();
    let filter = |members| {
        let term = Some(Term::AnySet(Set { members }));
        Some(StatsFilters {
            metric_filter: Some(StatsMetricFilter { negated: false, term }),
            ..Default::default()
        })
    };
    let refused = control.stats(filter(vec![StatsMetricFilter::default(); 100_000])).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    let method = Some(Method::Regexp(StringRegexp {}));
    let attribute = Some(Attribute::Name(StatsMetricMatchString { method }));
    let regexp = Some(Term::Match(StatsMetricMatch { attribute }));
    let refused =
        control.stats(filter(vec![StatsMetricFilter { negated: false, term: regexp }])).unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented, "{refused}");
}

#[test]
fn full_tables_fit_and_more_do_not() {
    let mut control = ControlPlane::start();
    let slots = |lb: u128, epoch: u128| {
        (0..512).map(move |at| {
            let matches = [hex(lb), hex(epoch), hex(at)];
            rule("load_balance_calendar_table", &matches, "do_assign_member", &[65_535 - at])
        })
    };
    let all = (0..8).flat_map(|lb| (0..4).map(move |epoch| (lb, epoch)));
    let all = all.flat_map(|(lb, epoch)| slots(lb, 0xffff_fff0 + epoch));
    assert_eq!(control.insert(all.collect()), ErrorCode::EcOk);
    assert_eq!(control.count(Table::Calendar), Table::Calendar.p4_limit());
    assert_eq!(control.insert(vec![slot(9, 0, 0)]), ErrorCode::EcFailedInsertTableRule);
    assert_eq!(control.insert(vec![TableRule::default(); 100_000]), ErrorCode::EcFailedInsertTableRule);

    let million = request(vec![member(1); 1_000_000]);
    let refused = control.runtime.block_on(control.client.insert_table_rule(million)).unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
    assert_eq!(control.count(Table::Calendar), Table::Calendar.p4_limit());
}

#[test]
fn rules_are_refused_when_a_control_plane_with_a_term_programs_the_tables() {
    let mut control = ControlPlane::start();
    assert_eq!(control.insert(vec![slot(0, 0, 1)]), ErrorCode::EcOk);
    drop(control.plane.write(NonZeroU64::new(1)).unwrap());
    assert_eq!(control.insert(vec![slot(0, 1, 1)]), ErrorCode::EcFailedInsertTableRule);
    assert_eq!(control.count(Table::Calendar), 1);
}
