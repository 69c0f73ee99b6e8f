//! A connection that is reset when it is given up, so that nothing that was written on it arrives later.

use std::time::{Duration, Instant};

use proto::sn_p4::v2::smartnic_p4_client::SmartnicP4Client;
use tokio::runtime::{Builder, Runtime};

use super::SmartNicError;
use naa_grpc::{AtEnd, Bearer, Calls, Credentials, Reach, innermost};

pub(super) type Smartnic = SmartnicP4Client<Calls>;

/// A connection that was not used for longer is made anew: nothing answers its pings while no call is made.
const IDLE: Duration = Duration::from_secs(10);

/// Our data plane can tell two counters of each of 65536 members.
const MOST_ANSWER: usize = 8 << 20;

/// Where a SmartNIC is, and how one connects to it.
pub(super) struct SmartNicAddress {
    /// As it was given, for errors.
    pub(super) name: String,
    reach: Reach,
    bearer: Bearer,
}

impl SmartNicAddress {
    pub(super) fn new(address: &str, credentials: &Credentials) -> Result<Self, SmartNicError> {
        let reach = Reach::new(address, credentials, AtEnd::Reset);
        let reach = reach.ok_or_else(|| SmartNicError::Address(address.to_owned()))?;
        Ok(Self { name: address.to_owned(), reach, bearer: credentials.bearer() })
    }
}

pub(super) struct SmartNicConnection {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    smartnic: Smartnic,
    used: Instant,
}

impl SmartNicConnection {
    pub(super) fn new(address: &SmartNicAddress, within: Duration) -> Result<Self, SmartNicError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(SmartNicError::Runtime)?;
        let Reach { endpoint, connector } = &address.reach;
        let connecting = endpoint.connect_with_connector(connector.clone());
        let connected = runtime.block_on(async { tokio::time::timeout(within, connecting).await });
        let why = match connected {
            Ok(Ok(channel)) => {
                let smartnic = SmartnicP4Client::with_interceptor(channel, address.bearer.clone());
                let smartnic = smartnic.max_decoding_message_size(MOST_ANSWER);
                return Ok(Self { runtime: Some(runtime), smartnic, used: Instant::now() });
            }
            Ok(Err(error)) => {
                connector.failures.take().map_or_else(|| innermost(&error), |failure| failure.to_string())
            }
            Err(_) => format!("no answer within {within:?}"),
        };
        runtime.shutdown_background();
        Err(SmartNicError::Connect { plane: address.name.clone(), why })
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.used.elapsed() < IDLE
    }

    /// What a call gives, or `None` if it takes too long.
    pub(super) fn run<T>(
        &mut self,
        within: Duration,
        call: impl AsyncFnOnce(&mut Smartnic) -> T,
    ) -> Option<T> {
        let runtime = self.runtime.as_ref()?;
        let smartnic = &mut self.smartnic;
        let result = runtime.block_on(async { tokio::time::timeout(within, call(smartnic)).await });
        self.used = Instant::now();
        result.ok()
    }
}

impl Drop for SmartNicConnection {
    fn drop(&mut self) {
        // Looking up a name may take long and cannot be stopped.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
