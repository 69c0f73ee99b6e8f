//! The thread that takes a listener's events, so that hosts that leave are noticed whatever the program does.

use std::{io, sync::Arc, thread::JoinHandle};

use verbs::{CmEvent, WaitMode, WaitOn};

use super::{
    master::{Master, Request},
    told,
};

pub(crate) fn wait_on(master: &Master) -> WaitOn {
    WaitOn { cq: None, channel: Some(master.channel.id()) }
}

pub(crate) fn start(master: &Arc<Master>) -> io::Result<JoinHandle<()>> {
    let master = master.clone();
    std::thread::Builder::new().name("naaice-router".into()).spawn(move || run(&master))
}

fn run(master: &Master) {
    while !master.is_closing() {
        if let Err(error) = master.context().wait(wait_on(master), WaitMode::Block, None) {
            told::warn(&format_args!("the server cannot wait for hosts: {error}"));
            return;
        }
        while let Ok(Some(event)) = master.channel.next_event() {
            route(master, event);
        }
    }
}

fn route(master: &Master, event: CmEvent) {
    match event {
        CmEvent::ConnectRequest { id, endpoints, .. } => master.requested(Request { id, endpoints }),
        CmEvent::Established { id, .. } => {
            if let Some(mailbox) = master.mailbox(id) {
                mailbox.establish();
            }
        }
        event => master.gone(event.id()),
    }
}
