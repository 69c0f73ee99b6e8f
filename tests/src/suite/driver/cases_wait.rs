//! Waiting and polling, as the driver interface promises them. Only the near end waits here.

use std::{
    thread,
    time::{Duration, Instant},
};

use verbs::{WaitMode, WaitOn, Wake};

use super::{
    super::{
        case::{Case, doing, ensure},
        environment::Environment,
    },
    end::End,
    pair::{Side, connect, part, strangers, wr},
    wire::{AccessRequest, Op, Queue},
};

pub(super) const CASES: &[Case] = &[
    Case::rest("seam: a wait ends at its deadline", deadline),
    Case::rest("seam: a wait is interrupted, before and while it sleeps", interrupted),
    Case::rest("seam: a wait ends with a completion, in every way of waiting", ready),
];

const MODES: [WaitMode; 3] = [WaitMode::Spin, WaitMode::Block, WaitMode::Adaptive];

fn here<'a>(side: &'a Side<'_>) -> Result<&'a End, String> {
    match side {
        Side::Here(end) => Ok(end),
        Side::There(_) => Err("the far end does not wait".into()),
    }
}

fn waits(end: &End) -> [WaitOn; 3] {
    let (cq, channel) = (Some(end.send_cq.id()), Some(end.channel.id()));
    [WaitOn { cq, channel: None }, WaitOn { cq: None, channel }, WaitOn { cq, channel }]
}

fn deadline(env: &mut Environment) -> Result<String, String> {
    let (side, _there, _) = strangers(env)?;
    let end = here(&side)?;
    for mode in MODES {
        for on in waits(end) {
            let start = Instant::now();
            let wake = end.context.wait(on, mode, Some(start + Duration::from_millis(60)));
            let wake = doing("wait", wake)?;
            let took = start.elapsed();
            ensure(wake == Wake::TimedOut, || format!("{mode:?}: {wake:?}"))?;
            let fits = (60..1000).contains(&took.as_millis());
            ensure(fits, || format!("{mode:?}: 60 ms took {took:?}"))?;
        }
    }
    Ok(String::new())
}

fn interrupted(env: &mut Environment) -> Result<String, String> {
    let (side, _there, _) = strangers(env)?;
    let end = here(&side)?;
    for mode in MODES {
        for on in waits(end) {
            end.context.driver().interrupt(on);
            let until = || Some(Instant::now() + Duration::from_secs(10));
            let wake = doing("wait", end.context.wait(on, mode, until()))?;
            ensure(wake == Wake::Interrupted, || format!("{mode:?}, before: {wake:?}"))?;
            let driver = end.context.driver().clone();
            let start = Instant::now();
            let other = thread::spawn(move || {
                thread::sleep(Duration::from_millis(50));
                driver.interrupt(on);
            });
            let wake = doing("wait", end.context.wait(on, mode, until()))?;
            let took = start.elapsed();
            other.join().map_err(|_| "the other thread panicked")?;
            ensure(wake == Wake::Interrupted, || format!("{mode:?}, asleep: {wake:?}"))?;
            ensure(took < Duration::from_secs(5), || format!("{mode:?}: woken after {took:?}"))?;
        }
    }
    Ok(String::new())
}

fn ready(env: &mut Environment) -> Result<String, String> {
    let (mut side, mut there, way) = strangers(env)?;
    connect(&mut side, &mut there, way)?;
    side.region(1000, AccessRequest::Local)?;
    let to = there.region(1000, AccessRequest::All)?;
    for (id, mode) in (1..).zip(MODES) {
        side.post(vec![wr(id, Op::Write(to), part(0, 0, 1000))])?;
        let end = here(&side)?;
        let until = Some(Instant::now() + Duration::from_secs(10));
        let wake = doing("wait", end.send_cq.wait(mode, until))?;
        ensure(wake == Wake::Ready, || format!("{mode:?}: {wake:?}"))?;
        // Ready as long as nobody takes it.
        let wake = doing("wait again", end.send_cq.wait(mode, until))?;
        ensure(wake == Wake::Ready, || format!("{mode:?}, again: {wake:?}"))?;
        let taken = side.next(Queue::Send, 0)?;
        ensure(taken.is_some_and(|done| done.id == id), || "nothing to take".into())?;
    }
    Ok(String::new())
}
