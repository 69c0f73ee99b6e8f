//! The thread that takes a listener's events, so that hosts that leave are noticed whatever the program does.

use std::{io, sync::Arc, thread::JoinHandle};

use verbs::{CmEvent, WaitMode, WaitOn};

use super::{
    listener::{ConnectRequest, SwnaaListener},
    server_log,
};

pub(crate) fn wait_on(listener: &SwnaaListener) -> WaitOn {
    WaitOn { cq: None, channel: Some(listener.channel.id()) }
}

pub(crate) fn start(listener: &Arc<SwnaaListener>) -> io::Result<JoinHandle<()>> {
    let listener = listener.clone();
    std::thread::Builder::new().name("naaice-router".into()).spawn(move || run(&listener))
}

fn run(listener: &SwnaaListener) {
    while !listener.is_closing() {
        if let Err(error) = listener.context().wait(wait_on(listener), WaitMode::Block, None) {
            server_log::warn(&format_args!("the server cannot wait for hosts: {error}"));
            return;
        }
        while let Ok(Some(event)) = listener.channel.next_event() {
            route(listener, event);
        }
    }
}

fn route(listener: &SwnaaListener, event: CmEvent) {
    match event {
        CmEvent::ConnectRequest { id, endpoints, .. } => listener.requested(ConnectRequest { id, endpoints }),
        CmEvent::Established { id, .. } => {
            if let Some(mailbox) = listener.mailbox(id) {
                mailbox.establish();
            }
        }
        event => listener.gone(event.id()),
    }
}
