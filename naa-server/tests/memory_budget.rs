//! Tests of the memory of sessions: the charges for memory, and the conditions under which slices of memory are made.

#[path = "common/device.rs"]
mod device;

use std::sync::Arc;

use device::DeviceModel;
use mrsp::{RegionFlags, U24};
use naa_server::{
    call::{Call, CallFailure, SessionRegion, SessionRegions, Stop},
    memory_budget::{Account, Allocation, AllocationError, MemoryBudget, Shares},
};
use verbs::{Access, Context};

#[test]
fn accounts_are_of_whole_pages_and_end_with_the_allocation() {
    let budget = MemoryBudget::new(10 * 4096);
    let quota = budget.quota(4 * 4096);
    let one = quota.allocate(0).unwrap();
    let two = quota.allocate(4097).unwrap();
    assert_eq!((one.len(), two.len(), quota.used(), budget.used()), (0, 4097, 3 * 4096, 3 * 4096));
    assert!(two.bytes().unwrap().iter().all(|&byte| byte == 0));
    assert!(matches!(
        quota.allocate(4097),
        Err(AllocationError::Session { asked: 8192, left: 4096, limit: 16384 })
    ));
    let rest = budget.allocate(7 * 4096).unwrap();
    assert!(matches!(quota.allocate(1), Err(AllocationError::Server { left: 0, .. })));
    // An allocation that the server refuses is not charged to the session.
    assert_eq!(quota.used(), 3 * 4096);
    drop((two, rest));
    assert_eq!((quota.used(), budget.used()), (4096, 4096));
    drop(quota);
    drop(one);
    assert_eq!(budget.used(), 0);
}

#[test]
fn one_peer_leaves_files_of_regions_to_others() {
    let budget = MemoryBudget::divided(Shares::undivided(1 << 20), Some(Shares::new(32, 16)));
    let [hog, other] = [Account::default(), Account::default()];
    let sessions = [budget.quota_of(&hog, 1 << 20), budget.quota_of(&hog, 1 << 20)];
    let held: Vec<_> = (0..16).map(|at| sessions[at % 2].allocate(1).unwrap()).collect();
    let refused = sessions[0].allocate(1).unwrap_err();
    assert!(matches!(refused, AllocationError::Files { left: 0, limit: 16 }), "{refused}");
    assert_eq!(hog.used(), 16 * 4096, "a refusal takes no bytes");
    let _others = budget.quota_of(&other, 1 << 20).allocate(1).unwrap();
    drop(held);
    sessions[0].allocate(1).unwrap();
}

#[test]
fn absurd_sizes_are_refused() {
    let budget = MemoryBudget::new(u64::MAX);
    let _one = budget.allocate(1).unwrap();
    for len in [u64::MAX, u64::MAX - 4096, i64::MAX as u64, 1 << 60] {
        let error = budget.quota(u64::MAX).allocate(len).unwrap_err();
        assert!(matches!(error, AllocationError::Map(_)), "{error}");
    }
    assert_eq!(budget.used(), 4096);
}

#[test]
fn accounts_hold_between_threads() {
    let budget = MemoryBudget::new(8 * 4096);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let _held = (budget.allocate(4096), budget.allocate(2 * 4096));
                    assert!(budget.used() <= budget.limit());
                }
            });
        }
    });
    assert_eq!(budget.used(), 0);
}

#[test]
fn bytes_are_seen_only_while_no_peer_has_access() {
    let device = Arc::new(DeviceModel::default());
    let pd = Context::new(device.clone()).alloc_pd().unwrap();
    let mut allocation = MemoryBudget::new(1 << 20).allocate(8192).unwrap();
    assert!(
        allocation.bytes_mut().is_some() && allocation.rkey().is_none() && allocation.sge(0, 1).is_none()
    );

    allocation.register(&pd, Access::ALL).unwrap();
    assert_eq!(device.access(&allocation), Some(Access::LOCAL));
    assert!(allocation.bytes_mut().is_some());

    allocation.grant(Access::ALL).unwrap();
    assert_eq!(device.access(&allocation), Some(Access::ALL));
    assert!(allocation.bytes().is_none() && allocation.bytes_mut().is_none());

    allocation.revoke().unwrap();
    assert_eq!(device.access(&allocation), Some(Access::LOCAL));
    assert!(allocation.bytes().is_some());

    // After a failed `grant` or `revoke`, peers may have access to the memory, so `bytes` returns no slice.
    device.state().broken = true;
    assert!(allocation.grant(Access::REMOTE_WRITE).is_err());
    assert!(allocation.bytes().is_none());
    assert!(allocation.revoke().is_err());
    assert!(allocation.bytes().is_none());
    device.state().broken = false;
    allocation.revoke().unwrap();
    assert!(allocation.bytes().is_some());

    drop(allocation);
    assert!(device.state().regions.is_empty());
}

impl DeviceModel {
    fn access(&self, allocation: &Allocation) -> Option<Access> {
        Some(self.state().regions.get(&allocation.rkey()?)?.1)
    }
}

/// Makes a device that does not revoke access.
fn keeping() -> DeviceModel {
    let mut device = DeviceModel::default();
    device.attr.revokes = false;
    device
}

#[test]
fn memory_that_peers_may_still_write_is_seen_as_a_copy_only() {
    let pd = Context::new(Arc::new(keeping())).alloc_pd().unwrap();
    let quota = MemoryBudget::new(1 << 20).quota(1 << 20);
    let mut written = quota.allocate(100).unwrap();
    written.bytes_mut().unwrap().fill(1);
    written.register(&pd, Access::REMOTE_WRITE).unwrap();
    assert!(written.is_in_reach() && written.bytes().is_none() && written.bytes_mut().is_none());
    // The working copy has the same length as the allocation `written`, and is also charged to the session.
    let used = quota.used();
    written.work_on(quota.allocate(100).unwrap());
    assert_eq!(quota.used(), 2 * used);
    written.grant(Access::REMOTE_WRITE).unwrap();
    assert!(written.bytes_mut().is_none(), "it is the peer's now");
    written.revoke().unwrap();
    let range = written.addr()..written.addr() + 100;
    let bytes = written.bytes_mut().unwrap();
    assert!(!range.contains(&(bytes.as_ptr() as u64)) && *bytes == [1; 100]);
    bytes.fill(2);
    // Only `settle` copies the bytes of the working copy to the memory of `written`. Each call of `bytes_mut` copies
    // the memory of `written` to the working copy.
    assert_eq!(written.bytes_mut().unwrap(), [1; 100]);
    written.bytes_mut().unwrap().fill(3);
    written.settle();
    assert_eq!(written.bytes_mut().unwrap(), [3; 100]);
    assert!(written.bytes().is_none());
    // Peers never had the right to write the allocation `sent`.
    let mut sent = quota.allocate(100).unwrap();
    sent.register(&pd, Access::LOCAL).unwrap();
    let addr = sent.addr();
    assert!(!sent.is_in_reach() && sent.bytes_mut().unwrap().as_ptr() as u64 == addr);
    // After deregistration, peers cannot reach the memory, so `bytes` returns a slice of the memory itself.
    written.deregister();
    assert_eq!(written.bytes().unwrap(), [3; 100]);
}

#[test]
fn what_is_sent_is_not_written_meanwhile() {
    let device = Arc::new(DeviceModel::default());
    let pd = Context::new(device).alloc_pd().unwrap();
    let quota = MemoryBudget::new(1 << 20).quota(1 << 20);
    let (mut one, mut other) = (quota.allocate(8192).unwrap(), quota.allocate(1).unwrap());
    one.register(&pd, Access::LOCAL).unwrap();
    assert!(one.sge(0, 1).is_none(), "no send was begun");
    quota.sends().begin();
    quota.sends().begin();
    assert!(one.sge(8192, 0).is_some() && one.sge(4096, 4096).is_some());
    assert!(one.sge(4096, 4097).is_none() && one.sge(u64::MAX, 1).is_none());
    assert!(other.sge(0, 1).is_none(), "it is not registered");
    assert!(one.bytes_mut().is_none() && other.bytes_mut().is_none() && one.bytes().is_some());
    assert!(!quota.sends().complete());
    assert!(one.bytes_mut().is_none());
    assert!(quota.sends().complete());
    assert!(one.bytes_mut().is_some() && other.bytes_mut().is_some() && one.sge(0, 1).is_none());
}

#[test]
fn a_call_on_a_region_open_to_peers_is_refused() {
    let pd = Context::new(Arc::new(DeviceModel::default())).alloc_pd().unwrap();
    let budget = MemoryBudget::new(1 << 20);
    let mut regions: SessionRegions = [RegionFlags::INPUT, RegionFlags::OUTPUT]
        .map(|flags| SessionRegion { flags, allocation: budget.allocate(16).unwrap() })
        .into_iter()
        .collect();
    regions[0].allocation.register(&pd, Access::REMOTE_WRITE).unwrap();
    assert!(Call::new(&mut regions, U24::ZERO, &Stop::never()).is_ok());
    regions[0].allocation.grant(Access::REMOTE_WRITE).unwrap();
    assert!(matches!(Call::new(&mut regions, U24::ZERO, &Stop::never()), Err(CallFailure::Internal(_))));
}
