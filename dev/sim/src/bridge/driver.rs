//! The bridge: a reassembler and a dispatcher, driven as over sockets.

use std::collections::BTreeMap;

use ejfat::{
    Time,
    bridge::{
        Action, Dispatcher, Fate as Known, Home, Loss, Opened, Pressure, Target, WorkerId, WorkerStats,
    },
    reassembly::{EventId, Name, Place, Reassembler},
    wire::LbHeader,
};

use super::{
    super::{events::check, sender::Sender},
    draw::{Aim, Setting},
    ledger::{Fate, Ledger},
    seat::Seat,
};

/// The clock of descriptors, when the run begins.
const EPOCH: u64 = 1_700_000_000_000_000_000;

pub(super) struct Driver {
    pub(super) reassembler: Reassembler,
    pub(super) dispatcher: Dispatcher,
    aim: Aim,
    /// Spill memory, by the reassembler's slot.
    spill: Vec<Vec<u8>>,
    /// What is open, and whom it is for.
    open: BTreeMap<usize, Opened>,
    /// The dispatcher's journal forgets nothing.
    remembers: bool,
    /// How many events the dispatcher gave up that could have been delivered again.
    pub(super) given_up: u64,
}

impl Driver {
    pub(super) fn new(setting: &Setting) -> Self {
        let Setting { reassembly, dispatch, aim, .. } = setting;
        Self {
            dispatcher: Dispatcher::new(dispatch.clone(), reassembly.slots),
            spill: vec![Vec::new(); reassembly.slots as usize],
            reassembler: Reassembler::new(reassembly.clone()).expect("bounds that fit"),
            aim: *aim,
            open: BTreeMap::new(),
            remembers: dispatch.journal > 1000,
            given_up: 0,
        }
    }

    pub(super) fn aim_at(&mut self, aim: Aim) {
        self.aim = aim;
    }

    /// A datagram.
    pub(super) fn arrive(
        &mut self,
        now: u64,
        from: Option<std::net::IpAddr>,
        datagram: &[u8],
        seats: &mut [Seat],
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let Ok(place) = self.reassembler.handle(Time(now), from, datagram) else { return Ok(()) };
        self.give_up(now, ledger)?;
        if place.opened && !self.open(now, &place, datagram, seats, ledger)? {
            return Ok(());
        }
        let bytes = &datagram[place.payload.clone()];
        match self.dispatcher.home(place.id) {
            Some(Home::Ring { worker, offset }) => {
                find(seats, worker)?.place(now, offset + u64::from(place.offset), bytes);
            }
            Some(Home::Spill) => {
                self.spill[place.id.slot()][place.offset as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            None => return Err(format!("{place:?} has no home")),
        }
        if place.complete {
            self.dispatcher.complete(Time(now), place.id);
            self.carry_out(now, seats, ledger)?;
        }
        Ok(())
    }

    /// False if the event is lost at once.
    fn open(
        &mut self,
        now: u64,
        place: &Place,
        datagram: &[u8],
        seats: &[Seat],
        ledger: &mut Ledger,
    ) -> Result<bool, String> {
        let tick =
            LbHeader::leads(datagram).then(|| LbHeader::decode(datagram).map(|(header, _)| header.tick));
        let tick = tick.transpose().map_err(|why| why.to_string())?;
        let Place { id, name, length, .. } = *place;
        let opened = Opened { id, name, tick, length, target: self.aim.target(name) };
        ledger.open(name)?;
        match self.dispatcher.open(Time(now), EPOCH + now, opened) {
            Ok(home) => {
                if home == Home::Spill {
                    self.prepare_spill(id, length);
                }
                self.open.insert(id.slot(), opened);
                Ok(true)
            }
            Err(loss) => {
                self.check_loss(&opened, Some(loss), seats)?;
                ledger.end(name, Fate::Lost(Some(loss)))?;
                self.release(id)?;
                Ok(false)
            }
        }
    }

    fn prepare_spill(&mut self, id: EventId, length: u32) {
        let memory = &mut self.spill[id.slot()];
        memory.clear();
        memory.resize(length as usize, 0xee);
    }

    fn release(&mut self, id: EventId) -> Result<(), String> {
        check(self.reassembler.release(id), || format!("{id:?} was not there to release"))
    }

    /// What the reassembler gives up.
    pub(super) fn give_up(&mut self, now: u64, ledger: &mut Ledger) -> Result<(), String> {
        while let Some(event) = self.reassembler.poll_given_up(Time(now)) {
            self.dispatcher.gave_up(event.id);
            self.open.remove(&event.id.slot());
            ledger.end(event.name, Fate::Incomplete)?;
        }
        Ok(())
    }

    /// A worker ended.
    pub(super) fn remove(
        &mut self,
        now: u64,
        at: usize,
        seats: &mut [Seat],
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        self.dispatcher.look(Time(now), seats[at].id, seats[at].words());
        self.carry_out(now, seats, ledger)?;
        seats[at].ended_at = Some(now);
        self.dispatcher.remove(Time(now), seats[at].id);
        self.carry_out(now, seats, ledger)?;
        seats[at].leave(now);
        check(seats[at].forgotten || self.dispatcher.waiting_again() > 0, || {
            "a ring is kept, and no event in it waits".into()
        })
    }

    /// What comes of a wire.
    pub(super) fn pass(
        &mut self,
        now: u64,
        at: usize,
        seats: &mut [Seat],
        senders: &[Sender],
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        if seats[at].gone {
            return Ok(());
        }
        seats[at].pass(now)?;
        let id = seats[at].id;
        while seats[at].next_acknowledged(now, senders)? {
            self.dispatcher.acknowledged(Time(now), id);
            self.carry_out(now, seats, ledger)?;
        }
        if let Some(words) = seats[at].words_at(now) {
            self.dispatcher.look(Time(now), id, words);
            self.carry_out(now, seats, ledger)?;
        }
        if seats[at].ready_at.take_if(|at| *at <= now).is_some() {
            self.dispatcher.ready(Time(now), id);
            self.carry_out(now, seats, ledger)?;
        }
        Ok(())
    }

    /// The dispatcher's actions.
    pub(super) fn carry_out(
        &mut self,
        now: u64,
        seats: &mut [Seat],
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let (mut moved, mut actions) = (None, 0);
        while let Some(action) = self.dispatcher.poll_action() {
            actions += u32::from(!matches!(action, Action::Again { .. } | Action::Forget { .. }));
            match action {
                Action::Move { id, length, worker, offset } => {
                    let bytes = &self.spill[id.slot()][..length as usize];
                    find(seats, worker)?.put(offset, bytes);
                    moved = Some(id);
                }
                Action::Deliver { id, worker, descriptor } => {
                    let its = self.open.remove(&id.slot()).ok_or("what is delivered is not open")?;
                    let as_opened = descriptor.name == its.name && descriptor.tick == its.tick;
                    check(as_opened && descriptor.length == its.length, || format!("{descriptor:?}"))?;
                    ledger.end(its.name, Fate::Sent(worker))?;
                    find(seats, worker)?.deliver(now, &descriptor, moved == Some(id))?;
                    self.release(id)?;
                }
                Action::Rescue { id, length, worker, offset } => {
                    self.prepare_spill(id, length);
                    self.spill[id.slot()].copy_from_slice(find(seats, worker)?.bytes(offset, length));
                }
                Action::Again { from, offset, worker, descriptor } => {
                    ledger.again(descriptor.name, from, worker)?;
                    let bytes = kept(seats, from)?.bytes(offset, descriptor.length).to_vec();
                    let to = find(seats, worker)?;
                    check(descriptor.again && to.worker.person().again, || format!("{descriptor:?}"))?;
                    to.put(descriptor.offset, &bytes);
                    to.deliver(now, &descriptor, true)?;
                }
                Action::Forget { worker, given_up } => {
                    self.check_time(now, given_up, kept(seats, worker)?.ended_at, seats)?;
                    kept(seats, worker)?.forgotten = true;
                    self.given_up += u64::from(given_up);
                    self.check_given_up(worker, given_up, seats)?;
                }
                Action::Drop { id } => {
                    let its = self.open.remove(&id.slot()).ok_or("what is dropped is not open")?;
                    let loss = self.loss_of(&its)?;
                    self.check_loss(&its, loss, seats)?;
                    ledger.end(its.name, Fate::Lost(loss))?;
                    self.release(id)?;
                }
            }
        }
        // Each event is rescued, or moved and delivered.
        let most = 2 * self.spill.len();
        check(actions as usize <= most, || format!("{actions} actions at once"))
    }

    fn loss_of(&self, its: &Opened) -> Result<Option<Loss>, String> {
        let key = its.tick.unwrap_or(its.name.event);
        let record = self.dispatcher.trace(key).find(|record| record.opened.id == its.id);
        match record.map(|record| record.fate) {
            Some(Known::Lost(loss)) => Ok(Some(loss)),
            None if !self.remembers => Ok(None),
            other => Err(format!("{its:?} is dropped, and known as {other:?}")),
        }
    }

    /// Nothing is lost for lack of room while an idle worker may have it, nor as too large or without a worker while
    /// there is one with a ring for it.
    fn check_loss(&self, its: &Opened, loss: Option<Loss>, seats: &[Seat]) -> Result<(), String> {
        let takes = |worker: &WorkerStats<'_>| match its.target {
            Target::Anybody => true,
            Target::DataId(id) => worker.filter.takes(id),
            Target::Member(member) => worker.filter.member == Some(member),
        };
        let fits = |worker: &WorkerStats<'_>| {
            u64::from(its.length) <= u64::from(worker.slots) * u64::from(worker.slot_bytes)
        };
        let idle = |worker: &WorkerStats<'_>| {
            let ready = seats.iter().any(|seat| seat.id == worker.id && seat.ready_at.is_none());
            worker.in_use == 0 && !worker.stalled && ready
        };
        let taker = self.dispatcher.workers().find(|worker| match loss {
            None | Some(Loss::WorkerEnded) => false,
            Some(Loss::NoWorker) => takes(worker),
            Some(Loss::TooLarge) => takes(worker) && fits(worker),
            Some(Loss::NoCredit | Loss::Displaced | Loss::Expired) => {
                takes(worker) && fits(worker) && idle(worker)
            }
        });
        check(taker.is_none(), || format!("{its:?} is lost by {loss:?}, and there is {taker:?}"))?;
        let waited = matches!(loss, Some(Loss::NoCredit | Loss::Displaced | Loss::Expired));
        let somebody = match its.target {
            Target::DataId(_) => self.dispatcher.workers().any(|worker| takes(&worker)),
            Target::Anybody | Target::Member(_) => self.dispatcher.workers().next().is_some(),
        };
        check(!waited || somebody, || format!("{its:?} is lost by {loss:?}, and nobody may have it"))
    }

    /// Checks that events which could be delivered again are not given up before their time, unless too many rings are kept.
    fn check_time(
        &self,
        now: u64,
        given_up: u32,
        ended_at: Option<u64>,
        seats: &[Seat],
    ) -> Result<(), String> {
        let config = self.dispatcher.config();
        let kept = || seats.iter().filter(|seat| seat.ended_at.is_some() && !seat.forgotten);
        let bytes: u64 = kept().map(|seat| seat.worker.person().geometry.ring_bytes() as u64).sum();
        let too_much = bytes > config.again_bytes || kept().count() > config.max_workers as usize;
        let late = ended_at.is_some_and(|at| now >= at + config.hold.as_nanos() as u64);
        check(given_up == 0 || too_much || late, || {
            format!("{given_up} events are given up before their time")
        })
    }

    /// Checks that events which could be delivered again are not given up while an idle worker may have all of them.
    fn check_given_up(&self, worker: WorkerId, given_up: u32, seats: &mut [Seat]) -> Result<(), String> {
        let bytes = kept_bytes(seats, worker);
        let idle = |its: &WorkerStats<'_>| {
            let ready = seats.iter().any(|seat| seat.id == its.id && seat.ready_at.is_none());
            let large = u64::from(its.slots) * u64::from(its.slot_bytes) >= bytes;
            its.again && its.in_use == 0 && !its.stalled && ready && large
        };
        let taker = self.dispatcher.workers().find(idle);
        let anybody = matches!(self.aim, Aim::Anybody | Aim::At(Target::Anybody));
        check(given_up == 0 || !anybody || taker.is_none(), || {
            format!("{given_up} events of {worker:?} are given up, and there is {taker:?}")
        })
    }

    /// What must hold at any time.
    pub(super) fn check(&self) -> Result<(), String> {
        let (counters, config) = (self.dispatcher.counters(), self.dispatcher.config());
        let ends = counters.open + counters.sent + counters.incomplete + counters.lost_of_any_cause();
        check(counters.opened == ends, || format!("opened is no sum: {counters:?}"))?;
        let outstanding: u64 = self.dispatcher.workers().map(|worker| u64::from(worker.outstanding)).sum();
        let told = counters.released + counters.held_by_ended + outstanding;
        let lost = counters.held_by_ended.checked_sub(counters.delivered_again);
        let lost = lost.and_then(|lost| lost.checked_sub(self.dispatcher.waiting_again() as u64));
        check(lost.is_some_and(|lost| lost >= self.given_up), || {
            format!("{} given up: {counters:?}", self.given_up)
        })?;
        check(counters.sent + counters.delivered_again == told, || {
            format!("sent is no sum, {outstanding} are out: {counters:?}")
        })?;
        check(counters.delivered <= counters.sent + counters.delivered_again, || format!("{counters:?}"))?;
        let waiting = self.dispatcher.waiting();
        let most = if config.pressure == Pressure::DropNewest { 0 } else { config.most_waiting };
        check(waiting <= most as usize, || format!("{waiting} events wait"))?;
        check(self.open.len() as u64 == counters.open, || format!("open is not {}", self.open.len()))?;
        let fill = self.dispatcher.fill();
        check((0.0..=1.0).contains(&fill), || format!("the fill level is {fill}"))
    }
}

fn find(seats: &mut [Seat], id: WorkerId) -> Result<&mut Seat, String> {
    seats.iter_mut().find(|seat| seat.id == id && !seat.gone).ok_or_else(|| format!("{id:?} is gone"))
}

/// The worker with this id, if the bridge still has its ring. The worker may have ended.
fn kept(seats: &mut [Seat], id: WorkerId) -> Result<&mut Seat, String> {
    let seat = seats.iter_mut().find(|seat| seat.id == id && !seat.forgotten);
    seat.ok_or_else(|| format!("the ring of {id:?} is forgotten"))
}

/// Bytes of a worker's ring; 0 if there is no such worker.
fn kept_bytes(seats: &[Seat], id: WorkerId) -> u64 {
    let seat = seats.iter().find(|seat| seat.id == id);
    seat.map_or(0, |seat| seat.worker.person().geometry.ring_bytes() as u64)
}

impl Aim {
    fn target(self, name: Name) -> Target {
        match self {
            Self::Anybody => Target::Anybody,
            Self::DataId => Target::DataId(name.data_id),
            Self::Member { of } => Target::Member((name.event % u64::from(of)) as u16),
            Self::Mixed { of } => match name.event % 3 {
                0 => Target::Anybody,
                1 => Target::DataId(name.data_id),
                _ => Target::Member((name.event / 3 % u64::from(of)) as u16),
            },
            Self::At(target) => target,
        }
    }
}
