//! The hostile suite; the same program is its own victim.

use std::{net::IpAddr, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use naa_tests::hostile::{self, Family, Kind, Outcome, RunConfig};

const EXAMPLES: &str = "\
Examples:
  hostile --quick               most of it, in two minutes
  hostile --ip 6 --only memory  over IPv6 alone
  hostile --only 'half-open'    the cases whose group or name contain this
  hostile --json table.json     the table for programs, too";

/// Attacks a server in every way known and prints what comes of it
#[derive(Parser)]
#[command(after_help = EXAMPLES)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// Run the cases whose group or name contain TEXT
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Say what would run
    #[arg(long)]
    list: bool,
    /// Fewer repetitions, and without the cases that take long
    #[arg(long)]
    quick: bool,
    /// Write the table as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// What guesses and random bytes come from
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Run over IPv4 or IPv6 only [default: both; over IPv6 a sample if --quick]
    ///
    /// For IPv6 the suite makes a network namespace, with a /64 for each source.
    #[arg(long, value_name = "4|6", value_parser = family)]
    ip: Option<Family>,
    /// Fail for cases that this machine does not let be tried, as where the variable CI is set
    #[arg(long)]
    strict: bool,
    /// This process is in a network namespace of its own
    #[arg(long, hide = true)]
    inside: bool,
}

fn family(text: &str) -> Result<Family, String> {
    match text {
        "4" => Ok(Family::V4),
        "6" => Ok(Family::V6),
        _ => Err("write 4 or 6".into()),
    }
}

#[derive(Subcommand)]
enum Role {
    /// Serve, and answer requests on standard input
    #[command(hide = true)]
    Victim { server: IpAddr, target: IpAddr },
    /// Attack until standard input ends
    #[command(hide = true)]
    Attack {
        #[arg(hide_possible_values = true)]
        kind: Kind,
        local: IpAddr,
        targets: Vec<String>,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.role {
        Some(Role::Victim { server, target }) => hostile::serve(*server, *target).map(|()| true),
        Some(Role::Attack { kind, local, targets }) => hostile::attack(*kind, *local, targets).map(|()| true),
        None => suite(&args),
    };
    naa_tests::exit_code(result)
}

fn suite(args: &Args) -> Result<bool, String> {
    let ci = std::env::var("CI").is_ok_and(|ci| !ci.is_empty() && ci != "false");
    let mut options = RunConfig {
        only: args.only.clone(),
        quick: args.quick,
        seed: args.seed,
        families: args.ip.map_or(vec![Family::V4, Family::V6], |family| vec![family]),
        sample: args.quick && args.ip.is_none(),
        no_v6: None,
        strict: args.strict || ci,
    };
    let cases = hostile::list(&options);
    if cases.is_empty() {
        return Err("no case has that in its group or name; --list shows all".into());
    }
    if args.list {
        for (family, case) in cases {
            let ip = family.number();
            println!("IPv{ip} {} / {}: {} -> {}", case.group, case.name, case.sent, case.expected);
        }
        return Ok(true);
    }
    if args.inside {
        hostile::settle()?;
    } else if cases.iter().any(|(family, _)| *family == Family::V6) {
        match hostile::enter() {
            Ok(status) => return Ok(status.success()),
            Err(why) => options.no_v6 = Some(why),
        }
    }
    let ran = hostile::run(&options)?;
    print!("{}", hostile::table(&ran));
    if let Some(file) = &args.json {
        let text = format!("{:#}\n", hostile::json(&ran));
        std::fs::write(file, text).map_err(|e| format!("cannot write {}: {e}", file.display()))?;
    }
    let count = |what: fn(&Outcome) -> bool| ran.outcomes.iter().filter(|outcome| what(outcome)).count();
    let failed = count(Outcome::failed);
    let mut line = format!("{} cases, {failed} failed", ran.outcomes.len());
    for (number, what) in [
        (count(Outcome::skipped), "skipped"),
        (count(|outcome| outcome.not_applicable().is_some()), "not applicable"),
    ] {
        if number > 0 {
            line += &format!(", {number} {what}");
        }
    }
    // The table is long, so what failed is repeated at its end.
    for outcome in ran.outcomes.iter().filter(|outcome| outcome.failed()) {
        println!("{}", outcome.line());
    }
    println!("{line}");
    Ok(failed == 0)
}
