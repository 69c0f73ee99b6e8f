//! `naa lb backup` and `naa lb restore`.

use std::path::PathBuf;

use naa_store::{SqliteConfig, SqliteStore};
use serde_json::json;

use crate::{lb::local::state_folder, show};

pub(super) const EXAMPLES: &str = "Examples:
  naa lb backup lb.backup
  naa lb restore lb.backup

A running control plane has its store open, so stop it before either command, and start it again afterwards. \
Data planes go on forwarding meanwhile. The admin token is in a file of its own, which is not in the backup. \
Everything is as it was when the backup was written, so tokens that were revoked later work again: revoke them again.";

#[derive(Clone, Debug, clap::Args)]
struct Where {
    /// The file of the store [default: control.db in the state folder of `naa lb serve`]
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
    /// The backup file to write
    to: PathBuf,
    #[command(flatten)]
    place: Where,
}

#[derive(Clone, Debug, clap::Args)]
pub(in crate::lb) struct Restore {
    /// The backup file to read
    from: PathBuf,
    #[command(flatten)]
    place: Where,
}

pub(super) fn backup(args: &Backup) -> anyhow::Result<()> {
    let path = args.place.store()?;
    // Opening a store that does not exist would make an empty one.
    anyhow::ensure!(
        path.exists(),
        "there is no store {}; name the file of the store by --store",
        path.display()
    );
    let revision = SqliteStore::open(&path, &SqliteConfig::default())?.backup(&args.to)?.0;
    let text = format!("{} has revision {revision} of {}", args.to.display(), path.display());
    let object = json!({ "backup": args.to, "store": path, "revision": revision });
    Ok(show::line(&if args.place.json { object.to_string() } else { text })?)
}

pub(super) fn restore(args: &Restore) -> anyhow::Result<()> {
    let path = args.place.store()?;
    let restored = naa_store::restore(&args.from, &path, &SqliteConfig::default())?;
    let text =
        format!("{} has revision {} with {} records", path.display(), restored.revision.0, restored.keys);
    let object = json!({ "store": path, "revision": restored.revision.0, "records": restored.keys });
    Ok(show::line(&if args.place.json { object.to_string() } else { text })?)
}
