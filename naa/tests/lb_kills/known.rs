//! What the control plane acknowledged to a client, and the check that it is true after a restart.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
};

use ejfat_client::{Cause, Connection};
use proto::loadbalancer::{SendStateRequest, TokenSelector, token_selector};

/// How many of the newest ended things of each kind are checked after each restart.
const LOOKED_AT: usize = 16;

/// A thing whose creation was acknowledged.
#[derive(Debug)]
pub(crate) struct Thing<T> {
    pub(crate) it: T,
    /// Whether its end was asked for and not acknowledged.
    pub(crate) may_be_gone: bool,
}

impl<T> Thing<T> {
    pub(crate) fn new(it: T) -> Self {
        Self { it, may_be_gone: false }
    }
}

#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) lb: String,
    pub(crate) fpga: u32,
    pub(crate) token: String,
    pub(crate) senders: BTreeMap<IpAddr, Thing<()>>,
    /// Senders whose removal was acknowledged. They are never added again.
    pub(crate) removed: BTreeSet<IpAddr>,
    /// The token of each session, by its id.
    pub(crate) sessions: BTreeMap<String, Thing<String>>,
}

#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) reservations: Vec<Thing<Reservation>>,
    pub(crate) tokens: Vec<Thing<String>>,
    /// Texts of tokens that must be unknown.
    pub(crate) dead_tokens: VecDeque<String>,
    pub(crate) dead_sessions: VecDeque<String>,
    pub(crate) dead_reservations: VecDeque<String>,
}

pub(crate) fn add_dead(dead: &mut VecDeque<String>, name: String) {
    if dead.len() == LOOKED_AT {
        dead.pop_front();
    }
    dead.push_back(name);
}

pub(crate) fn state(lb: &str, session: &str) -> SendStateRequest {
    SendStateRequest {
        lb_id: lb.to_owned(),
        session_id: session.to_owned(),
        is_ready: true,
        fill_percent: 0.1,
        ..SendStateRequest::default()
    }
}

/// Checks all things after a restart. A thing whose end was not acknowledged is kept if it exists, and forgotten if not. Things that
/// exist and that no client knows, because the answer to their creation was lost, are ended.
pub(crate) fn check(admin: &Connection, all: &mut [Known], seed: &str) {
    let there = admin.overview().unwrap_or_else(|why| panic!("{seed}: {why}")).load_balancers;
    let there: BTreeMap<_, _> = there
        .into_iter()
        .filter_map(|of| Some((of.reservation?, of.status?)))
        .map(|(of, status)| (of.lb_id.clone(), (of, status)))
        .collect();
    let mut owned = BTreeSet::new();
    for known in &mut *all {
        for id in &known.dead_reservations {
            assert!(!there.contains_key(id), "{seed}: reservation {id} was freed and is there");
        }
        for token in &known.dead_tokens {
            let refused = admin.with_token(token).unwrap().version().map_err(|why| why.cause());
            assert_eq!(
                refused.err(),
                Some(Some(Cause::UnknownToken)),
                "{seed}: a token was revoked and is known"
            );
        }
        for id in &known.dead_sessions {
            let refused = admin.send_state(state("", id)).map_err(|why| why.cause());
            assert_eq!(refused.err(), Some(Some(Cause::NotFound)), "{seed}: session {id} ended and is there");
        }
        known.tokens.retain_mut(|token| {
            let is_known = admin.with_token(&token.it).unwrap().version().is_ok();
            assert!(is_known || token.may_be_gone, "{seed}: a token is lost");
            token.may_be_gone = false;
            is_known
        });
        known.reservations.retain_mut(|thing| {
            let of = &mut thing.it;
            let Some((found, status)) = there.get(&of.lb) else {
                assert!(thing.may_be_gone, "{seed}: reservation {} is lost", of.lb);
                return false;
            };
            thing.may_be_gone = false;
            assert_eq!(found.fpga_lb_id, of.fpga, "{seed}: reservation {} has another load balancer", of.lb);
            owned.insert(of.lb.clone());
            let own = admin.with_token(&of.token).unwrap();
            own.get(&of.lb).unwrap_or_else(|why| panic!("{seed}: the token of reservation {}: {why}", of.lb));
            check_senders(of, &status.sender_addresses, seed);
            let sessions: BTreeSet<_> = status.workers.iter().map(|of| of.session_id.to_string()).collect();
            of.sessions.retain(|id, session| {
                let is_there = sessions.contains(id);
                assert!(is_there || session.may_be_gone, "{seed}: session {id} is lost");
                session.may_be_gone = false;
                is_there
            });
            for (id, token) in &of.sessions {
                let told = admin.with_token(&token.it).unwrap().send_state(state("", id));
                told.unwrap_or_else(|why| panic!("{seed}: the token of session {id}: {why}"));
            }
            for id in sessions.iter().filter(|id| !of.sessions.contains_key(*id)) {
                admin.deregister(&of.lb, id).unwrap_or_else(|why| panic!("{seed}: session {id}: {why}"));
            }
            true
        });
    }
    for id in there.keys().filter(|id| !owned.contains(*id)) {
        admin.free(id).unwrap_or_else(|why| panic!("{seed}: reservation {id}, which nobody knows: {why}"));
    }
    revoke_unknown(admin, all, seed);
}

fn check_senders(of: &mut Reservation, there: &[String], seed: &str) {
    let there: BTreeSet<IpAddr> = there.iter().map(|text| text.parse().unwrap()).collect();
    of.senders.retain(|address, sender| {
        let is_there = there.contains(address);
        assert!(is_there || sender.may_be_gone, "{seed}: sender {address} of {} is lost", of.lb);
        sender.may_be_gone = false;
        is_there
    });
    for address in there {
        // The answer to adding or to removing it may have been lost. A sender whose removal was acknowledged must not exist.
        assert!(
            !of.removed.contains(&address),
            "{seed}: sender {address} of {} was removed and is there",
            of.lb
        );
        of.senders.entry(address).or_insert(Thing::new(()));
    }
}

/// Revokes tokens whose creation was not acknowledged.
fn revoke_unknown(admin: &Connection, all: &[Known], seed: &str) {
    let selector = |by| TokenSelector { token_selector: Some(by) };
    let made = admin.list_child_tokens(selector(token_selector::TokenSelector::Id(0)));
    let made = made.unwrap_or_else(|why| panic!("{seed}: {why}")).tokens;
    let known: BTreeSet<_> = all
        .iter()
        .flat_map(|known| &known.tokens)
        .map(|token| {
            let own = admin.with_token(&token.it).unwrap();
            let of = own.list_token_permissions(selector(token_selector::TokenSelector::Id(0)));
            of.ok().and_then(|of| of.token).map_or(0, |of| of.id)
        })
        .collect();
    for token in made.iter().filter(|token| token.name == "made" && !known.contains(&token.id)) {
        let revoked = admin.revoke_token(selector(token_selector::TokenSelector::Id(token.id)));
        revoked.unwrap_or_else(|why| panic!("{seed}: token {}: {why}", token.id));
    }
}
