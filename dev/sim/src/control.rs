//! A control plane, its data planes, senders and workers in virtual time.
//!
//! | name | what has to hold |
//! |---|---|
//! | unsplit | No event goes to two workers while planes answer in time and no rate is above what is allowed for |
//! | listed | Every event that goes to two workers has a tick that the control plane told as one that may be split |
//! | in force | In the end the newest epoch of each load balancer applies within seconds |
//! | gone | A worker that left, died or is not ready gets no event that is sent after its deadline |
//! | served | While a worker is ready, planes have tables and calls are answered in time, no event is dropped |
//! | strangers | Senders that are not registered reach nobody |
//! | durable | After a restart there is what was acknowledged, and all that was stored |
//! | bounded | Calls of a plane that are not answered, and records, are few |

mod environment;
mod plan;
mod plane_model;
mod plot;
mod split_check;

pub(crate) use environment::Environment;

const US: u64 = 1000;
const MS: u64 = 1000 * US;
const S: u64 = 1000 * MS;
