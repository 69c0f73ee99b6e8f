//! Requests about reservations and their senders.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ejfat::lb::LbId;

use super::{
    Plan, RandomBytes, Registry,
    authority::{Authority, reservation_id},
};
use crate::{
    config::LoadBalancerConfig,
    durable::Ending,
    record::{Change, Counter, Key, Record},
    request::{
        Extend, LoadBalancerStatus, Moment, Overview, Refusal, RefusalKind, Reply, Reserve,
        ReservedLoadBalancer, Reset, Senders, StayRules,
    },
    reservation::{
        IpFamily, Reservation, ReservationId, SenderAddress, Strategy, check_name, parse_address, shown,
    },
    token::{Permission, Resource, Right, Scope, Secret, Token, TokenId, TokenKind, TokenLimits},
};

/// A reservation, for the audit log.
pub(super) fn described(reservation: &Reservation) -> String {
    let Reservation { id, lb, name, .. } = reservation;
    format!("reservation {id} of load balancer {}, {}", lb.get(), shown(name))
}

impl Registry {
    /// The reservation with this id.
    pub(super) fn reservation(&self, lb_id: &str) -> Result<&Reservation, Refusal> {
        let id = reservation_id(lb_id)?;
        let found = self.durable.reservation(id);
        found.ok_or_else(|| Refusal::not_found(format!("there is no reservation {id}; it may have ended")))
    }

    /// Returns the configuration of a reservation's load balancer.
    fn configured(&self, lb: LbId) -> Result<&LoadBalancerConfig, Refusal> {
        let found = self.config.load_balancer(lb);
        found.ok_or_else(|| Refusal::not_found(format!("load balancer {} is not configured", lb.get())))
    }

    pub(super) fn reserve(
        &self,
        at: Moment,
        by: &Authority<'_>,
        reserve: &Reserve,
        random: RandomBytes<'_>,
    ) -> Result<Plan, Refusal> {
        check_name(&reserve.name)?;
        let strategy = Strategy::asked(&reserve.strategy)?;
        let until = self.stay_rules(by.id).until(reserve.until, at.wall)?;
        let addresses = self.addresses(&reserve.senders)?;
        let (lb, configured) = self.free_load_balancer(by, reserve.ip_family, &addresses)?;
        self.check_reservations(by.id)?;
        self.check_senders(reserve.ip_family, configured, &addresses)?;
        let id = ReservationId(self.durable.next(Counter::Reservation));
        let after =
            id.0.checked_add(1)
                .ok_or_else(|| Refusal::exhausted("there are no more ids for reservations"))?;
        let token = self.next_token()?;
        let (secret, minted) = self.mint(random, |hash| Token {
            id: token,
            parent: by.id,
            kind: TokenKind::Reservation,
            name: format!("reservation {id}"),
            hash,
            permissions: vec![Permission { scope: Scope::Reservation(id), right: Right::Update }],
            limits: TokenLimits::default(),
            created: at.wall,
        })?;
        let reservation = Reservation {
            id,
            lb,
            name: reserve.name.clone(),
            owner: by.id,
            token: Some(token),
            ip_family: reserve.ip_family,
            strategy,
            until,
            created: at.wall,
        };
        let reply = Reply::Reserved(Box::new(self.reserved(&reservation, configured, Some(secret))));
        let what = described(&reservation);
        let mut changes = Vec::from(minted);
        changes.push(Change::Put(Record::Next(Counter::Reservation, after)));
        changes.push(Change::Put(Record::Reservation(reservation)));
        let senders = addresses.into_iter().map(|address| SenderAddress { lb, address });
        changes.extend(senders.map(|sender| Change::Put(Record::Sender(sender))));
        Ok(Plan::change(reply, changes, what))
    }

    /// The first load balancer that the caller may reserve, has the wanted addresses, takes all senders and is free.
    fn free_load_balancer(
        &self,
        by: &Authority<'_>,
        family: IpFamily,
        senders: &BTreeSet<IpAddr>,
    ) -> Result<(LbId, &LoadBalancerConfig), Refusal> {
        let may = |lb| by.may(Right::Reserve, Resource::LoadBalancer(lb));
        let suited = || self.config.load_balancers().filter(|(lb, of)| may(*lb) && family.is_met_by(of));
        if suited().next().is_none() {
            let why = "no load balancer that the token may reserve has the IP version that is asked for";
            return Err(Refusal::new(RefusalKind::FailedPrecondition, why));
        }
        let takes = |of: &LoadBalancerConfig| senders.iter().all(|address| family.takes(of, *address));
        let mut fitting = suited().filter(|(_, of)| takes(of)).peekable();
        if fitting.peek().is_none() {
            return Err(Refusal::invalid(
                "no load balancer that the token may reserve, with the IP versions that are asked for, takes all of the senders",
            ));
        }
        let free = fitting.find(|(lb, _)| !self.durable.reservations.contains_key(lb));
        free.ok_or_else(|| {
            Refusal::exhausted(
                "all load balancers that the token may reserve, and that take the senders, are reserved; try later",
            )
        })
    }

    /// Checks that one more reservation is within the limits of its owner and the owner's parents.
    fn check_reservations(&self, owner: TokenId) -> Result<(), Refusal> {
        let tokens = &self.durable.tokens;
        for token in tokens.line(owner) {
            let of = self.durable.reservations();
            let count = of.filter(|reservation| tokens.is_within(reservation.owner, token.id)).count();
            if token.limits.reservations.is_some_and(|most| count >= most as usize) {
                return Err(Refusal::exhausted(format!(
                    "the token, or one that it was made with, may have {count} reservations at a time, and has them; free one"
                )));
            }
        }
        Ok(())
    }

    fn stay_rules(&self, token: TokenId) -> StayRules {
        StayRules { default: self.config.default_stay, longest: self.durable.tokens.limits(token).longest }
    }

    /// Reads senders' addresses.
    fn addresses(&self, texts: &[String]) -> Result<BTreeSet<IpAddr>, Refusal> {
        let most = 2 * self.config.most_senders;
        if texts.len() > most {
            return Err(Refusal::invalid(format!("{} senders; name at most {most} at a time", texts.len())));
        }
        texts.iter().map(|text| parse_address("sender", text)).collect()
    }

    /// Checks that there is room for these senders, which are new.
    fn check_senders(
        &self,
        family: IpFamily,
        lb: &LoadBalancerConfig,
        new: &BTreeSet<IpAddr>,
    ) -> Result<(), Refusal> {
        if let Some(other) = new.iter().find(|address| !family.takes(lb, **address)) {
            return Err(Refusal::invalid(format!(
                "the reservation has no address of the sender's IP version: {other}"
            )));
        }
        for (version, is_v4) in [("IPv4", true), ("IPv6", false)] {
            let present = self.durable.senders.iter().map(|sender| &sender.address);
            let count = present.chain(new).filter(|address| address.is_ipv4() == is_v4).count();
            let has_new = new.iter().any(|address| address.is_ipv4() == is_v4);
            if has_new && count > self.config.most_senders {
                let most = self.config.most_senders;
                return Err(Refusal::exhausted(format!(
                    "there would be {count} {version} senders at all load balancers, and there is room for {most}"
                )));
            }
        }
        Ok(())
    }

    fn reserved(
        &self,
        of: &Reservation,
        lb: &LoadBalancerConfig,
        token: Option<Secret>,
    ) -> ReservedLoadBalancer {
        let v4 = |address: Option<Ipv4Addr>| address.filter(|_| of.ip_family != IpFamily::V6);
        let v6 = |address: Option<Ipv6Addr>| address.filter(|_| of.ip_family != IpFamily::V4);
        ReservedLoadBalancer {
            token,
            id: of.id,
            lb: of.lb,
            name: of.name.clone(),
            strategy: of.strategy,
            data_v4: v4(lb.data_v4),
            data_v6: v6(lb.data_v6),
            data_ports: lb.data_ports.clone(),
            sync_v4: v4(lb.sync_v4),
            sync_v6: v6(lb.sync_v6),
            sync_port: lb.sync_port,
        }
    }

    pub(super) fn get(&self, lb_id: &str) -> Result<Plan, Refusal> {
        let reservation = self.reservation(lb_id)?;
        let configured = self.configured(reservation.lb)?;
        Ok(Plan::read(Reply::Reserved(Box::new(self.reserved(reservation, configured, None)))))
    }

    pub(super) fn status(&self, at: Moment, lb_id: &str) -> Result<Plan, Refusal> {
        let reservation = self.reservation(lb_id)?;
        Ok(Plan::read(Reply::Status(Box::new(self.status_of(at, reservation)))))
    }

    fn status_of(&self, at: Moment, reservation: &Reservation) -> LoadBalancerStatus {
        LoadBalancerStatus {
            at: at.wall,
            workers: self
                .durable
                .sessions_of(reservation.lb)
                .map(|session| self.worker_status(at, session))
                .collect(),
            senders: self.durable.senders_of(reservation.lb).map(|sender| sender.address).collect(),
            expires: reservation.until,
            slots: self.config.slots,
        }
    }

    fn readable_reservations(&self, by: &Authority<'_>) -> impl Iterator<Item = &Reservation> {
        let may = |of: &&Reservation| by.may(Right::ReadOnly, Resource::Reservation(of.id, Some(of.lb)));
        self.durable.reservations().filter(may)
    }

    pub(super) fn overview(&self, at: Moment, by: &Authority<'_>) -> Plan {
        let shown = self.readable_reservations(by).filter_map(|reservation| {
            let reserved = self.reserved(reservation, self.config.load_balancer(reservation.lb)?, None);
            Some(Overview { reservation: reserved, status: self.status_of(at, reservation) })
        });
        Plan::read(Reply::Overview(shown.collect()))
    }

    pub(super) fn readable(&self, by: &Authority<'_>) -> Plan {
        let reservations = self.readable_reservations(by).map(|reservation| reservation.id).collect();
        Plan::read(Reply::Readable { all: by.may(Right::ReadOnly, Resource::All), reservations })
    }

    pub(super) fn free(&self, lb_id: &str) -> Result<Plan, Refusal> {
        let reservation = self.reservation(lb_id)?;
        let ending = Ending { reservations: BTreeSet::from([reservation.lb]), ..Ending::default() };
        Ok(Plan::change(Reply::Done, self.durable.end(ending), described(reservation)))
    }

    pub(super) fn reset(&self, reset: &Reset) -> Result<Plan, Refusal> {
        let reservation = self.reservation(&reset.lb_id)?;
        let Reset { sync, epochs, senders, workers, .. } = *reset;
        let mut changes = Vec::new();
        if workers {
            let sessions = self.durable.sessions_of(reservation.lb).map(|session| session.id).collect();
            changes = self.durable.end(Ending { sessions, ..Ending::default() });
        }
        if senders {
            let all = self.durable.senders_of(reservation.lb);
            changes.extend(all.map(|sender| Change::Delete(Key::Sender(*sender))));
        }
        let flags = [("sync", sync), ("epochs", epochs), ("senders", senders), ("workers", workers)];
        let set: Vec<_> = flags.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect();
        let what = (!set.is_empty()).then(|| format!("{} of {}", set.join(", "), described(reservation)));
        Ok(Plan {
            what,
            ..Plan::change(Reply::Reset { sync, epochs, senders, workers }, changes, String::new())
        })
    }

    pub(super) fn extend(&self, at: Moment, by: &Authority<'_>, extend: &Extend) -> Result<Plan, Refusal> {
        let reservation = self.reservation(&extend.lb_id)?;
        let until = self.stay_rules(by.id).until(extend.until, at.wall)?;
        let end =
            until.map_or("without an end".to_owned(), |until| format!("until {} ms after 1970", until.0));
        let what = format!("{} {end}", described(reservation));
        let changes = vec![Change::Put(Record::Reservation(Reservation { until, ..reservation.clone() }))];
        Ok(Plan::change(Reply::Extended { until }, changes, what))
    }

    pub(super) fn add_senders(&self, senders: &Senders) -> Result<Plan, Refusal> {
        let reservation = self.reservation(&senders.lb_id)?;
        let mut new = self.addresses(&senders.addresses)?;
        new.retain(|address| !self.is_sender(reservation.lb, *address));
        self.check_senders(reservation.ip_family, self.configured(reservation.lb)?, &new)?;
        let what = format!("{} at {}", listed(&new), described(reservation));
        let put = |address| Change::Put(Record::Sender(SenderAddress { lb: reservation.lb, address }));
        Ok(Plan::change(Reply::Done, new.into_iter().map(put).collect(), what))
    }

    /// Addresses that are no senders are passed over, so that a request can be sent again.
    pub(super) fn remove_senders(&self, senders: &Senders) -> Result<Plan, Refusal> {
        let reservation = self.reservation(&senders.lb_id)?;
        let mut gone = self.addresses(&senders.addresses)?;
        gone.retain(|address| self.is_sender(reservation.lb, *address));
        let what = format!("{} at {}", listed(&gone), described(reservation));
        let delete = |address| Change::Delete(Key::Sender(SenderAddress { lb: reservation.lb, address }));
        Ok(Plan::change(Reply::Done, gone.into_iter().map(delete).collect(), what))
    }

    fn is_sender(&self, lb: LbId, address: IpAddr) -> bool {
        self.durable.senders.contains(&SenderAddress { lb, address })
    }
}

/// The first few addresses, and how many there are.
fn listed(addresses: &BTreeSet<IpAddr>) -> String {
    let first: Vec<_> = addresses.iter().take(8).map(IpAddr::to_string).collect();
    let more = addresses.len().saturating_sub(first.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", first.join(", "))
}
