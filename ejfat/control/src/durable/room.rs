//! Whether the configuration has room for what is stored: it may have become smaller since.

use super::Durable;
use crate::{
    calendar::MOST_SLOTS,
    config::Config,
    reservation::{ReservationId, shown},
    session::SessionId,
    token::TokenId,
};

/// The configuration has less room than what is stored takes. Nothing is wrong with either.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// A load balancer that is reserved is not in the configuration any more.
    #[error(
        "load balancer {lb} is reserved, by reservation {reservation}, {}, and not in load_balancers any more: configure it again, \
         and free the reservation before you remove it", shown(.name)
    )]
    LoadBalancer {
        /// The number of the load balancer that is missing in the configuration.
        lb: u8,
        /// The number of the reservation that has the load balancer.
        reservation: ReservationId,
        /// The name of the reservation. The text is empty if the reservation has no name.
        name: String,
    },
    /// A worker session has slot demands for slots that calendars do not have any more.
    #[error(
        "session {session} has slots up to number {} for itself, and slots is {slots}: configure {} again, and change the slot \
         demands before you lower it", .end - 1, .end.next_power_of_two()
    )]
    Slots {
        /// The number of the worker session that has the slot demands.
        session: SessionId,
        /// The highest slot that the worker session demands, plus 1.
        end: u32,
        /// The configured number of slots of a calendar.
        slots: u32,
    },
    /// There are more worker sessions than the configuration allows.
    #[error(
        "{found} workers are registered, and most_members is {most}: configure at least {found} again, and stop workers before you \
         lower it"
    )]
    Members {
        /// The number of stored worker sessions, of all load balancers together.
        found: usize,
        /// The most worker sessions that the configuration allows, of all load balancers together.
        most: u16,
    },
    /// There are more senders of one IP version than the configuration allows.
    #[error(
        "there are {found} {version} senders, and most_senders is {most}: configure at least {found} again, and remove senders \
         before you lower it"
    )]
    Senders {
        /// The IP version of which there are too many senders: `IPv4` or `IPv6`.
        version: &'static str,
        /// The number of stored senders of this IP version, of all load balancers together.
        found: usize,
        /// The most senders of one IP version that the configuration allows, of all load balancers together.
        most: usize,
    },
    /// There are more tokens that `CreateToken` made than the configuration allows.
    #[error(
        "{found} tokens were made, and most_tokens is {most}: configure at least {found} again, and revoke tokens before you lower it"
    )]
    Tokens {
        /// The number of stored tokens that `CreateToken` made.
        found: usize,
        /// The most tokens made by `CreateToken` that the configuration allows.
        most: usize,
    },
}

impl Durable {
    /// Checks that the configuration has room for all of it.
    pub(crate) fn check_room(&self, config: &Config) -> Result<(), NoRoom> {
        let lost = |lb| config.load_balancer(lb).is_none();
        if let Some(reservation) = self.reservations.values().find(|of| lost(of.lb)) {
            let (lb, name) = (reservation.lb.get(), reservation.name.clone());
            return Err(NoRoom::LoadBalancer { lb, reservation: reservation.id, name });
        }
        for session in self.sessions.values() {
            let ends = session.slots.iter().filter_map(|range| range.first.checked_add(range.count));
            // Slots that no calendar has are no matter of the configuration.
            let end = ends.max().filter(|end| (config.slots + 1..=MOST_SLOTS).contains(end));
            if let Some(end) = end {
                return Err(NoRoom::Slots { session: session.id, end, slots: config.slots });
            }
        }
        let (found, most) = (self.sessions.len(), config.most_members);
        if found > usize::from(most) {
            return Err(NoRoom::Members { found, most });
        }
        for (version, is_v4) in [("IPv4", true), ("IPv6", false)] {
            let found = self.senders.iter().filter(|sender| sender.address.is_ipv4() == is_v4).count();
            if found > config.most_senders {
                return Err(NoRoom::Senders { version, found, most: config.most_senders });
            }
        }
        let (found, most) = (self.tokens.created_within(TokenId::ROOT), config.most_tokens);
        if found > most { Err(NoRoom::Tokens { found, most }) } else { Ok(()) }
    }
}
