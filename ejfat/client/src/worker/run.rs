//! Carries out the steps that a worker's life cycle asks for.

use std::{
    net::IpAddr,
    sync::{Arc, mpsc::SyncSender},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use proto::loadbalancer::{
    DeregisterRequest, LoadBalancerStatusReply, LoadBalancerStatusRequest, WorkerStatus,
};

use super::{
    Departure, Registration, Shared, Wish, WorkerState,
    life::{Ending, Life, Notice, Step, StepAnswer},
};
use crate::{ApiCall, Cause, ClientError, Connection, connection::Client};

/// The time limit of the calls of a registered worker: a state that arrives later than this is out of date.
const QUICK: Duration = Duration::from_secs(1);

pub(super) struct Task {
    pub(super) connection: Connection,
    pub(super) lb: String,
    pub(super) registration: Registration,
    pub(super) state: Box<dyn Fn() -> WorkerState + Send + Sync>,
    pub(super) shared: Arc<Shared>,
    pub(super) session: Option<RegisteredSession>,
    /// Gets the result of the first registration.
    pub(super) registered: Option<SyncSender<Result<(), ClientError>>>,
}

/// A worker session, with a connection that shows the session's token.
pub(super) struct RegisteredSession {
    id: String,
    connection: Connection,
}

impl Task {
    pub(super) async fn run(mut self, every: Duration) -> Departure {
        let began = Instant::now();
        let mut life = Life::new(every, seed());
        loop {
            match self.shared.wanted() {
                Wish::Stay => {}
                Wish::Drain { within } => life.drain(began.elapsed(), within),
                Wish::Leave => life.leave(),
            }
            let now = began.elapsed();
            let step = life.next(now);
            let answer = match step {
                // If there is no session, there is nothing to drain, and no notice is needed.
                Step::Over(Ending::Refused | Ending::Gone) => {
                    return Departure { drained: true, deregistered: true };
                }
                Step::Over(Ending::Left { drained, deregistered }) => {
                    return Departure { drained, deregistered };
                }
                Step::Wait(until) => {
                    let wished = self.shared.wished.notified();
                    // It waits until the time has come or the program wishes something else, whichever is first.
                    let _ = tokio::time::timeout(until.saturating_sub(now), wished).await;
                    continue;
                }
                Step::Register => self.register().await.map(|()| StepAnswer::Done),
                Step::SendState { may_be_ready } => self.send_state(may_be_ready).await,
                Step::Look => self.look().await,
                Step::Deregister => self.deregister().await,
            };
            let step_answer = match &answer {
                Ok(answer) => answer.clone(),
                Err(error) => meaning(error),
            };
            let notice = life.answered(began.elapsed(), step, &step_answer);
            self.keep(step, &life, answer, notice);
        }
    }

    async fn register(&mut self) -> Result<(), ClientError> {
        let request = self.registration.request(&self.lb);
        let call = async move |mut client: Client| client.register(request).await;
        let reply = self.connection.ask_and_explain(ApiCall::Register, call).await?;
        // A control plane that gives no session tokens takes the token that registered the worker.
        let connection = if reply.token.is_empty() {
            self.connection.clone()
        } else {
            self.connection.with_token(&reply.token)?
        };
        self.session = Some(RegisteredSession { id: reply.session_id, connection });
        Ok(())
    }

    async fn send_state(&self, may_be_ready: bool) -> Result<StepAnswer, ClientError> {
        let Some(RegisteredSession { id, connection }) = &self.session else {
            return Ok(StepAnswer::Unknown(String::new()));
        };
        let request = (self.state)().request(id, &self.lb, SystemTime::now(), may_be_ready);
        let call = async move |mut client: Client| client.send_state(request).await;
        connection.ask(ApiCall::SendState, QUICK, call).await.map(|_| StepAnswer::Done)
    }

    /// Asks how many slots the session has. It uses the token that registered the worker, because a session's token may not read
    /// the reservation.
    async fn look(&self) -> Result<StepAnswer, ClientError> {
        let request = LoadBalancerStatusRequest { lb_id: self.lb.clone() };
        let call = async move |mut client: Client| client.load_balancer_status(request).await;
        let status = self.connection.ask(ApiCall::Status, QUICK, call).await?;
        let id = self.session.as_ref().map_or("", |session| session.id.as_str());
        Ok(StepAnswer::Slots(slots(&status, id, &self.registration)))
    }

    async fn deregister(&self) -> Result<StepAnswer, ClientError> {
        let Some(RegisteredSession { id, connection }) = &self.session else { return Ok(StepAnswer::Done) };
        let request = DeregisterRequest { lb_id: self.lb.clone(), session_id: id.clone() };
        let call = async move |mut client: Client| client.deregister(request).await;
        connection.ask(ApiCall::Deregister, QUICK, call).await.map(|_| StepAnswer::Done)
    }

    /// Writes a notice to the log, and updates the worker's [`Standing`](super::Standing).
    fn keep(
        &mut self,
        step: Step,
        life: &Life,
        answer: Result<StepAnswer, ClientError>,
        notice: Option<Notice>,
    ) {
        let address = self.connection.address();
        match &notice {
            Some(Notice::Lost(why)) => {
                tracing::warn!("{why} (this worker keeps trying, and receives what comes)");
            }
            Some(Notice::Back(after)) => {
                tracing::warn!("the control plane at {address} answers again, after {after:.1?}");
            }
            Some(Notice::RegisteredAgain) => {
                tracing::warn!(
                    "the control plane at {address} did not know this worker any more; it is registered again"
                );
            }
            None => {}
        }
        if life.ending() == Some(Ending::Gone)
            && let Err(error) = &answer
        {
            let lb = &self.lb;
            let why = format!("reservation {lb} ended, or its token was revoked: {error}");
            // A life ends once.
            let _ = self.shared.gone.set(why);
        }
        self.shared.standing(|standing| {
            let session = self.session.as_ref().filter(|_| life.is_in());
            standing.session = session.map(|session| session.id.clone());
            match (step, &answer) {
                (Step::SendState { .. }, Ok(_)) => {
                    (standing.is_accepted, standing.accepted) = (true, standing.accepted + 1)
                }
                (Step::SendState { .. }, Err(_)) => standing.is_accepted = false,
                _ => {}
            }
            standing.registered_again += u64::from(notice == Some(Notice::RegisteredAgain));
            if let Err(error) = &answer {
                standing.problem = Some(error.to_string());
            }
        });
        if step == Step::Register
            && (life.is_in() || life.ending() == Some(Ending::Refused))
            && let Some(registered) = self.registered.take()
        {
            // `Worker::register` waits for this message.
            let _ = registered.send(answer.map(drop));
        }
    }
}

/// Returns what an error means for the worker's life cycle.
fn meaning(error: &ClientError) -> StepAnswer {
    let why = error.to_string();
    match error.cause() {
        None | Some(Cause::Busy) => StepAnswer::Away(why),
        Some(Cause::NotFound | Cause::NoRight | Cause::UnknownToken | Cause::NoToken) => {
            StepAnswer::Unknown(why)
        }
        Some(Cause::Taken) => StepAnswer::Taken(why),
        Some(Cause::Invalid | Cause::NotServed | Cause::Failed) => StepAnswer::Refused(why),
    }
}

/// Returns how many slots a session has. Older control planes report no session ids: then the worker is found by its address.
fn slots(status: &LoadBalancerStatusReply, session: &str, registration: &Registration) -> u32 {
    let by_id = |its: &&WorkerStatus| its.session_id.to_string() == session;
    let here = |its: &&WorkerStatus| {
        let ip: Option<IpAddr> = its.ip_address.parse().ok();
        its.udp_port == u32::from(registration.address.port()) && ip == Some(registration.address.ip())
    };
    let workers = || status.workers.iter();
    let found = workers().find(by_id).or_else(|| workers().find(here));
    found.map_or(0, |its| its.slots_assigned)
}

/// A seed of random waits, from the clock and the process id. It only spreads the tries of many workers over time.
fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(now.subsec_nanos()) ^ u64::from(std::process::id()) << 32
}
