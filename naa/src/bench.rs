//! `naa bench`: the figures, and what they are held against.

mod local;
mod offload;

use clap::{ArgMatches, Command, Error, FromArgMatches};

/// Of the network, or of one of the other benches.
#[derive(Clone, Debug)]
pub(crate) enum Args {
    Network(naa_bench::Args),
    Offload(offload::Args),
}

const OFFLOAD: &str = "offload";

impl clap::Args for Args {
    fn augment_args(command: Command) -> Command {
        let command = naa_bench::Args::augment_args(command);
        command.subcommand(offload::Args::augment_args(Command::new(OFFLOAD)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        match matches.subcommand() {
            Some((OFFLOAD, matches)) => offload::Args::from_arg_matches(matches).map(Self::Offload),
            _ => naa_bench::Args::from_arg_matches(matches).map(Self::Network),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match args {
        Args::Network(args) => naa_bench::run(args),
        Args::Offload(args) => offload::run(args),
    }
}
