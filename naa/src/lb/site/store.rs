//! `naa lb backup` and `naa lb restore`.

use std::path::PathBuf;

use naa_store::{Settings, SqliteStore};
use serde_json::json;

use crate::{lb::local::state_folder, show};

pub(super) const EXAMPLES: &str = "Examples:
  naa lb backup lb.backup             while the control plane is stopped
  naa lb restore lb.backup            then start it again

A running control plane has its store open; stop it for the moment that either takes. Data planes forward meanwhile. The admin
token is in a file of its own.";

#[derive(Clone, Debug, clap::Args)]
struct Where {
    /// The store; that of `naa lb serve` without a configuration unless told
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Where {
    fn store(&self) -> anyhow::Result<PathBuf> {
        self.store.clone().map_or_else(|| Ok(state_folder(None)?.join("control.db")), Ok)
    }
}

#[derive(Clone, Debug, clap::Args)]
pub(in crate::lb) struct Backup {
    /// The file to write
    to: PathBuf,
    #[command(flatten)]
    place: Where,
}

#[derive(Clone, Debug, clap::Args)]
pub(in crate::lb) struct Restore {
    /// A backup
    from: PathBuf,
    #[command(flatten)]
    place: Where,
}

pub(super) fn backup(args: &Backup) -> anyhow::Result<()> {
    let path = args.place.store()?;
    // Opening makes a store where there is none, of which nobody wants a backup.
    anyhow::ensure!(path.exists(), "there is no store {}; name it with --store", path.display());
    let revision = SqliteStore::open(&path, &Settings::default())?.backup(&args.to)?.0;
    let text = format!("{} has revision {revision} of {}", args.to.display(), path.display());
    let object = json!({ "backup": args.to, "store": path, "revision": revision });
    Ok(show::line(&if args.place.json { object.to_string() } else { text })?)
}

pub(super) fn restore(args: &Restore) -> anyhow::Result<()> {
    let path = args.place.store()?;
    let restored = naa_store::restore(&args.from, &path, &Settings::default())?;
    let text =
        format!("{} has revision {} with {} records", path.display(), restored.revision.0, restored.keys);
    let object = json!({ "store": path, "revision": restored.revision.0, "records": restored.keys });
    Ok(show::line(&if args.place.json { object.to_string() } else { text })?)
}
