//! The reasons for which the server refuses to execute a call.

/// The reason for which a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolRefusal {
    /// The pool is full, and the new call does not take the place of a waiting call of another source network.
    #[error(
        "all workers of the server are busy and its queue is full; call again later or start it with more"
    )]
    Busy,
    /// The call waited in a full pool, and lost its place in the pool to a call of another source network with fewer
    /// calls.
    #[error(
        "the queue of the server is full, and a call of another address took this one's place; call again later"
    )]
    Displaced,
    /// The source network has [`PoolConfig::per_peer`](super::PoolConfig::per_peer) calls already.
    #[error("your address has as many calls as one may; wait for some, or raise the server's limit per peer")]
    Peer,
    /// As many calls of an async function run as may run at a time.
    #[error("as many calls of this function run as the server lets run at a time; call again later")]
    Tasks,
    /// The source network has as many calls of an async function as it may have.
    #[error("your address has as many calls of this function as one may; wait for some of them")]
    TasksOfPeer,
    /// Too many abandoned calls of this source network, or of all source networks together, still run.
    #[error(
        "too many calls that were given up still run; wait until they end, or find the function that hangs and \
         restart the server"
    )]
    Quarantine,
    /// The pool was closed, because the server shuts down.
    #[error("the server shuts down; call another one")]
    Closed,
}
