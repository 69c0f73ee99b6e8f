//! The errors of UDP sockets as errors of the driver interface. What holds the UDP port of RoCEv2 may be soft-RoCE.

use std::{fs, path::Path};

use naa_udp::{Holder, holder_of, holders};
use roce::wire::ROCE_PORT;
use verbs::Error;

/// The file system in which the Linux kernel lists its modules and RDMA devices.
const SYS: &str = "/sys";

pub(crate) fn socket_error(error: naa_udp::Error) -> Error {
    match error {
        naa_udp::Error::NotConcrete(_) => {
            Error::Invalid("a device needs one concrete local address; `ip addr` lists them")
        }
        naa_udp::Error::NotLocal(_) => Error::NoDevice(error.to_string()),
        naa_udp::Error::AddressInUse { addr } => {
            // Soft-RoCE binds the wildcard addresses of IPv4 and IPv6, and uses no UDP port except 4791. So only a
            // wildcard socket with this port can belong to soft-RoCE.
            let wildcard =
                || holders(Path::new("/proc"), ROCE_PORT).iter().any(|it| it.address.is_unspecified());
            let may_be_soft = addr.port() == ROCE_PORT && wildcard();
            let soft = if may_be_soft { soft_roce(Path::new(SYS)) } else { None };
            Error::AddressInUse { addr, holder: words(&holder_of(addr), soft.as_deref()) }
        }
        naa_udp::Error::NoFiles { addr, source } => {
            Error::io(format!("cannot open a UDP socket on {addr}"), source)
        }
        naa_udp::Error::Io { what, source } => Error::io(format!("cannot {what}"), source),
    }
}

/// Returns the end of an error message whose beginning says that an address "is held by". The text names what holds the
/// address, and tells the user what to do.
fn words(holder: &Holder, soft: Option<&str>) -> String {
    match (holder, soft) {
        (Holder::Hidden | Holder::NoProcess, Some(soft)) => format!(
            "the kernel's soft-RoCE ({soft}), which takes the port on all addresses of this network namespace; \
             use --provider verbs on an address of the device, or an address in another network namespace, or \
             `rmmod rdma_rxe`"
        ),
        _ => {
            format!("{holder}; stop it, or use another address of this machine (on loopback 127.0.0.2 does)")
        }
    }
}

/// Returns a text with the name of the kernel module `rdma_rxe` and the names of the soft-RoCE devices. Returns `None`
/// if the module is not loaded. The kernel module `rdma_rxe` holds the UDP port even if no soft-RoCE device exists. A
/// soft-RoCE device has a file `parent` with the name of its interface.
fn soft_roce(sys: &Path) -> Option<String> {
    let devices = fs::read_dir(sys.join("class/infiniband")).into_iter().flatten().flatten();
    let soft = devices.filter(|device| device.path().join("parent").is_file());
    let mut names: Vec<_> = soft.map(|device| device.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    if !names.is_empty() {
        return Some(format!("rdma_rxe: {}", names.join(", ")));
    }
    sys.join("module/rdma_rxe").is_dir().then(|| "rdma_rxe".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Holder, words};

    #[test]
    fn the_remedy_is_that_of_the_holder() {
        let process = words(&Holder::Process { pid: 7, name: "naa".into() }, Some("rdma_rxe"));
        assert!(process.starts_with("process 7 (naa); stop it"), "{process}");
        for holder in [Holder::NoProcess, Holder::Hidden] {
            let kernel = words(&holder, Some("rdma_rxe: rxe0, rxe1"));
            for part in ["rdma_rxe: rxe0, rxe1", "--provider verbs", "`rmmod rdma_rxe`"] {
                assert!(kernel.contains(part), "{kernel}");
            }
        }
        assert!(words(&Holder::NoProcess, None).contains("outside this container; stop it"));
    }
}
