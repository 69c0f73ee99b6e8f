//! Reads the rules of the packet filter, if the user may read them.

use std::{
    io::Read,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::machine::{Capability, Machine, Module};

/// Time limit of a program that lists rules.
const TIME_LIMIT: Duration = Duration::from_secs(3);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// The rules were not read, for this reason.
    NotLooked(String),
    /// The rules as `nft list ruleset` and `iptables -S` print them.
    Read(String),
}

/// What the rules do with incoming packets to UDP port 4791.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Lines that name the port.
    pub(crate) named: Vec<String>,
    /// Chains for incoming packets that drop what no rule accepts.
    pub(crate) closed: Vec<String>,
}

/// Reads the rules. It runs only programs that load no kernel module, because listing rules would otherwise install an
/// empty packet filter.
pub(crate) fn read(machine: &Machine) -> Rules {
    let nft = matches!(machine.module("nf_tables"), Module::Loaded | Module::NoModules);
    let tables = machine.read("proc/net/ip_tables_names").unwrap_or_default();
    let tables6 = machine.read("proc/net/ip6_tables_names").unwrap_or_default();
    if !machine.has_capability(Capability::NetAdmin) {
        return Rules::NotLooked("needs root".into());
    }
    let mut wanted: Vec<&[&str]> = Vec::new();
    if nft {
        wanted.push(&["nft", "list", "ruleset"]);
    }
    if !tables.is_empty() {
        wanted.push(&["iptables-legacy", "-S", "INPUT"]);
    }
    if !tables6.is_empty() {
        wanted.push(&["ip6tables-legacy", "-S", "INPUT"]);
    }
    let mut text = String::new();
    for command in wanted {
        match output(command, TIME_LIMIT) {
            Ok(listed) => text.push_str(&listed),
            Err(why) => return Rules::NotLooked(why),
        }
    }
    Rules::Read(text)
}

/// The output of a program, if it succeeds within the time limit.
fn output(command: &[&str], limit: Duration) -> Result<String, String> {
    let name = command[0];
    let start = |program: &str| {
        let mut start = Command::new(program);
        start.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
    };
    // Some users do not have sbin in PATH.
    let child = start(name).or_else(|_| start(&format!("/usr/sbin/{name}")));
    let mut child = child.map_err(|_| format!("there is no `{name}` here to ask"))?;
    let mut stdout = child.stdout.take().expect("it is piped");
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        // Sending fails if reading took too long and nobody waits any more.
        let _ = sender.send(stdout.read_to_string(&mut text).map(|_| text));
    });
    let deadline = Instant::now() + limit;
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.success(),
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
            _ => {
                // This fails only if the program has ended meanwhile.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("`{name}` did not answer within {limit:?}"));
            }
        }
    };
    // A process that the program started may hold the output open after the program itself has ended.
    let left = deadline.saturating_duration_since(Instant::now());
    let text = receiver.recv_timeout(left).ok().and_then(Result::ok).filter(|_| ended);
    text.ok_or_else(|| format!("`{}` failed", command.join(" ")))
}

/// Evaluates the text of [`Rules::Read`].
pub(crate) fn assess(text: &str) -> Verdict {
    let mut verdict = Verdict::default();
    let (mut table, mut chain, mut input) = (String::new(), String::new(), false);
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("table ") {
            table = name.trim_end_matches(['{', ' ']).to_owned();
        } else if let Some(name) = line.strip_prefix("chain ") {
            chain = format!("{table} {}", name.trim_end_matches(['{', ' ']));
            input = false;
        } else if line == "-P INPUT DROP" {
            verdict.closed.push("iptables INPUT".into());
        } else if line.contains("hook input") {
            input = true;
        }
        let word = |wanted: &str| line.split([' ', ',', ';']).any(|word| word == wanted);
        // The last rule of many firewalls refuses all other packets, whatever the policy of the chain is.
        let refuses = line.strip_prefix("counter ").unwrap_or(line);
        let closes =
            input && (line.contains("policy drop") || refuses.starts_with("reject") || refuses == "drop");
        let closes = closes || line.starts_with("-A INPUT -j REJECT") || line == "-A INPUT -j DROP";
        if closes && !verdict.closed.contains(&chain) {
            verdict.closed.push(if chain.is_empty() { "iptables INPUT".into() } else { chain.clone() });
        }
        if word("4791") {
            verdict.named.push(line.to_owned());
        }
    }
    verdict.closed.dedup();
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_chain_is_found_by_policy_or_by_its_last_rule() {
        let text = "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy drop;\n\
                    \t\tct state established accept\n\t}\n\tchain forward {\n\t\ttype filter hook forward priority \
                    filter; policy drop;\n\t}\n}\n";
        let verdict = assess(text);
        assert_eq!(verdict, Verdict { named: vec![], closed: vec!["inet filter input".into()] });
        let text = "table inet x {\n chain in {\n type filter hook input priority 0; policy accept;\n udp dport { \
                    53, 4791 } accept\n reject with icmpx admin-prohibited\n }\n}";
        let verdict = assess(text);
        assert_eq!(verdict.closed, ["inet x in"]);
        assert_eq!(verdict.named, ["udp dport { 53, 4791 } accept"]);
        let legacy = assess("-P INPUT DROP\n-A INPUT -p udp -m udp --dport 4791 -j ACCEPT\n");
        assert_eq!((legacy.closed.len(), legacy.named.len()), (1, 1));
        assert_eq!(
            assess("-P INPUT ACCEPT\n-A INPUT -p udp -m udp --dport 47910 -j DROP\n"),
            Verdict::default()
        );
    }

    #[test]
    fn a_program_that_left_its_output_to_another_is_given_up() {
        let begun = Instant::now();
        let answer = output(&["sh", "-c", "sleep 20 & echo rules"], Duration::from_secs(1));
        assert!(answer.is_err() && begun.elapsed() < Duration::from_secs(15), "{answer:?}");
    }

    #[test]
    fn a_program_that_hangs_or_is_missing_is_given_up() {
        let short = Duration::from_millis(50);
        assert_eq!(output(&["printf", "x"], TIME_LIMIT).unwrap(), "x");
        assert!(output(&["sleep", "100"], short).unwrap_err().contains("did not answer"));
        assert!(output(&["naa-no-such-program"], short).unwrap_err().contains("there is no"));
        assert!(output(&["false"], TIME_LIMIT).unwrap_err().contains("failed"));
    }
}
