//! The hostile suite; the same program is its own victim.

use std::{net::IpAddr, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use naa_tests::hostile::{self, Options};

const EXAMPLES: &str = "\
Examples:
  hostile --quick               most of it, in a minute and a half
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
}

#[derive(Subcommand)]
enum Role {
    /// Serve, and answer requests on standard input
    #[command(hide = true)]
    Victim { server: IpAddr, target: IpAddr },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.role {
        Some(Role::Victim { server, target }) => hostile::serve(*server, *target).map(|()| true),
        None => suite(&args),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn suite(args: &Args) -> Result<bool, String> {
    let options = Options { only: args.only.clone(), quick: args.quick, seed: args.seed };
    let cases = hostile::list(&options);
    if cases.is_empty() {
        return Err("no case has that in its group or name; --list shows all".into());
    }
    if args.list {
        for case in cases {
            println!("{} / {}: {} -> {}", case.group, case.name, case.sent, case.expected);
        }
        return Ok(true);
    }
    let (baseline, outcomes) = hostile::run(&options)?;
    print!("{}", hostile::table(baseline, &outcomes));
    if let Some(file) = &args.json {
        let text = format!("{:#}\n", hostile::json(baseline, &outcomes));
        std::fs::write(file, text).map_err(|e| format!("cannot write {}: {e}", file.display()))?;
    }
    let failed = outcomes.iter().filter(|outcome| outcome.failed()).count();
    let skipped = outcomes.iter().filter(|outcome| outcome.skipped()).count();
    let skipped = if skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
    println!("{} cases, {failed} failed{skipped}", outcomes.len());
    Ok(failed == 0)
}
