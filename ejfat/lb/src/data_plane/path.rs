//! The balancer of a data plane, and the engine that decides in its place if there is one.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use ejfat::{
    lb::{DataPlane, DropCause, Engine, EngineError, LbId, Route},
    wire::LbHeader,
};

/// The number of times that a change is tried, if the engine forwards packets of its ticks while it loads the tables.
const LOAD_ATTEMPTS: u32 = 4;

/// Decides where packets go. If there is no engine, the balancer decides. If there is one, the balancer has the same
/// tables, absorbs the counters of the engine, and checks each decision of the engine.
#[derive(Debug)]
pub struct DataPath {
    balancer: DataPlane,
    engine: Option<Box<dyn Engine>>,
    /// Packets that the engine did not treat as the balancer would have.
    differences: u64,
}

impl DataPath {
    pub(super) fn new(balancer: DataPlane) -> Self {
        Self { balancer, engine: None, differences: 0 }
    }

    pub(super) fn attach(&mut self, mut engine: Box<dyn Engine>) -> Result<(), EngineError> {
        engine.load(self.balancer.image()?, &BTreeMap::new())?;
        self.engine = Some(engine);
        Ok(())
    }

    /// The balancer, after it has absorbed what the engine counted.
    pub(super) fn balancer(&mut self) -> &mut DataPlane {
        if let Some(engine) = &mut self.engine {
            self.balancer.absorb(&engine.take());
        }
        &mut self.balancer
    }

    /// Changes the tables of the balancer and of the engine. `is_guarded` means that no event may be split: the change
    /// is then tried again if the engine meanwhile forwarded packets to which the new tables apply.
    ///
    /// # Errors
    /// The errors of the change and of the engine. If there is an engine, nothing has changed after an error. If there
    /// is none, the balancer may have changed in part.
    pub(super) fn change<T, E: From<EngineError>>(
        &mut self,
        is_guarded: bool,
        mut change: impl FnMut(&mut DataPlane) -> Result<T, E>,
    ) -> Result<T, E> {
        let Some(engine) = &mut self.engine else { return change(&mut self.balancer) };
        let mut attempt = 1;
        loop {
            self.balancer.absorb(&engine.take());
            let mut next = self.balancer.clone();
            let result = change(&mut next)?;
            let guard = |lb| Some((lb, next.first_difference(&self.balancer, lb)?));
            let guards: BTreeMap<_, _> = LbId::all().filter(|_| is_guarded).filter_map(guard).collect();
            match engine.load(next.image().map_err(EngineError::from)?, &guards) {
                Err(EngineError::Late { .. }) if attempt < LOAD_ATTEMPTS => attempt += 1,
                Err(why) => return Err(why.into()),
                Ok(()) => {
                    for lb in LbId::all().filter(|&lb| next.horizon(lb) != self.balancer.horizon(lb)) {
                        engine.set_horizon(lb, next.horizon(lb).unwrap_or(u64::MAX));
                    }
                    self.balancer = next;
                    return Ok(result);
                }
            }
        }
    }

    /// Returns the route of a UDP datagram with LB header that came from the address `from` to the address `to`. The
    /// call counts the datagram and its bytes.
    ///
    /// # Errors
    /// Fails with the drop cause if the datagram is dropped.
    pub fn route(&mut self, to: IpAddr, from: IpAddr, datagram: &[u8]) -> Result<Route, DropCause> {
        let Some(engine) = &mut self.engine else { return self.balancer.route(to, from, datagram) };
        let expected = self.balancer.find(to, from, datagram);
        let sent = engine.forward(to, from, datagram);
        if !is_as_expected(&expected, sent.as_ref(), datagram) {
            // Only the first difference is logged, so that a sender of such datagrams cannot fill the log.
            if self.differences == 0 {
                let sent = sent.map(|(to, bytes)| format!("{} bytes to {to}", bytes.len()));
                tracing::error!(
                    "the engine does not forward a datagram of {from} to {to} as its tables say: {expected:?}, but {sent:?}; \
                     all such datagrams are counted as refused and are not sent; this is a defect of the engine, please report it"
                );
            }
            self.differences += 1;
            // No cause says this. The counter does.
            return expected.and(Err(DropCause::MbrInfoMiss));
        }
        expected
    }

    /// The member that the tables of a tick name, whatever its addresses. Nothing is counted.
    pub fn member(&self, lb: LbId, header: &LbHeader) -> Option<u16> {
        self.balancer.member(lb, header)
    }

    /// Packets that the engine did not treat as its tables say.
    pub(super) fn differences(&self) -> u64 {
        self.differences
    }
}

fn is_as_expected(
    expected: &Result<Route, DropCause>,
    sent: Option<&(SocketAddr, Vec<u8>)>,
    datagram: &[u8],
) -> bool {
    match (expected, sent) {
        (Ok(route), Some((to, bytes))) => {
            let cut = if route.keep_lb_header { 0 } else { LbHeader::LEN };
            *to == route.to && datagram.get(cut..) == Some(bytes)
        }
        (Err(_), None) => true,
        _ => false,
    }
}
