//! Who holds a UDP address, as far as `/proc` tells (proc(5), `/proc/net/udp`).

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
    path::Path,
};

/// The holder of `addr`, in words that fit after "is held by".
pub(super) fn of(addr: SocketAddr) -> String {
    let Some(inode) = socket(addr) else { return "another process".into() };
    match process(&inode) {
        Found::Process { pid, name } => format!("process {pid} ({name})"),
        Found::Hidden => "another process".into(),
        Found::Nobody => "the kernel (soft-RoCE?) or a process outside this container".into(),
    }
}

/// The inode of the socket that keeps others from `addr`.
fn socket(addr: SocketAddr) -> Option<String> {
    let table =
        |name: &str| fs::read_to_string(Path::new("/proc/thread-self/net").join(name)).unwrap_or_default();
    // A wildcard of IPv6 may hold the IPv4 port too.
    let tables: &[&str] = if addr.is_ipv4() { &["udp", "udp6"] } else { &["udp6"] };
    tables.iter().find_map(|name| inode(&table(name), addr))
}

/// The inode in the line of `table` for `addr` itself or for a wildcard with its port.
fn inode(table: &str, addr: SocketAddr) -> Option<String> {
    let exact = hex(addr.ip());
    let port = format!("{:04X}", addr.port());
    let lines = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let held = lines.filter_map(|fields| {
        let (ip, its_port) = fields.get(1)?.split_once(':')?;
        let same = its_port == port && (ip == exact || ip.bytes().all(|digit| digit == b'0'));
        same.then(|| fields.get(9).map(|inode| inode.to_string()))?
    });
    held.last()
}

/// An address as the table prints it: 32-bit words of network order, each read as a native integer.
fn hex(ip: IpAddr) -> String {
    let octets = match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let words = octets.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    words.map(|word| format!("{word:08X}")).collect()
}

enum Found {
    Process {
        pid: u32,
        name: String,
    },
    /// There are processes that this one may not look into.
    Hidden,
    Nobody,
}

/// The process with a descriptor of the socket.
fn process(inode: &str) -> Found {
    let wanted = format!("socket:[{inode}]");
    let mut found = Found::Nobody;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let mut descriptors = match fs::read_dir(entry.path().join("fd")) {
            Ok(descriptors) => descriptors,
            // It has ended since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => {
                found = Found::Hidden;
                continue;
            }
        };
        let holds =
            |link: fs::DirEntry| fs::read_link(link.path()).is_ok_and(|to| to.as_os_str() == &*wanted);
        if descriptors.any(|link| link.is_ok_and(holds)) {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            return Found::Process { pid, name: name.trim_end().into() };
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::inode;

    const TABLE: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  100: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 31337 2 0000000000000000 0
  200: 00000000:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4711 2 0000000000000000 0
";

    #[test]
    #[cfg(target_endian = "little")]
    fn address_and_wildcard_are_found() {
        let find = |addr: &str| inode(TABLE, addr.parse().expect("an address"));
        assert_eq!(find("127.0.0.1:4791").as_deref(), Some("31337"));
        assert_eq!(find("127.0.0.2:4791"), None);
        assert_eq!(find("10.0.0.1:53").as_deref(), Some("4711"));
    }
}
