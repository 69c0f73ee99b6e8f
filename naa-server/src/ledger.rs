//! A ledger counts the memory, or the open files, that sessions and source networks have in use on a server.
//!
//! Each byte or file that a session has in use is charged to the session, to its source network and to the server until
//! the [`Charge`] is dropped. The server cannot take memory away from a source network while the memory is in use. One
//! source network may have at most [`Shares::per_peer`] bytes or files. Only source networks that have few bytes or
//! files in use may take from the [reserve](Shares::reserve). The reserve thus leaves memory or files for source
//! networks that come later.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The reason for which memory was not allocated.
#[derive(Debug, thiserror::Error)]
pub enum AllocationError {
    /// The session would exceed its quota.
    #[error(
        "the session asked for {asked} bytes, but {left} of the {limit} it may have are left; \
         map fewer or smaller regions, or raise the server's limit per session"
    )]
    Session {
        /// The number of bytes that were requested. If a region was requested, this number is the size of the region,
        /// rounded up to whole pages.
        asked: u64,
        /// The number of bytes that the session may still get.
        left: u64,
        /// The session's quota: the maximum number of bytes of memory that the session may have.
        limit: u64,
    },
    /// The sessions of one source network would exceed the limit of this source network.
    #[error(
        "a session asked for {asked} bytes, but {left} of the {limit} that its address may have are left; \
         end other sessions of this address, or raise the server's memory limit per peer"
    )]
    Peer {
        /// The number of bytes that were requested. If a region was requested, this number is the size of the region,
        /// rounded up to whole pages.
        asked: u64,
        /// The number of bytes that the source network may still get.
        left: u64,
        /// The maximum number of bytes that one source network may have.
        limit: u64,
    },
    /// The memory that is left on the server is less than the requested memory, or is reserved for other source
    /// networks.
    #[error(
        "a session asked for {asked} bytes, but {left} of the server's {limit} are left for its address; \
         try again when other sessions have ended, or raise the server's memory limit"
    )]
    Server {
        /// The number of bytes that were requested. If a region was requested, this number is the size of the region,
        /// rounded up to whole pages.
        asked: u64,
        /// The number of bytes that the server would still give to this source network.
        left: u64,
        /// The maximum number of bytes that the server has for all source networks together.
        limit: u64,
    },
    /// The Linux kernel provided no memory.
    #[error("the server's machine: {0}")]
    Map(#[from] io::Error),
    /// The Linux kernel provided no file for the pages of a region.
    #[error("the server's machine has no file for a region: {0}; raise the server's `ulimit -n`")]
    File(io::Error),
    /// The sessions of one source network would exceed the limit of open files of this source network.
    #[error(
        "where the server has kernels, each region needs a file and each session's process two; one address may have {limit} \
         files and {left} of them are left: map fewer regions, end other sessions of this address, or raise the server's \
         `ulimit -n` or its memory limit per peer"
    )]
    Files {
        /// The number of files that the source network may still open.
        left: u64,
        /// The maximum number of files that the sessions of one source network may have open.
        limit: u64,
    },
    /// The files that the server may still open are too few, or are reserved for other source networks.
    #[error(
        "where the server has kernels, each region needs a file and each session's process two; {left} of the server's \
         {limit} files are left for your address: try again when other sessions have ended, or raise the server's `ulimit -n`"
    )]
    ServersFiles {
        /// The number of files that the server would still open for this source network.
        left: u64,
        /// The maximum number of files that all sessions of the server may have open.
        limit: u64,
    },
}

impl AllocationError {
    /// Converts an error of a ledger that counts files to an error whose text is about open files. The conversion is
    /// necessary because a ledger returns errors whose text is about bytes.
    pub(crate) fn of_files(self) -> Self {
        match self {
            Self::Session { left, limit, .. } | Self::Peer { left, limit, .. } => Self::Files { left, limit },
            Self::Server { left, limit, .. } => Self::ServersFiles { left, limit },
            other => other,
        }
    }
}

/// The division of a server's resource among source networks. The fields are numbers of bytes if the resource is
/// memory, and numbers of files if the resource is open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// The maximum number of bytes or files that all source networks may have together.
    pub total: u64,
    /// The maximum number of bytes or files that one source network may have.
    pub per_peer: u64,
    /// The reserve, which is the part of `total` that is only for source networks that have few bytes or files in use.
    pub reserve: u64,
    /// A source network may take bytes or files from the reserve only if it then has at most `first` bytes or files in
    /// use. The new bytes or files are included in this number.
    pub first: u64,
}

/// The number of new source networks for which the reserve of memory is enough, if each of them takes [`Shares::first`]
/// bytes.
const FIRST_PEERS: u64 = 16;

impl Shares {
    /// Makes shares with an eighth of `total` as the reserve.
    pub const fn new(total: u64, per_peer: u64) -> Self {
        let reserve = total / 8;
        Self { total, per_peer, reserve, first: reserve / FIRST_PEERS }
    }

    /// Makes shares that let a single source network have the whole `total`.
    pub const fn undivided(total: u64) -> Self {
        Self { total, per_peer: total, reserve: 0, first: 0 }
    }
}

/// The number of bytes or files that a session, a source network or the server has in use.
#[derive(Debug, Default)]
pub(crate) struct Meter(AtomicU64);

impl Meter {
    pub(crate) fn used(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds `bytes` to the bytes in use if the sum is at most `limit`, and returns the sum. If the sum would exceed
    /// `limit`, nothing is added, and the error is the number of bytes that are left below `limit`.
    fn take(&self, bytes: u64, limit: u64) -> Result<u64, u64> {
        let add = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= limit);
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(before) => Ok(before + bytes),
            Err(used) => Err(limit.saturating_sub(used)),
        }
    }

    fn give_back(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The number of bytes or files that a server has in use, and the division of this resource among source networks.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) shares: Shares,
    pub(crate) server: Meter,
}

/// The two counts to which the charges of a session are added besides the server's count. `session` is the session's
/// own count, `limit` is the limit for this count, and `peer` is the count of the source network.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) session: Arc<Meter>,
    pub(crate) limit: u64,
    pub(crate) peer: Arc<Meter>,
}

/// A charge for bytes or files that are in use. Dropping the value ends the charge.
#[derive(Debug)]
pub(crate) struct Charge {
    ledger: Arc<Ledger>,
    /// The two counts to which the charge is added besides the server's count: the session's and its source network's.
    /// If this field is `None`, only the server is charged.
    owner: Option<Owner>,
    bytes: u64,
}

impl Ledger {
    pub(crate) fn new(shares: Shares) -> Arc<Self> {
        Arc::new(Self { shares, server: Meter::default() })
    }

    /// Charges `bytes` bytes or files to the server, and to the session and the source network of `owner`. If `owner`
    /// is `None`, only the server is charged.
    ///
    /// # Errors
    /// Fails with [`AllocationError::Session`] if the session has fewer than `bytes` bytes or files left. Fails with
    /// [`AllocationError::Peer`] if its source network has fewer left, and with [`AllocationError::Server`] if the
    /// server has fewer left. If this function fails, nothing is charged.
    pub(crate) fn charge(
        self: &Arc<Self>,
        owner: Option<&Owner>,
        bytes: u64,
    ) -> Result<Charge, AllocationError> {
        let Shares { total, per_peer, reserve, first } = self.shares;
        let asked = bytes;
        let mut most = total;
        if let Some(Owner { session, limit, peer }) = owner {
            let limit = *limit;
            session.take(bytes, limit).map_err(|left| AllocationError::Session { asked, left, limit })?;
            match peer.take(bytes, per_peer) {
                Ok(has) if has <= first => {}
                Ok(_) => most = total.saturating_sub(reserve),
                Err(left) => {
                    session.give_back(bytes);
                    return Err(AllocationError::Peer { asked, left, limit: per_peer });
                }
            }
        }
        if let Err(left) = self.server.take(bytes, most) {
            if let Some(Owner { session, peer, .. }) = owner {
                session.give_back(bytes);
                peer.give_back(bytes);
            }
            return Err(AllocationError::Server { asked, left, limit: total });
        }
        Ok(Charge { ledger: self.clone(), owner: owner.cloned(), bytes })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.ledger.server.give_back(self.bytes);
        if let Some(Owner { session, peer, .. }) = &self.owner {
            session.give_back(self.bytes);
            peer.give_back(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(peer: &Arc<Meter>) -> Owner {
        Owner { session: Arc::default(), limit: u64::MAX, peer: peer.clone() }
    }

    #[test]
    fn a_peer_with_many_sessions_leaves_the_others_half_and_newcomers_the_reserve() {
        let ledger = Ledger::new(Shares::new(1600, 800));
        let [hog, other, newcomer]: [Arc<Meter>; 3] = Default::default();
        let mut held = Vec::new();
        for _ in 0..8 {
            held.push(ledger.charge(Some(&session(&hog)), 100).unwrap());
        }
        let refused = ledger.charge(Some(&session(&hog)), 1);
        assert!(matches!(refused, Err(AllocationError::Peer { asked: 1, left: 0, limit: 800 })));
        // The second source network gets all bytes that are left except the reserve of 200.
        held.push(ledger.charge(Some(&session(&other)), 600).unwrap());
        let refused = ledger.charge(Some(&session(&other)), 1);
        assert!(matches!(refused, Err(AllocationError::Server { asked: 1, left: 0, limit: 1600 })));
        // A new source network gets its first 12 bytes from the reserve.
        assert_eq!(ledger.shares.first, 12);
        held.push(ledger.charge(Some(&session(&newcomer)), 12).unwrap());
        assert!(ledger.charge(Some(&session(&newcomer)), 1).is_err());
        drop(held);
        let used = [&ledger.server, &*hog, &*other, &*newcomer].map(Meter::used);
        assert_eq!(used, [0; 4]);
    }

    #[test]
    fn a_refusal_takes_from_no_account() {
        let ledger = Ledger::new(Shares::undivided(100));
        let peer = Arc::<Meter>::default();
        let owner = Owner { limit: 50, ..session(&peer) };
        assert!(matches!(ledger.charge(Some(&owner), 51), Err(AllocationError::Session { left: 50, .. })));
        let _held = ledger.charge(None, 80).unwrap();
        assert!(matches!(ledger.charge(Some(&owner), 30), Err(AllocationError::Server { left: 20, .. })));
        assert_eq!([owner.session.used(), peer.used(), ledger.server.used()], [0, 0, 80]);
    }
}
