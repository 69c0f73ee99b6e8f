//! Devices of the process. There is one device for each local address and provider.

use std::{
    collections::BTreeMap,
    fmt, io,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
};

use naa_provider::{BadChoice, Choice, DeviceConfig, Opened, Provider, VARIABLE as PROVIDER_VARIABLE};
use verbs::{Context, DeviceAttr};

use crate::{Error, variable};

/// The environment variable that names the local address to use, instead of the address that the route gives.
pub const LOCAL_IP_VARIABLE: &str = "NAA_LOCAL_IP";

/// The process ID, the address and the provider of a device. The process ID is a part of the key because a forked child
/// cannot use its parent's device.
type Key = (u32, IpAddr, Provider);

/// All devices that are not closed yet. Opening an address again waits until the former device has freed its UDP port.
static OPENED: Mutex<BTreeMap<Key, Weak<Inner>>> = Mutex::new(BTreeMap::new());
static CLOSED: Condvar = Condvar::new();

fn opened() -> MutexGuard<'static, BTreeMap<Key, Weak<Inner>>> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An opened device. Its clones, and all callers in one process that open the same address, share one device.
///
/// If the address belongs to an RDMA device, this RDMA device is used through rdma-core. For any other address, the
/// embedded RoCEv2 stack is used. `NAA_PROVIDER` (auto, verbs or embedded) asks for a provider. [`Device::describe`] says
/// which provider was chosen and why.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    context: Context,
    why: String,
    is_surprising: bool,
    description: String,
    // This field is the last, because the device must be closed before its entry in `OPENED` is removed.
    _entry: Entry,
}

/// Removes a closed device from `OPENED` when dropped.
struct Entry(Key);

impl Drop for Entry {
    fn drop(&mut self) {
        opened().remove(&self.0);
        CLOSED.notify_all();
    }
}

impl Device {
    /// The device on `local`, a concrete address of this machine.
    ///
    /// # Errors
    /// [`Error::Device`] if there is no such address or the address cannot be used, [`Error::Environment`] for a bad
    /// `NAA_PROVIDER`.
    pub fn open(local: IpAddr) -> Result<Self, Error> {
        Self::open_with(local, from_env()?)
    }

    /// Opens the device as [`Self::open`] does, but with the provider `choice` instead of the provider in `NAA_PROVIDER`.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn open_with(local: IpAddr, choice: Choice) -> Result<Self, Error> {
        Self::open_because(local, choice, "which the program gave")
    }

    /// The device from which `peer` is reached. Its address is `NAA_LOCAL_IP` if this variable is set, else the address
    /// from which the route to `peer` starts.
    ///
    /// # Errors
    /// [`Error::Environment`] for a bad `NAA_LOCAL_IP` or `NAA_PROVIDER`, [`Error::Device`] if no route leads to `peer` or
    /// the device cannot be opened.
    pub fn towards(peer: SocketAddr) -> Result<Self, Error> {
        Self::towards_with(peer, from_env()?)
    }

    /// Opens the device as [`Self::towards`] does, but with the provider `choice` instead of the provider in
    /// `NAA_PROVIDER`.
    ///
    /// # Errors
    /// The same errors as [`Self::towards`].
    pub fn towards_with(peer: SocketAddr, choice: Choice) -> Result<Self, Error> {
        match variable(LOCAL_IP_VARIABLE)? {
            Some(value) => Self::open_because(local_ip(&value, peer)?, choice, "which NAA_LOCAL_IP names"),
            None => Self::open_because(
                naa_provider::source_for(peer.ip())?,
                choice,
                &format!("where the route to {peer} begins"),
            ),
        }
    }

    fn open_because(local: IpAddr, choice: Choice, reason: &str) -> Result<Self, Error> {
        let chosen = naa_provider::choose(local, choice)?;
        let key = (std::process::id(), local.to_canonical(), chosen.provider);
        // The lock is held while opening, since two devices on one address would disturb each other.
        let mut opened = opened();
        while let Some(device) = opened.get(&key) {
            if let Some(inner) = device.upgrade() {
                return Ok(Self(inner));
            }
            // The device is being closed.
            opened = CLOSED.wait(opened).unwrap_or_else(PoisonError::into_inner);
        }
        // A program that uses a buffer again then need not wait for its registration.
        let config = DeviceConfig { keep_registrations: true, ..DeviceConfig::default() };
        let Opened { context, why, is_surprising } = chosen.open(&config)?;
        let description = describe(context.attr(), &why, reason);
        tracing::info!("opened {description}");
        let inner = Arc::new(Inner { context, why, is_surprising, description, _entry: Entry(key) });
        opened.insert(key, Arc::downgrade(&inner));
        Ok(Self(inner))
    }

    /// A text for people that says which provider was chosen, on which address, and why.
    pub fn describe(&self) -> &str {
        &self.0.description
    }

    /// "embedded" or "verbs".
    pub fn provider(&self) -> &'static str {
        self.context().attr().provider
    }

    /// A text for people that says which provider was chosen and why, for example "verbs: rxe0 has 10.9.0.1".
    pub fn why(&self) -> &str {
        &self.0.why
    }

    /// Whether a program should print [`Self::why`] although the user did not ask for it. This is so if the embedded
    /// provider was chosen automatically for an address that is not a loopback address, and the machine has an RDMA
    /// device.
    pub fn is_surprising(&self) -> bool {
        self.0.is_surprising
    }

    /// The local address.
    pub fn address(&self) -> IpAddr {
        self.context().attr().address
    }

    /// The device's counters by name. If rxe's hw_counters have the same counter, its name is the same.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.context().driver().counters()
    }

    /// Whether `self` and `other` are the same device.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn context(&self) -> &Context {
        &self.0.context
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.describe()).finish()
    }
}

fn describe(attr: &DeviceAttr, why: &str, reason: &str) -> String {
    let mut text = format!("{} ({why}), the address {reason}", attr.name);
    if !attr.can_listen {
        text.push_str("; another holds UDP port 4791 there, so only embedded peers can be reached");
    }
    text
}

#[cfg(test)]
impl Device {
    /// An embedded device that does not take back accelerators' access to outputs, like a NIC.
    pub(crate) fn that_keeps_access(local: IpAddr) -> Self {
        let config = DeviceConfig { keeps_access: true, ..DeviceConfig::default() };
        let context = naa_provider::open(local, Choice::Embedded, &config).unwrap().context;
        let key = (std::process::id(), local, Provider::Embedded);
        let text = || "embedded, keeping access: for tests".to_owned();
        let (why, description) = (text(), text());
        Self(Arc::new(Inner { context, why, is_surprising: false, description, _entry: Entry(key) }))
    }
}

fn from_env() -> Result<Choice, Error> {
    Choice::from_env().map_err(|BadChoice { value }| Error::Environment {
        name: PROVIDER_VARIABLE,
        value,
        problem: format!("no provider; {}", BadChoice::REMEDY),
    })
}

fn local_ip(value: &str, peer: SocketAddr) -> Result<IpAddr, Error> {
    match value.trim().parse::<IpAddr>() {
        Ok(local) if local.is_ipv4() != peer.is_ipv4() => {
            Err(bad_local_ip(value, &format!("not of the family of {peer}; unset it or choose another")))
        }
        Ok(local) if is_elsewhere(local) => {
            Err(bad_local_ip(value, "not an address of this machine; `ip addr` lists them"))
        }
        Ok(local) => Ok(local),
        Err(_) => Err(bad_local_ip(value, "not an IP address; `ip addr` lists this machine's")),
    }
}

/// Whether `local` is not an address of this machine. Other problems of the address are reported when its device is
/// opened.
fn is_elsewhere(local: IpAddr) -> bool {
    UdpSocket::bind((local, 0)).is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
}

fn bad_local_ip(value: &str, problem: &str) -> Error {
    Error::Environment { name: LOCAL_IP_VARIABLE, value: value.to_owned(), problem: problem.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_address_fits_the_peer() {
        let peer = "192.0.2.1:12345".parse().unwrap();
        assert_eq!(local_ip(" 127.0.3.200 ", peer).unwrap(), IpAddr::from([127, 0, 3, 200]));
        for value in ["host", "::1", "127.0.0.1:1", "192.0.2.77"] {
            let error = local_ip(value, peer).unwrap_err();
            assert!(error.to_string().starts_with("NAA_LOCAL_IP="), "{error}");
        }
    }

    #[test]
    fn a_device_says_whose_it_is_and_why() {
        let device = Device::open_with("127.0.3.202".parse().unwrap(), Choice::Embedded).unwrap();
        assert_eq!((device.provider(), device.why()), ("embedded", "embedded: as asked"));
        assert!(device.describe().contains("(embedded: as asked)"), "{device:?}");
        let same = Device::open_with("127.0.3.202".parse().unwrap(), Choice::Auto).unwrap();
        assert!(Arc::ptr_eq(&device.0, &same.0));
        let error = Device::open_with("127.0.3.202".parse().unwrap(), Choice::Verbs).unwrap_err();
        assert!(error.to_string().contains("--provider embedded"), "{error}");
    }

    #[test]
    fn an_address_is_opened_once_and_again_after_its_end() {
        let open = || Device::open("127.0.3.201".parse().unwrap()).unwrap();
        let (first, second) = (open(), open());
        assert!(Arc::ptr_eq(&first.0, &second.0));
        drop((first, second));
        for _ in 0..20 {
            let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(open)).collect();
            for device in threads.into_iter().map(|thread| thread.join().unwrap()) {
                assert!(device.context().attr().can_listen, "{device:?}");
            }
        }
    }
}
