//! Tests of session setup, in which regions are agreed on or refused.

mod common;

use common::{IN, IN_OUT, NONE, ONCE, OUT, Random, grant, param, region_address};
use mrsp::{
    AcceleratorSession, AnnouncedParam, ErrorCode, HostSession, Message, NaaAddress, RegionFlags,
    RegionRequest, RemoteRegion,
    accelerator::{LocalError, RegionRefusal, Rejection, RequestError, SessionLimits},
    address::{AddressPlan, OutOfAddresses},
    codec,
    host::{CallError, HostConfig, PeerError, SetupError},
};

const GIB: u64 = 1 << 30;

fn host(params: &[AnnouncedParam], internals: &[u64]) -> Result<HostSession, SetupError> {
    HostSession::new(&HostConfig::default(), params, internals)
}

fn request(flags: RegionFlags, size: u32) -> RegionRequest {
    let host = RemoteRegion { addr: 0x1000, rkey: 1, size };
    RegionRequest { flags, naa_addr: NaaAddress::ZERO, host }
}

fn ask(limits: SessionLimits, regions: &[RegionRequest]) -> Result<(), Rejection> {
    let mut naa = AcceleratorSession::new(limits);
    let result = naa.handle_message(&codec::encode_request(regions).unwrap()).map(drop);
    assert_eq!(naa.is_failed(), result.is_err());
    result
}

fn refusal(limits: SessionLimits, regions: &[RegionRequest]) -> (RegionRefusal, u8) {
    let rejection = ask(limits, regions).unwrap_err();
    let Some([0, code, 0, 0]) = rejection.reply() else { panic!("no ERR for {rejection:?}") };
    let Rejection::Refused(refusal) = rejection else { panic!("{rejection:?}") };
    (refusal, code)
}

#[test]
fn addresses_are_counted_by_pages() {
    let mut plan = AddressPlan::new(NaaAddress::ZERO);
    let placed: Vec<_> = [1, 0, 4096, 4097, 1].map(|bytes| plan.place(bytes).unwrap().get()).to_vec();
    assert_eq!(placed, [0, 0x1000, 0x1000, 0x2000, 0x4000]);

    let last = NaaAddress::new((1 << 56) - 4096).unwrap();
    assert_eq!(AddressPlan::new(last).place(4097), Err(OutOfAddresses));
    let mut plan = AddressPlan::new(last);
    assert_eq!(plan.place(4096), Ok(last));
    assert_eq!(plan.place(0), Err(OutOfAddresses));
    assert_eq!(NaaAddress::new(1 << 56), None);
}

#[test]
fn host_refuses_what_cannot_be_asked() {
    let many = |n| (0..n).map(|i| param(i, IN, 1)).collect::<Vec<_>>();
    assert!(host(&many(31), &[]).is_ok());
    assert_eq!(host(&many(31), &[1]).unwrap_err(), SetupError::TooManyRegions { asked: 32, limit: 31 });
    assert_eq!(host(&[], &[1]).unwrap_err(), SetupError::NoParameters);
    assert!(host(&[param(0, IN, 2 * GIB)], &[2 * GIB]).is_ok());
    for bytes in [2 * GIB + 1, 1 << 32, u64::MAX] {
        let error = SetupError::TooLarge { region: 0, bytes };
        assert_eq!(host(&[param(0, IN, bytes)], &[]).unwrap_err(), error);
        let error = SetupError::TooLarge { region: 1, bytes };
        assert_eq!(host(&[param(0, IN, 0)], &[bytes]).unwrap_err(), error);
    }
    for flags in [RegionFlags::INTERNAL, RegionFlags::from_bits(0x10)] {
        let error = SetupError::Flags { param: 0, flags };
        assert_eq!(host(&[param(0, flags, 1)], &[]).unwrap_err(), error);
    }
    let end = |size| AnnouncedParam { addr: u64::MAX - 9, ..param(0, IN, size) };
    assert!(host(&[end(10)], &[]).is_ok());
    assert_eq!(host(&[end(11)], &[]).unwrap_err(), SetupError::Wraps { param: 0 });
    let config = HostConfig { max_regions: 255, ..HostConfig::default() };
    let mut largest = HostSession::new(&config, &many(255), &[]).unwrap();
    assert_eq!(largest.start().unwrap().len(), mrsp::region::message_buffer_bytes(255));
}

#[test]
fn single_send_implies_input() {
    let session = host(&[param(0, ONCE | OUT, 1)], &[]).unwrap();
    assert_eq!(session.requests()[0].flags.bits(), 0x0e);
}

#[test]
fn accelerator_refuses_with_the_right_code() {
    let limits =
        SessionLimits { max_regions: 3, max_region_bytes: 100, max_session_bytes: 150, max_slots: 1 };
    assert_eq!(ask(limits, &[request(IN, 100), request(OUT, 50), request(NONE, 0)]), Ok(()));

    let (why, code) = refusal(limits, &[request(IN, 1); 4]);
    assert_eq!((why, code), (RegionRefusal::TooManyRegions { asked: 4, limit: 3 }, 3));
    assert_eq!(refusal(limits, &[]), (RegionRefusal::NoParameters, 3));
    assert_eq!(refusal(limits, &[request(RegionFlags::INTERNAL, 1)]), (RegionRefusal::NoParameters, 3));
    let (why, code) = refusal(limits, &[request(IN, 1), request(IN, 101)]);
    assert_eq!((why, code), (RegionRefusal::RegionTooLarge { region: 1, bytes: 101, limit: 100 }, 1));
    let (why, code) = refusal(limits, &[request(IN, 100), request(IN, 51)]);
    assert_eq!((why, code), (RegionRefusal::SessionTooLarge { limit: 150 }, 1));

    for other in [IN, OUT, ONCE] {
        let flags = RegionFlags::INTERNAL | other;
        let (why, code) = refusal(limits, &[request(IN, 1), request(flags, 1)]);
        assert_eq!((why, code), (RegionRefusal::Contradiction { region: 1, flags }, 2));
    }
    let boundless = SessionLimits { max_region_bytes: u64::MAX, max_session_bytes: u64::MAX, ..limits };
    assert!(ask(boundless, &[request(IN, 1 << 31); 3]).is_ok());
    let (why, code) = refusal(boundless, &[request(IN, u32::MAX)]);
    assert_eq!(
        (why, code),
        (RegionRefusal::RegionTooLarge { region: 0, bytes: u32::MAX, limit: 1 << 31 }, 1)
    );
}

#[test]
fn accelerator_refuses_addresses_that_wrap() {
    let limits = SessionLimits::default();
    let last = NaaAddress::new((1 << 56) - 10).unwrap();
    assert!(ask(limits, &[RegionRequest { naa_addr: last, ..request(IN, 10) }]).is_ok());
    let (why, code) = refusal(limits, &[RegionRequest { naa_addr: last, ..request(IN, 11) }]);
    assert_eq!((why, code), (RegionRefusal::NaaAddressWraps { region: 0 }, 1));

    let at_end = |flags, size| {
        let host = RemoteRegion { addr: u64::MAX - 9, rkey: 1, size };
        RegionRequest { host, ..request(flags, 0) }
    };
    assert!(ask(limits, &[at_end(IN, 10)]).is_ok());
    assert_eq!(refusal(limits, &[at_end(IN, 11)]), (RegionRefusal::HostAddressWraps { region: 0 }, 2));
    // The host address of an internal region is not checked, because the accelerator never writes an internal region to
    // the host.
    assert!(ask(limits, &[request(IN, 1), at_end(RegionFlags::INTERNAL, 11)]).is_ok());
}

#[test]
fn accelerator_tolerates_odd_regions() {
    let unknown = RegionFlags::from_bits(0xf0);
    let regions = [request(RegionFlags::INTERNAL | unknown, 1), request(unknown, 0), request(ONCE, 5)];
    let mut naa = AcceleratorSession::new(SessionLimits::default());
    let aar = codec::encode_request(&regions).unwrap();
    assert_eq!(naa.handle_message(&aar).unwrap(), regions);
    let advertisement = naa.allocated(&[region_address(0), region_address(1)]).unwrap();
    let Ok(Message::Advertisement(announced)) = codec::decode(&advertisement) else { panic!() };
    assert_eq!(announced.iter().map(|region| region.size).collect::<Vec<_>>(), [0, 5]);
}

#[test]
fn allocation_may_fail() {
    let mut session = host(&[param(0, IN, 1)], &[]).unwrap();
    let mut naa = AcceleratorSession::new(SessionLimits::default());
    naa.handle_message(&session.start().unwrap()).unwrap();
    let error = naa.allocated(&[]).unwrap_err();
    assert_eq!(error, LocalError::RegionCount { given: 0, params: 1 });
    let message = naa.allocation_failed(ErrorCode::Memory).unwrap();
    assert!(naa.is_failed());
    assert_eq!(session.handle_message(&message), Err(PeerError::Refused(ErrorCode::Memory)));
    assert!(session.is_failed());
    assert!(matches!(naa.allocation_failed(ErrorCode::Memory), Err(LocalError::State { .. })));
}

#[test]
fn host_checks_the_advertisement() {
    let params = [param(0, IN, 100), param(1, OUT, 200)];
    let fits = [100, 200].map(|size| RemoteRegion { addr: 0, rkey: 7, size });
    let answer = |regions: &[RemoteRegion]| {
        let mut session = host(&params, &[64]).unwrap();
        session.start().unwrap();
        let result = session.handle_message(&codec::encode_advertisement(regions).unwrap());
        assert_eq!((session.is_ready(), session.is_failed()), (result.is_ok(), result.is_err()));
        result
    };
    assert_eq!(answer(&fits), Ok(()));
    assert_eq!(answer(&[RemoteRegion { size: 101, ..fits[0] }, fits[1]]), Ok(()));
    let count = |announced| Err(PeerError::RegionCount { asked: 2, announced });
    assert_eq!(answer(&[]), count(0));
    assert_eq!(answer(&fits[..1]), count(1));
    assert_eq!(answer(&[fits[0], fits[1], fits[1]]), count(3));
    let small = PeerError::RegionTooSmall { param: 1, asked: 200, announced: 199 };
    assert_eq!(answer(&[fits[0], RemoteRegion { size: 199, ..fits[1] }]), Err(small));
    let wraps = RemoteRegion { addr: u64::MAX - 98, ..fits[0] };
    assert_eq!(answer(&[wraps, fits[1]]), Err(PeerError::RegionWraps { param: 0 }));
}

#[test]
fn messages_out_of_order() {
    let mut session = host(&[param(0, IN_OUT, 8)], &[]).unwrap();
    let aar = session.start().unwrap();
    assert!(matches!(session.start(), Err(CallError::State { .. })));
    let mut naa = AcceleratorSession::new(SessionLimits::default());
    let advertisement = grant(&mut naa, &aar);
    session.handle_message(&advertisement).unwrap();

    // A session fails if it receives the setup message of its peer a second time.
    let error = session.handle_message(&advertisement).unwrap_err();
    assert_eq!(error, PeerError::UnexpectedMessage { message: "an advertisement", state: "ready" });
    assert!(session.is_failed() && session.peer_regions().is_none());
    let rejection = naa.handle_message(&aar).unwrap_err();
    assert!(matches!(rejection, Rejection::Unexpected { .. }));
    assert_eq!(rejection.reply(), Some([0, 3, 0, 0]));
    assert!(naa.is_failed() && naa.regions().is_empty());

    // A host's session fails if an advertisement arrives before the host has sent the AAR.
    let mut session = host(&[param(0, IN, 8)], &[]).unwrap();
    assert!(matches!(session.handle_message(&advertisement), Err(PeerError::UnexpectedMessage { .. })));
    // An accelerator's session fails if an advertisement, an ERR or a call arrives before the AAR.
    let mut naa = AcceleratorSession::new(SessionLimits::default());
    assert!(matches!(naa.handle_message(&advertisement), Err(Rejection::Unexpected { .. })));
    let mut naa = AcceleratorSession::new(SessionLimits::default());
    let rejection = naa.handle_message(&[0, 1, 0, 0]).unwrap_err();
    assert_eq!((rejection.reply(), rejection), (None, Rejection::HostError(ErrorCode::Memory)));
    let mut naa = AcceleratorSession::new(SessionLimits::default());
    assert!(matches!(naa.handle_request(0x81), Err(RequestError::Unexpected { .. })));
}

#[test]
fn messages_round_trip() {
    let mut random = Random::seeded(0x5eed_0001);
    for _ in 0..2000 {
        let count = random.below(256) as usize;
        let requests: Vec<_> = (0..count)
            .map(|_| RegionRequest {
                flags: RegionFlags::from_bits(random.next() as u8),
                naa_addr: NaaAddress::truncate(random.any()),
                host: RemoteRegion {
                    addr: random.any(),
                    rkey: random.any() as u32,
                    size: random.any() as u32,
                },
            })
            .collect();
        let bytes = codec::encode_request(&requests).unwrap();
        let Ok(Message::AdvertiseAndRequest(entries)) = codec::decode(&bytes) else { panic!() };
        assert!(entries.iter().eq(requests.iter().copied()) && entries.len() == count);

        let regions: Vec<_> = requests.iter().map(|request| request.host).collect();
        let bytes = codec::encode_advertisement(&regions).unwrap();
        let Ok(Message::Advertisement(entries)) = codec::decode(&bytes) else { panic!() };
        assert!(entries.iter().eq(regions.iter().copied()) && entries.is_empty() == (count == 0));
    }
    assert!(codec::encode_request(&[request(IN, 1); 256]).is_err());
}
