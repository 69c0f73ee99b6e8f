//! A client that makes random calls, and records which ones are acknowledged.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use ejfat_client::{ClientError, Connection};
use proto::loadbalancer::{
    RegisterRequest, ReserveLoadBalancerRequest, TokenPermission, TokenSelector,
    token_permission::{PermissionType, ResourceType},
    token_selector,
};
use simnet::Random;

use crate::{
    RESERVATIONS,
    known::{Known, Reservation, Thing, add_dead, state},
};

/// How many senders and sessions of a reservation, and tokens, a client has at most.
const MOST: usize = 12;

pub(crate) struct Client<'a> {
    pub(crate) connection: Connection,
    pub(crate) random: Random,
    pub(crate) known: &'a mut Known,
    /// The number of the next address. No address is used twice.
    pub(crate) ports: &'a AtomicU64,
}

type Step = Result<(), ClientError>;

impl Client<'_> {
    /// Makes one call.
    ///
    /// # Errors
    /// If no answer comes; the control plane may have carried out the call nevertheless.
    pub(crate) fn step(&mut self) -> Step {
        let reservations = self.known.reservations.len();
        if reservations == 0 || (reservations < RESERVATIONS && self.random.chance(100_000)) {
            return self.reserve();
        }
        let at = self.random.below(reservations as u64) as usize;
        match self.random.below(100) {
            0..3 => self.free(at),
            3..30 => self.register(at),
            30..45 => self.deregister(at),
            45..60 => self.add_sender(at),
            60..70 => self.remove_sender(at),
            70..82 => self.create_token(),
            82..90 => self.revoke(),
            _ => self.send_state(at),
        }
    }

    /// Returns an address that no other call uses.
    fn address(&self) -> Ipv4Addr {
        let [_, a, b, c] = (self.ports.fetch_add(1, Relaxed) as u32).to_be_bytes();
        Ipv4Addr::new(127, 100 + a % 100, b, c)
    }

    fn reserve(&mut self) -> Step {
        let sender = IpAddr::from(self.address());
        let made = self.connection.reserve(ReserveLoadBalancerRequest {
            name: "run".into(),
            sender_addresses: vec![sender.to_string()],
            ..Default::default()
        })?;
        self.known.reservations.push(Thing::new(Reservation {
            lb: made.lb_id,
            fpga: made.fpga_lb_id,
            token: made.token,
            senders: BTreeMap::from([(sender, Thing::new(()))]),
            removed: BTreeSet::new(),
            sessions: BTreeMap::new(),
        }));
        Ok(())
    }

    fn free(&mut self, at: usize) -> Step {
        let of = &mut self.known.reservations[at];
        of.may_be_gone = true;
        self.connection.with_token(&of.it.token)?.free(&of.it.lb)?;
        let Reservation { lb, token, sessions, .. } = self.known.reservations.swap_remove(at).it;
        add_dead(&mut self.known.dead_reservations, lb);
        add_dead(&mut self.known.dead_tokens, token);
        sessions.into_keys().for_each(|id| add_dead(&mut self.known.dead_sessions, id));
        Ok(())
    }

    fn register(&mut self, at: usize) -> Step {
        if self.known.reservations[at].it.sessions.len() >= MOST {
            return self.deregister(at);
        }
        let address = self.address();
        let of = &mut self.known.reservations[at].it;
        let made = self.connection.with_token(&of.token)?.register(RegisterRequest {
            lb_id: of.lb.clone(),
            name: "worker".into(),
            weight: 1.0,
            ip_address: address.to_string(),
            udp_port: 10_000,
            ..Default::default()
        })?;
        of.sessions.insert(made.session_id, Thing::new(made.token));
        Ok(())
    }

    fn deregister(&mut self, at: usize) -> Step {
        let of = &mut self.known.reservations[at].it;
        let Some((id, session)) = of.sessions.iter_mut().next() else { return self.register(at) };
        session.may_be_gone = true;
        let (id, token) = (id.clone(), session.it.clone());
        self.connection.with_token(&token)?.deregister(&of.lb, &id)?;
        of.sessions.remove(&id);
        add_dead(&mut self.known.dead_sessions, id);
        add_dead(&mut self.known.dead_tokens, token);
        Ok(())
    }

    fn add_sender(&mut self, at: usize) -> Step {
        if self.known.reservations[at].it.senders.len() >= MOST {
            return self.remove_sender(at);
        }
        let address = self.address().into();
        let of = &mut self.known.reservations[at].it;
        self.connection.with_token(&of.token)?.add_senders(&of.lb, &[address])?;
        of.senders.insert(address, Thing::new(()));
        Ok(())
    }

    fn remove_sender(&mut self, at: usize) -> Step {
        let of = &mut self.known.reservations[at].it;
        let Some((&address, sender)) = of.senders.iter_mut().next() else { return self.add_sender(at) };
        sender.may_be_gone = true;
        self.connection.with_token(&of.token)?.remove_senders(&of.lb, &[address])?;
        of.senders.remove(&address);
        of.removed.insert(address);
        Ok(())
    }

    fn create_token(&mut self) -> Step {
        if self.known.tokens.len() >= MOST {
            return self.revoke();
        }
        let permission = TokenPermission {
            resource_type: ResourceType::LoadBalancer.into(),
            resource_id: String::new(),
            permission: PermissionType::Reserve.into(),
        };
        let made = self.connection.create_token("made", vec![permission])?;
        self.known.tokens.push(Thing::new(made.token));
        Ok(())
    }

    fn revoke(&mut self) -> Step {
        let Some(token) = self.known.tokens.last_mut() else { return self.create_token() };
        token.may_be_gone = true;
        let selector = token_selector::TokenSelector::Token(token.it.clone());
        self.connection.revoke_token(TokenSelector { token_selector: Some(selector) })?;
        let token = self.known.tokens.pop().expect("it is there");
        add_dead(&mut self.known.dead_tokens, token.it);
        Ok(())
    }

    fn send_state(&mut self, at: usize) -> Step {
        let of = &self.known.reservations[at].it;
        let Some((id, session)) = of.sessions.iter().next() else { return self.register(at) };
        self.connection.with_token(&session.it)?.send_state(state("", id))
    }
}
