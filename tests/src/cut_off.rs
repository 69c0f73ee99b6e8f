//! A session whose futures are dropped at random polls.

use std::{
    future::Future,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use naa_host::{
    Buffer, Device, Error, Param, SessionConfig, U24, WaitMode,
    asynchronous::{Session, SessionState},
};
use simnet::Random;

use crate::front::LATER;

/// A future that is polled at most this number of times.
struct Polls<F> {
    future: Pin<Box<F>>,
    left: u32,
}

impl<F: Future> Future for Polls<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        if let Poll::Ready(output) = self.future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        if self.left == 0 { Poll::Ready(None) } else { Poll::Pending }
    }
}

/// Drops `future` after this number of polls.
fn polls<F: Future>(future: F, left: u32) -> Polls<F> {
    Polls { future: Box::pin(future), left }
}

/// Uses one session whose futures are dropped after random numbers of polls, which `seed` determines. Memory that the
/// session has returned must not change for the time `quiet`.
///
/// # Panics
/// Panics if the session does not do what its documentation says.
pub async fn cut_off(
    seed: u64,
    device: &Device,
    server: SocketAddr,
    config: &SessionConfig,
    quiet: Duration,
) {
    const LEN: usize = 2048;
    let mut random = Random::new(seed, 0);
    let mode = [WaitMode::Block, WaitMode::Adaptive][random.below(2) as usize];
    let params = [Param::in_out(LEN)];
    let config = SessionConfig { wait: mode, ..config.clone() };
    let buffers = vec![Buffer::new(LEN).unwrap()];
    let connecting = Session::connect_with(device, server, &params, buffers, &config);
    let Some(session) = polls(connecting, random.below(30) as u32).await else { return };
    let mut session = session.unwrap();
    for round in 0..random.below(4) {
        let byte = round as u8 ^ seed as u8;
        if session.state() == SessionState::Idle {
            session.write(0, 0, &[byte; LEN]).unwrap();
            let call = session.call_with(LATER, millis(random.below(2) as u32));
            let ended = polls(call, random.below(6) as u32).await;
            if let Some(ended) = ended {
                ended.unwrap();
            } else if session.state() == SessionState::Idle {
                // The future was never polled.
                assert_eq!(*session.bytes(0, ..).unwrap(), [byte; LEN]);
                continue;
            }
        }
        while session.state() == SessionState::InCall {
            assert!(matches!(session.bytes(0, ..), Err(Error::InCall)));
            match random.below(4) {
                0 => break,
                n => match polls(session.outcome(), n as u32).await {
                    Some(outcome) => _ = outcome.unwrap().into_result().unwrap(),
                    None => tokio::task::yield_now().await,
                },
            }
        }
        match session.state() {
            SessionState::Idle => assert_eq!(*session.bytes(0, ..).unwrap(), [byte.wrapping_add(1); LEN]),
            SessionState::InCall => break,
            SessionState::Over => panic!("{:?}", session.not_over()),
        }
    }
    let mut buffer = session.into_buffers().unwrap().remove(0);
    let mine = [!(seed as u8); LEN];
    buffer.write(0, &mine);
    tokio::time::sleep(quiet).await;
    assert_eq!(buffer.to_vec(), mine, "a call that was given up has written");
}

fn millis(time: u32) -> U24 {
    U24::new(time).expect("less than 2^24 ms")
}
