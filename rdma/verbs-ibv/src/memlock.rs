//! Makes the errors of failed operations that lock memory. If the limit of locked memory can be the cause, the error
//! contains the limit and a remedy.

use std::{fs, io};

use verbs::Error;

/// Returns the error for a failed operation that locks memory. `what` is the verb phrase of the error text, for example
/// `makes no queue pair`.
pub(crate) fn refused(what: &str, error: io::Error) -> Error {
    let limit = fs::read_to_string("/proc/self/limits").ok().and_then(|text| soft_limit(&text));
    explained(what, error, limit)
}

/// Returns the error for a failed operation that locks memory. `limit` is the soft limit of locked memory in bytes;
/// `None` means that there is no limit.
fn explained(what: &str, error: io::Error, limit: Option<u64>) -> Error {
    match (error.raw_os_error(), limit) {
        (Some(libc::ENOMEM | libc::EAGAIN | libc::EPERM), Some(limit)) => Error::Exhausted {
            what: "memory that may be locked (memlock), which RDMA needs",
            limit,
            remedy: "raise it with `ulimit -l unlimited`, or memlock in /etc/security/limits.conf, or \
                     LimitMEMLOCK=infinity of a systemd unit",
        },
        // The text of an `Error::Io` with the number EAGAIN advises `ulimit -u`, which helps if a thread cannot be
        // started. That advice would be wrong here, so this error has no number.
        (Some(libc::EAGAIN), None) => Error::io(
            format!("the device {what}"),
            io::Error::other(format!("{error}; the device has no resources left, use fewer sessions")),
        ),
        _ => Error::io(format!("the device {what}"), error),
    }
}

/// Returns the soft limit of locked memory in bytes, or `None` if there is no limit.
fn soft_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_resources_is_not_blamed_on_the_limit_of_processes() {
        let text = |errno, limit| {
            let error = explained("makes no queue pair", io::Error::from_raw_os_error(errno), limit);
            verbs::error_text(&error)
        };
        let unlimited = text(libc::EAGAIN, None);
        assert!(unlimited.contains("fewer sessions") && !unlimited.contains("ulimit"), "{unlimited}");
        assert!(text(libc::EAGAIN, Some(65536)).contains("ulimit -l"));
        assert!(text(libc::EMFILE, None).contains("ulimit -n"));
    }

    #[test]
    fn the_limit_is_named_where_there_is_one() {
        let line = |limit: &str| {
            format!("Max processes 1 1 processes\nMax locked memory  {limit}  {limit}  bytes\n")
        };
        assert_eq!(soft_limit(&line("65536")), Some(65536));
        assert_eq!(soft_limit(&line("unlimited")), None);
        assert_eq!(soft_limit(""), None);
    }
}
