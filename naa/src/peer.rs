//! Options of the commands that make calls: the accelerator, the local address, and how long to wait.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
    time::Duration,
};

use naa_host::{CallTimeout, DEFAULT_PORT, Device, LayoutChoice, ProviderChoice, SessionConfig};

use crate::{provider, show};

/// The address or name of an accelerator on the command line. A name is looked up when it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerName {
    host: String,
    port: u16,
}

impl FromStr for ServerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        if bare.parse::<IpAddr>().is_ok() {
            return Ok(Self { host: bare.into(), port: DEFAULT_PORT });
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self { host: address.ip().to_string(), port: address.port() });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_| format!("{port} is no port, 1 to 65535"))?),
            None => (text, DEFAULT_PORT),
        };
        if host.is_empty() || host.contains([':', '[', ']', '/']) {
            return Err("write ADDR, ADDR:PORT, [IPV6]:PORT or NAME:PORT".into());
        }
        Ok(Self { host: host.into(), port })
    }
}

impl ServerName {
    /// Opens the device to call from, at `local` or at the address where the route to the server begins, and finds the
    /// server's address. If the name has several addresses, the first one that answers is used.
    pub(crate) fn find(
        &self,
        local: Option<IpAddr>,
        choice: ProviderChoice,
    ) -> anyhow::Result<(Device, SocketAddr)> {
        self.find_within(local, choice, &SessionConfig::default())
    }

    /// Does what [`find`](Self::find) does, with the time limits of `config`.
    fn find_within(
        &self,
        local: Option<IpAddr>,
        choice: ProviderChoice,
        config: &SessionConfig,
    ) -> anyhow::Result<(Device, SocketAddr)> {
        let open = |server| match local {
            Some(local) => Device::open_with(local, choice),
            None => Device::towards_with(server, choice),
        };
        Ok(naa_host::find(naa_host::addresses_of, (&self.host, self.port), config, open)?)
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[derive(Clone, Debug, clap::Args)]
#[group(id = "peer_options")]
pub(crate) struct Args {
    /// The accelerator: ADDR, ADDR:PORT, [IPV6]:PORT or a host name; the port is 12345 unless given
    #[arg(long, value_name = "ADDR[:PORT]")]
    server: ServerName,
    /// Local address to call from [default: NAA_LOCAL_IP, else where the route to the server begins]
    #[arg(long, value_name = "ADDR")]
    local: Option<IpAddr>,
    #[command(flatten)]
    provider: provider::Args,
}

/// The accelerators of a command that may have several.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "peers_options")]
pub(crate) struct ManyArgs {
    /// The accelerator: ADDR, ADDR:PORT, [IPV6]:PORT or a host name; the port is 12345 unless given. May be repeated: then
    /// each session is opened with the accelerator that has the fewest, and those that cannot be reached are tried again
    #[arg(long, value_name = "ADDR[:PORT]", required = true)]
    server: Vec<ServerName>,
    /// Local address to call from [default: NAA_LOCAL_IP, else where the route to the server begins]
    #[arg(long, value_name = "ADDR")]
    local: Option<IpAddr>,
    #[command(flatten)]
    provider: provider::Args,
}

/// How long to wait for it, and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WaitArgs {
    /// Give up when connecting, or a call, takes longer [default: NAA_TIMEOUT, else 10 to connect, and calls for as long
    /// as the server is alive]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// How to wait for the server: spin has the lowest latency and takes a core
    #[arg(long, value_enum, default_value_t = crate::Wait::Adaptive)]
    wait: crate::Wait,
    /// How parameters lie in the server's memory and get there: symmetric, asymmetric, gathered, packed, packed:BYTES or
    /// auto; `naa bench layouts` compares them. A server that takes no layouts gets the symmetric one
    #[arg(long, default_value_t = LayoutChoice::default())]
    layout: LayoutChoice,
}

/// Reads a number of seconds, which must be above 0 and at most a century.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| !time.is_zero() && *time <= CallTimeout::LONGEST)
        .ok_or_else(|| "write a number of seconds above 0 and up to a century, such as 2.5".into())
}

impl Args {
    /// Opens the device to call from. Returns it with the server's address.
    pub(crate) fn open(&self) -> anyhow::Result<(Device, SocketAddr)> {
        self.server.find(self.local, self.provider.choice()?)
    }
}

impl WaitArgs {
    /// Opens the device to call from. Returns it with the server's address and the settings of sessions with the server.
    pub(crate) fn open(&self, peer: &Args) -> anyhow::Result<(Device, SocketAddr, SessionConfig)> {
        let config = self.config()?;
        let (device, server) = peer.server.find_within(peer.local, peer.provider.choice()?, &config)?;
        Ok((device, server, config))
    }

    /// Opens the devices to call from. Returns each with the address of its server, and the settings of sessions.
    pub(crate) fn open_all(
        &self,
        peers: &ManyArgs,
    ) -> anyhow::Result<(Vec<(Device, SocketAddr)>, SessionConfig)> {
        let (config, choice) = (self.config()?, peers.provider.choice()?);
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for server in &peers.server {
            match server.find_within(peers.local, choice, &config) {
                Ok(opened) => found.push(opened),
                Err(error) => missing.push((server, error)),
            }
        }
        let mut missing = missing.into_iter();
        if found.is_empty()
            && let Some((_, first)) = missing.next()
        {
            return Err(first);
        }
        for (server, error) in missing {
            show::error_line(&format!("naa: {server} is left out: {error:#}"));
        }
        Ok((found, config))
    }

    fn config(&self) -> anyhow::Result<SessionConfig> {
        let mut config = SessionConfig { wait: self.wait.into(), ..SessionConfig::default() };
        config.layout = self.layout;
        match self.timeout {
            Some(limit) => (config.setup_timeout, config.call_timeout) = (limit, CallTimeout::After(limit)),
            // The variable is read here, so that a wrong value is reported once and not for each call.
            None => {
                config.call_timeout =
                    config.call_timeout.limit()?.map_or(CallTimeout::Never, CallTimeout::After)
            }
        }
        if self.layout == LayoutChoice::Auto {
            config.layout_rule = naa_host::layout_rule_from_env()?;
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<String, String> {
        text.parse::<ServerName>().map(|name| name.to_string())
    }

    #[test]
    fn servers_are_written_in_many_ways() {
        assert_eq!(parsed("10.9.0.1").unwrap(), "10.9.0.1:12345");
        assert_eq!(parsed("10.9.0.1:7").unwrap(), "10.9.0.1:7");
        assert_eq!(parsed("fd00:9::1").unwrap(), "fd00:9::1:12345");
        assert_eq!(parsed("[fd00:9::1]").unwrap(), "fd00:9::1:12345");
        assert_eq!(parsed("[fd00:9::1]:80").unwrap(), "fd00:9::1:80");
        assert_eq!(parsed("node7").unwrap(), "node7:12345");
        assert_eq!(parsed("node7:99").unwrap(), "node7:99");
        for bad in ["", ":5", "node7:", "node7:99999", "a:b:c", "http://x"] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_that_do_not_exist_are_named() {
        let server = "no-such-host.invalid".parse::<ServerName>().unwrap();
        let error = server.find(None, ProviderChoice::Embedded).unwrap_err();
        assert!(error.to_string().contains("no-such-host.invalid"), "{error}");
    }

    #[test]
    fn times_are_more_than_none_and_at_most_a_century() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["0", "-1", "x", "inf", "NaN", "1e19"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
