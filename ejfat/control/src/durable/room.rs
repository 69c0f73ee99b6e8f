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
    #[error(
        "load balancer {lb} is reserved, by reservation {reservation}, {}, and not in load_balancers any more: configure it again, \
         and free the reservation before you remove it", shown(.name)
    )]
    LoadBalancer { lb: u8, reservation: ReservationId, name: String },
    #[error(
        "session {session} has slots up to number {} for itself, and slots is {slots}: configure {} again, and change the slot \
         demands before you lower it", .end - 1, .end.next_power_of_two()
    )]
    Slots { session: SessionId, end: u32, slots: u32 },
    #[error(
        "{found} workers are registered, and most_members is {most}: configure at least {found} again, and stop workers before you \
         lower it"
    )]
    Members { found: usize, most: u16 },
    #[error(
        "there are {found} {version} senders, and most_senders is {most}: configure at least {found} again, and remove senders \
         before you lower it"
    )]
    Senders { version: &'static str, found: usize, most: usize },
    #[error(
        "{found} tokens were made, and most_tokens is {most}: configure at least {found} again, and revoke tokens before you lower it"
    )]
    Tokens { found: usize, most: usize },
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
