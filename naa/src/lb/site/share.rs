//! `naa lb workers`.

use clap::Subcommand;
use ejfat_client::messages as pb;
use serde_json::json;

use super::Of;

pub(super) const EXAMPLES: &str = "Examples:
  naa lb status                                    shows the numbers of the sessions
  naa lb workers remove 7                          worker session 7 ends
  naa lb workers demand 7=0-127 8=128-255          slots 0 to 127 are session 7's
  naa lb workers demand                            removes all slot demands";

#[derive(Clone, Debug, Subcommand)]
pub(in crate::lb) enum Command {
    /// End worker sessions, which then get no more events
    ///
    /// A worker that still runs registers again at once, as it does after a control plane has lost its sessions: end the worker
    /// itself by Ctrl-C or SIGTERM. The command is for sessions whose workers are gone.
    #[command(after_help = "Examples:\n  naa lb workers remove 7 8")]
    Remove {
        /// The numbers of sessions
        #[arg(value_name = "SESSION", required = true)]
        sessions: Vec<String>,
        #[command(flatten)]
        of: Of,
    },
    /// Set the slot demands of all sessions of a reservation; only strategies static and explicit use them
    #[command(after_help = "Examples:\n  naa lb workers demand 7=0-127 8=128-255")]
    Demand {
        /// SESSION=FIRST-LAST, or SESSION=COUNT for the first COUNT consecutive slots that are free; repeat for more
        #[arg(value_name = "SESSION=SLOTS", value_parser = demand)]
        demands: Vec<(String, pb::SlotRange)>,
        #[command(flatten)]
        of: Of,
    },
}

fn demand(text: &str) -> Result<(String, pb::SlotRange), String> {
    let wrong = || format!("{text:?} is no slot demand; write SESSION=FIRST-LAST or SESSION=COUNT");
    let (session, slots) = text.split_once('=').ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number <= 1 << 20);
    let range = match slots.split_once('-') {
        Some((first, last)) => number(first).zip(number(last)).and_then(|(first, last)| {
            Some(pb::SlotRange { index: i32::try_from(first).ok()?, length: last.checked_sub(first)? + 1 })
        }),
        None => number(slots).map(|length| pb::SlotRange { index: -1, length }),
    };
    range.map(|range| (session.to_owned(), range)).ok_or_else(wrong)
}

pub(super) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Remove { sessions, of } => {
            let (lb, connection) = of.connect()?;
            for session in sessions {
                connection.deregister(&lb, session)?;
            }
            of.at.done(&json!({ "lb": lb, "removed": sessions }), || {
                format!("ended sessions: {}", sessions.join(", "))
            })
        }
        Command::Demand { demands, of } => {
            let (lb_id, connection) = of.connect()?;
            let mut sessions: Vec<pb::SessionSlotRanges> = Vec::new();
            for (session_id, range) in demands {
                match sessions.iter_mut().find(|of| of.session_id == *session_id) {
                    Some(of) => of.slots.push(*range),
                    None => sessions
                        .push(pb::SessionSlotRanges { session_id: session_id.clone(), slots: vec![*range] }),
                }
            }
            let count = sessions.len();
            let request = pb::SetSlotDemandsRequest { lb_id: lb_id.clone(), slot_constraints: sessions };
            connection.set_slot_demands(request)?;
            of.at.done(&json!({ "lb": lb_id, "sessions": count }), || {
                format!("sessions with slot demands: {count}")
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demands_are_ranges_or_numbers_of_slots() {
        let range = |index, length| Ok(("7".to_owned(), pb::SlotRange { index, length }));
        assert_eq!(demand("7=0-127"), range(0, 128));
        assert_eq!(demand("7=16"), range(-1, 16));
        for wrong in ["7", "7=", "7=9-3", "7=x", "7=-1", "7=0-99999999999"] {
            assert!(demand(wrong).is_err(), "{wrong}");
        }
    }
}
