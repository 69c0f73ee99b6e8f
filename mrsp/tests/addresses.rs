//! Tests of accelerator addresses that the host's program chooses.

use mrsp::{
    AnnouncedParam, HostSession, RegionFlags,
    host::{HostConfig, SetupError},
    region::NaaAddress,
};

#[test]
fn given_addresses_are_asked_for_in_the_order_of_the_wire() {
    let param = AnnouncedParam { flags: RegionFlags::INPUT, addr: 0x1000, rkey: 7, size: 64 };
    let mut session = HostSession::new(&HostConfig::default(), &[param], &[4096]).unwrap();
    let last = NaaAddress::new(NaaAddress::END - 1).unwrap();
    let beyond = session.place(&[NaaAddress::ZERO, last]);
    assert!(matches!(beyond, Err(SetupError::OutOfAddresses(_))));
    let [first, second] = [0x12_3456_789a_bcde, 0x7000].map(|address| NaaAddress::new(address).unwrap());
    session.place(&[first, second]).unwrap();
    let request = session.start().unwrap();
    // The header of an AAR has 4 bytes, and each entry of an AAR has 24 bytes. The first byte of an entry contains the
    // flags, and the next 7 bytes contain the accelerator address.
    assert_eq!(request[4..12], [4, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]);
    assert_eq!(request[28..36], [1, 0, 0, 0, 0, 0, 0x70, 0]);
}
