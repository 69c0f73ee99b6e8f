//! Cases on the driver interface itself, where sessions hide it: two ends of a bare connection, each in its process,
//! and either in the active part.

mod cases_ends;
mod cases_errors;
mod cases_move;
mod cases_wait;
mod end;
mod pair;
mod wire;

pub(super) use end::End;
pub(super) use wire::Request;

use super::case::Case;

pub(super) const CASES: [&[Case]; 4] =
    [cases_move::CASES, cases_errors::CASES, cases_ends::CASES, cases_wait::CASES];
