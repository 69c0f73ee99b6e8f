//! Devices that listeners of one process share: an address can be opened once.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use naa_provider::{DeviceConfig, Opened, ProviderChoice};
use verbs::{Context, Driver, Error};

/// By process, since a parent's are not its child's.
type Key = (u32, IpAddr);

static OPENED: Mutex<BTreeMap<Key, Weak<dyn Driver>>> = Mutex::new(BTreeMap::new());

/// The device on `local`, and which it is and why, for people.
pub(crate) fn open(local: IpAddr, choice: ProviderChoice) -> Result<(Context, String), Error> {
    // Held while opening: two devices on one address would be in each other's way.
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (std::process::id(), local.to_canonical());
    if let Some(driver) = opened.get(&key).and_then(Weak::upgrade) {
        let context = Context::new(driver);
        let name = context.attr().name.clone();
        return Ok((context, name));
    }
    let config = DeviceConfig { must_listen: true, ..DeviceConfig::default() };
    let Opened { context, why, .. } = naa_provider::open(local, choice, &config)?;
    opened.retain(|_, driver| driver.strong_count() > 0);
    opened.insert(key, Arc::downgrade(context.driver()));
    let name = format!("{} ({why})", context.attr().name);
    Ok((context, name))
}
