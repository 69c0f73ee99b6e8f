//! NAAICE's server in software: connections on a port, a thread for each, and the program's kernels.
//!
//! ```text
//! program's loop ─ poll_and_handle_connection_event ─► SwnaaListener ─ accept ─► worker thread ─ worker_procedure
//! router thread ─ the listener's events ─► requests for the program's loop, ends of connections for their workers
//! worker ─ do_mrsp, receive_data_transfer, kernel, do_data_transfer ─► naa_server::session::ServerSession
//! ```
//!
//! What MRSP's messages and immediates mean is decided by `naa_server`'s session, for all servers alike. A kernel
//! runs in the program's own process, on the memory of its session, which its host cannot reach meanwhile.

mod address;
mod connection;
mod connection_thread;
mod device;
mod exports;
mod hook;
mod listener;
mod program;
mod rdma;
mod router;
mod server_log;
mod session;
mod steps;
