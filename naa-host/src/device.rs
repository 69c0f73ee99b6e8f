//! The devices that a process has opened. A process has at most one device for each local address and provider.

use std::{
    collections::BTreeMap,
    fmt, io,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
};

use naa_provider::{
    BadChoice, DeviceConfig, Opened, Provider, ProviderChoice, VARIABLE as PROVIDER_VARIABLE,
};
use verbs::{Context, DeviceAttr};

use crate::{Error, variable};

/// The environment variable that names the local address to use. If `NAA_LOCAL_IP` is not set, the local address is the
/// one that the routing table selects for packets to the peer.
pub const LOCAL_IP_VARIABLE: &str = "NAA_LOCAL_IP";

/// The process ID, the address and the provider of a device. The process ID is a part of the key because a forked child
/// cannot use its parent's device.
type Key = (u32, IpAddr, Provider);

/// All devices that are not closed yet. If the previous device on an address is still being closed, opening this
/// address waits until the previous device has freed its UDP port.
static OPENED: Mutex<BTreeMap<Key, Weak<Inner>>> = Mutex::new(BTreeMap::new());
static CLOSED: Condvar = Condvar::new();

fn opened() -> MutexGuard<'static, BTreeMap<Key, Weak<Inner>>> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An opened device. Clones of a `Device` refer to the same device. A process that opens the same address with the same
/// provider several times gets the same device each time, as long as the device is open.
///
/// The embedded provider is used if the address does not belong to an RDMA device. It is also used if the address
/// belongs to a soft-RoCE device but rdma-core cannot be used. Otherwise, the RDMA device with the address is used
/// through rdma-core. The environment variable `NAA_PROVIDER` can choose the provider instead (`verbs` or `embedded`).
/// [`Device::describe`] says which provider was chosen and why.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

/// The last reference to a device.
#[cfg(feature = "tokio")]
pub(crate) struct LastReference(#[expect(dead_code, reason = "it is only dropped")] Inner);

struct Inner {
    context: Context,
    why: String,
    is_surprising: bool,
    description: String,
    // Rust drops fields in the order of their declaration. This field is the last one, because the device must be
    // closed before its entry in `OPENED` is removed.
    _entry: Entry,
}

/// The key of a device in the map [`OPENED`]. When an `Entry` is dropped, the entry of the closed device is removed
/// from the map.
struct Entry(Key);

impl Drop for Entry {
    fn drop(&mut self) {
        opened().remove(&self.0);
        CLOSED.notify_all();
    }
}

impl Device {
    /// Opens the device on `local`, which must be an address of this machine, and not the unspecified address (0.0.0.0
    /// or ::).
    ///
    /// # Errors
    /// Fails with [`Error::Device`] if this machine does not have the address `local` or the address cannot be used.
    /// Fails with [`Error::Environment`] if `NAA_PROVIDER` is not valid.
    pub fn open(local: IpAddr) -> Result<Self, Error> {
        Self::open_with(local, from_env()?)
    }

    /// Opens the device as [`Self::open`] does, but with the provider `choice` instead of the provider in
    /// `NAA_PROVIDER`.
    ///
    /// # Errors
    /// Fails with [`Error::Device`] if this machine does not have the address `local` or the address cannot be used.
    pub fn open_with(local: IpAddr, choice: ProviderChoice) -> Result<Self, Error> {
        Self::open_because(local, choice, "which the program gave")
    }

    /// Opens the device from which `peer` is reached. The device's address is `NAA_LOCAL_IP` if this variable is set.
    /// Otherwise, it is the local address from which packets to `peer` leave according to the routing table.
    ///
    /// # Errors
    /// Fails with [`Error::Environment`] if `NAA_LOCAL_IP` or `NAA_PROVIDER` is not valid. Fails with [`Error::Device`]
    /// if no route leads to `peer` or the device cannot be opened.
    pub fn towards(peer: SocketAddr) -> Result<Self, Error> {
        Self::towards_with(peer, from_env()?)
    }

    /// Opens the device as [`Self::towards`] does, but with the provider `choice` instead of the provider in
    /// `NAA_PROVIDER`.
    ///
    /// # Errors
    /// Fails with the same errors as [`Self::towards`].
    pub fn towards_with(peer: SocketAddr, choice: ProviderChoice) -> Result<Self, Error> {
        match variable(LOCAL_IP_VARIABLE)? {
            Some(value) => Self::open_because(local_ip(&value, peer)?, choice, "which NAA_LOCAL_IP names"),
            None => Self::open_because(
                naa_provider::source_for(peer.ip())?,
                choice,
                &format!("where the route to {peer} begins"),
            ),
        }
    }

    fn open_because(local: IpAddr, choice: ProviderChoice, reason: &str) -> Result<Self, Error> {
        let chosen = naa_provider::choose(local, choice)?;
        let key = (std::process::id(), local.to_canonical(), chosen.provider);
        // The lock is held while a device is opened, so that two threads cannot open two devices with the same key.
        let mut opened = opened();
        while let Some(device) = opened.get(&key) {
            if let Some(inner) = device.upgrade() {
                return Ok(Self(inner));
            }
            // The previous device on the address `local` is being closed. This thread sleeps until the previous device
            // is closed and its entry is removed from the map of open devices.
            opened = CLOSED.wait(opened).unwrap_or_else(PoisonError::into_inner);
        }
        // The device keeps the registrations of buffers after a session has ended. If a program uses a buffer in a
        // second session, it then need not wait until the buffer is registered again.
        let config = DeviceConfig { keep_registrations: true, ..DeviceConfig::default() };
        let Opened { context, why, is_surprising } = chosen.open(&config)?;
        let description = describe(context.attr(), &why, reason);
        tracing::info!("opened {description}");
        let inner = Arc::new(Inner { context, why, is_surprising, description, _entry: Entry(key) });
        opened.insert(key, Arc::downgrade(&inner));
        Ok(Self(inner))
    }

    /// Returns a text that tells people which provider was chosen, on which address, and why.
    pub fn describe(&self) -> &str {
        &self.0.description
    }

    /// Returns the name of the device's provider, "embedded" or "verbs".
    pub fn provider(&self) -> &'static str {
        self.context().attr().provider
    }

    /// Returns a text that tells people which provider was chosen and why, for example "verbs: rxe0 has 10.9.0.1".
    pub fn why(&self) -> &str {
        &self.0.why
    }

    /// Returns true if a program should print the text of [`Self::why`] even if the user did not ask for this text. The
    /// result is true if the embedded provider was chosen automatically for an address that is not a loopback address,
    /// although the machine has an RDMA device.
    pub fn is_surprising(&self) -> bool {
        self.0.is_surprising
    }

    /// Returns the local address of the device.
    pub fn address(&self) -> IpAddr {
        self.context().attr().address
    }

    /// Returns the name and the value of each counter of the device. If a counter also exists in the hw_counters of the
    /// Linux kernel's soft-RoCE device (rxe), both have the same name.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.context().driver().counters()
    }

    /// Returns true if `self` and `other` are the same device.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the device itself if `self` is its last reference. When the result is dropped, the device is closed, which
    /// may take 300 ms. If several references are given up at the same time by this method, exactly one is the last.
    #[cfg(feature = "tokio")]
    pub(crate) fn into_last(self) -> Option<LastReference> {
        Arc::into_inner(self.0).map(LastReference)
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
    /// Opens an embedded device on which an accelerator keeps its access to outputs after a call, as on a NIC.
    pub(crate) fn that_keeps_access(local: IpAddr) -> Self {
        let config = DeviceConfig { keeps_access: true, ..DeviceConfig::default() };
        let context = naa_provider::open(local, ProviderChoice::Embedded, &config).unwrap().context;
        let key = (std::process::id(), local, Provider::Embedded);
        let text = || "embedded, keeping access: for tests".to_owned();
        let (why, description) = (text(), text());
        Self(Arc::new(Inner { context, why, is_surprising: false, description, _entry: Entry(key) }))
    }
}

fn from_env() -> Result<ProviderChoice, Error> {
    ProviderChoice::from_env().map_err(|BadChoice { value }| Error::Environment {
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

/// Returns true if `local` is not an address of this machine. This function only checks whether this machine has the
/// address `local`; all other problems of `local` are reported when the device on `local` is opened.
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
        let device = Device::open_with("127.0.3.202".parse().unwrap(), ProviderChoice::Embedded).unwrap();
        assert_eq!((device.provider(), device.why()), ("embedded", "embedded: as asked"));
        assert!(device.describe().contains("(embedded: as asked)"), "{device:?}");
        let same = Device::open_with("127.0.3.202".parse().unwrap(), ProviderChoice::Auto).unwrap();
        assert!(Arc::ptr_eq(&device.0, &same.0));
        let error = Device::open_with("127.0.3.202".parse().unwrap(), ProviderChoice::Verbs).unwrap_err();
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
