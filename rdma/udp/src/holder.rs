//! Finds the process that holds a UDP address, as far as `/proc` tells (proc(5), `/proc/net/udp`).

use std::{
    fmt, fs,
    io::{self, Read},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};

const PROC: &str = "/proc";

/// The size in bytes of the buffer into which a table is read, so that few reads suffice. The Linux kernel returns at most
/// a page of the table for each read, and remembers only how many sockets it has returned. If one of these sockets is
/// closed before the next read, that read skips a socket.
const TABLE_LEN: usize = 64 << 10;
/// The maximum number of times that the tables are read in search of a socket that is known to exist.
const ATTEMPTS: usize = 3;

/// Returns the holder of the socket that prevents other sockets from binding `addr`.
pub fn holder_of(addr: SocketAddr) -> Holder {
    let proc = Path::new(PROC);
    socket(proc, addr).map_or(Holder::Hidden, |inode| process(proc, &inode))
}

/// A UDP socket, with the address to which it is bound and the process that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The address of the socket. The address 0.0.0.0 stands for every IPv4 address; the address `::` stands for every
    /// IPv6 address and usually also for every IPv4 address.
    pub address: IpAddr,
    /// The process that holds the socket, as far as this process can find out.
    pub holder: Holder,
}

/// The holder of a socket, as far as `/proc` tells. The holder is a process, or the Linux kernel itself. A `Holder` is
/// printed as a text that fits after the words "is held by".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A process holds the socket.
    Process {
        /// The process id.
        pid: u32,
        /// The name of the program, from `/proc/PID/comm`.
        name: String,
    },
    /// The holder is unknown, because this process has no permission to read the file descriptors of some processes, or
    /// because `/proc` does not list the socket.
    Hidden,
    /// No process in `/proc` has the socket open: the socket belongs to the Linux kernel, or to a process outside
    /// this container.
    NoProcess,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, name } => write!(f, "process {pid} ({name})"),
            Self::Hidden => f.write_str("another process"),
            Self::NoProcess => f.write_str("the kernel or a process outside this container"),
        }
    }
}

/// The sockets on UDP port `port` in this network namespace, each with its address and holder. `proc` is `/proc`, or a
/// folder with the same structure.
pub fn holders(proc: &Path, port: u16) -> Vec<Held> {
    let mut found = Vec::new();
    for table in ["udp", "udp6"] {
        for (address, inode) in sockets(&read_table(proc, table), port) {
            let holder = process(proc, &inode);
            let held = Held { address, holder };
            if !found.contains(&held) {
                found.push(held);
            }
        }
    }
    found
}

/// The addresses and inodes of the sockets on UDP port `port`. `table` is the content of `/proc/net/udp` or
/// `/proc/net/udp6`.
fn sockets(table: &str, port: u16) -> Vec<(IpAddr, String)> {
    let port = format!("{port:04X}");
    let lines = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let of = |fields: Vec<&str>| {
        let (ip, its_port) = fields.get(1)?.split_once(':')?;
        let inode = fields.get(9)?.to_string();
        (its_port == port).then(|| Some((address(ip)?, inode)))?
    };
    lines.filter_map(of).collect()
}

/// Parses an address as `/proc/net/udp` prints it. The address consists of 32-bit words in network order. The Linux
/// kernel reads each word as a native integer, and prints this integer in hexadecimal digits.
fn address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(text.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let octets: [u8; 16] = words.concat().try_into().ok()?;
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

/// Returns the content of `/proc/net/udp` or `/proc/net/udp6`, as `name` says, or "" if it cannot be read.
fn read_table(proc: &Path, name: &str) -> String {
    let mut table = String::with_capacity(TABLE_LEN);
    let read = fs::File::open(proc.join("thread-self/net").join(name))
        .and_then(|mut file| file.read_to_string(&mut table));
    read.map(|_| table).unwrap_or_default()
}

/// The inode of the socket that prevents other sockets from binding `addr`.
fn socket(proc: &Path, addr: SocketAddr) -> Option<String> {
    // A socket with the wildcard address of IPv6 usually also holds its port for all IPv4 addresses.
    let tables: &[&str] = if addr.is_ipv4() { &["udp", "udp6"] } else { &["udp6"] };
    (0..ATTEMPTS).find_map(|_| tables.iter().find_map(|name| inode(&read_table(proc, name), addr)))
}

/// The inode of the socket that is bound to `addr`, or to a wildcard address with the port of `addr`. `table` is the
/// content of `/proc/net/udp` or `/proc/net/udp6`.
fn inode(table: &str, addr: SocketAddr) -> Option<String> {
    let holds = |(ip, _): &(IpAddr, String)| *ip == addr.ip() || ip.is_unspecified();
    sockets(table, addr.port()).into_iter().rfind(holds).map(|(_, inode)| inode)
}

/// The process that has a file descriptor of the socket with the inode `inode`.
fn process(proc: &Path, inode: &str) -> Holder {
    let wanted = format!("socket:[{inode}]");
    let mut found = Holder::NoProcess;
    for entry in fs::read_dir(proc).into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let mut descriptors = match fs::read_dir(entry.path().join("fd")) {
            Ok(descriptors) => descriptors,
            // The process `pid` ended after `/proc` was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => {
                found = Holder::Hidden;
                continue;
            }
        };
        let holds =
            |link: fs::DirEntry| fs::read_link(link.path()).is_ok_and(|to| to.as_os_str() == &*wanted);
        if descriptors.any(|link| link.is_ok_and(holds)) {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            return Holder::Process { pid, name: name.trim_end().into() };
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{IpAddr, inode, sockets};

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

    #[test]
    #[cfg(target_endian = "little")]
    fn all_sockets_of_a_port_are_listed() {
        let found = sockets(TABLE, 4791);
        assert_eq!(found, [(IpAddr::from([127, 0, 0, 1]), "31337".to_owned())]);
        let six = "header\n 1: 000080FE00000000FF00FC00010000FE:12B7 0:0 07 0:0 0:0 0 0 0 5 2 0 0\n";
        assert_eq!(sockets(six, 4791), [("fe80::fc:ff:fe00:1".parse().unwrap(), "5".to_owned())]);
    }
}
