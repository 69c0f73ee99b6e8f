//! Calls one function for many files, one call per file, over several sessions at once.

use std::{
    collections::{BTreeSet, VecDeque},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError, mpsc},
};

use anyhow::{Context as _, bail};
use mrsp::builtin;
use naa_host::Error;

use super::{
    Args, call,
    files::Source,
    names::{self, Item},
    offload::{Caller, Peer, Shared, Times},
    output::{self, Sink},
    plan::{self, Plan},
    progress::Progress,
    report::{Report, Status},
    stop,
    target::Target,
    teller::Teller,
};

/// Files up to this size share sessions, whose regions fit the largest of them.
const SMALL: u64 = 16 << 20;

pub(super) fn run(args: &Args, target: &Target, peer: &Peer, paths: &[PathBuf]) -> anyhow::Result<()> {
    let items = names::items(args, target.code, paths)?;
    let folders = prepare_folders(&items)?;
    let sessions = args.sessions.unwrap_or_else(usual_sessions).min(items.len());
    let batch = Batch::new(args, target, peer, &items, sessions);
    let mut teller = Teller::new(args, &items, &batch);
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..sessions {
            let (batch, tell) = (&batch, tell.clone());
            scope.spawn(move || batch.work(&tell));
        }
        drop(tell);
        teller.listen(told)
    })?;
    // Folders are synced before the summary reports results as complete. Results that exist are synced even if others
    // failed.
    let synced = match args.no_sync {
        true => Ok(()),
        false => folders.iter().try_for_each(|folder| output::sync_folder(folder)),
    };
    teller.end()?;
    synced
}

fn usual_sessions() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(4)
}

/// Makes the folders for results, and removes files that dead processes left in them.
fn prepare_folders(items: &[Item]) -> anyhow::Result<BTreeSet<&Path>> {
    let folders: BTreeSet<_> = items.iter().filter_map(|item| item.output.as_deref()?.parent()).collect();
    for folder in &folders {
        naa_files::Folder::create(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    Ok(folders)
}

/// The result of one file.
pub(super) struct Ended {
    pub(super) index: usize,
    pub(super) report: Report,
    pub(super) error: Option<anyhow::Error>,
}

/// The data that all sessions of a batch share.
pub(super) struct Batch<'a> {
    args: &'a Args,
    target: &'a Target,
    peer: &'a Peer,
    items: &'a [Item],
    shared: Option<Shared>,
    queue: Mutex<Queue>,
}

/// The files that no session has taken yet, and the number of sessions that take files.
struct Queue {
    files: VecDeque<usize>,
    sessions: usize,
}

impl<'a> Batch<'a> {
    fn new(args: &'a Args, target: &'a Target, peer: &'a Peer, items: &'a [Item], sessions: usize) -> Self {
        // Large files come first, because the last calls should be short, and smaller files fit into the regions of
        // larger ones.
        let mut files: Vec<_> = (0..items.len()).collect();
        files.sort_by_key(|&index| {
            let bytes = items[index].bytes;
            if bytes > SMALL { u64::MAX - bytes } else { u64::MAX }
        });
        let small = items.iter().map(|item| item.bytes).filter(|&bytes| bytes <= SMALL).max();
        let shared = small.map(|bytes| {
            let input = bytes as usize;
            Shared { input, room: plan::room_for(args, target.code, input) }
        });
        let queue = Mutex::new(Queue { files: files.into(), sessions });
        Self { args, target, peer, items, shared, queue }
    }

    /// Takes files from the queue and offloads them over one session.
    fn work(&self, tell: &mpsc::Sender<Ended>) {
        let mut caller = Caller::new(self.peer, self.shared);
        while let Some(index) = self.next() {
            let (report, error) = self.offload(&mut caller, index);
            if error.as_ref().is_some_and(is_full) && self.retire(index) {
                return;
            }
            let lost = error.as_ref().is_some_and(is_lost);
            // The receiver is dropped when results cannot be printed any more. Then the work is over.
            if tell.send(Ended { index, report, error }).is_err() {
                return;
            }
            if lost {
                self.with_queue(|queue| queue.files.clear());
            }
        }
        // All results are there, so it does not matter how the session ends.
        let _ = caller.finalize();
    }

    fn with_queue<T>(&self, then: impl FnOnce(&mut Queue) -> T) -> T {
        then(&mut self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the next file from the queue. If there is none, this session is over.
    fn next(&self) -> Option<usize> {
        self.with_queue(|queue| {
            let next = queue.files.pop_front().filter(|_| stop::check().is_ok());
            if next.is_none() {
                queue.sessions -= 1;
            }
            next
        })
    }

    /// Leaves file `index` to the other sessions, if there are any.
    fn retire(&self, index: usize) -> bool {
        self.with_queue(|queue| {
            let others = queue.sessions > 1;
            if others {
                queue.files.push_front(index);
                queue.sessions -= 1;
            }
            others
        })
    }

    pub(super) fn report(&self, index: usize) -> Report {
        let Item { input, output, bytes, .. } = &self.items[index];
        let name = |path: &PathBuf| path.display().to_string();
        Report {
            function: builtin::name(self.target.code).unwrap_or(&self.args.function).to_owned(),
            inputs: vec![name(input)],
            outputs: output.iter().map(name).collect(),
            bytes_in: *bytes,
            ..self.peer.report()
        }
    }

    fn offload(&self, caller: &mut Caller<'_>, index: usize) -> (Report, Option<anyhow::Error>) {
        let mut report = self.report(index);
        let mut times = Times::default();
        let error = self.try_offload(caller, &self.items[index], &mut report, &mut times).err();
        report.time(times);
        if let Some(error) = &error {
            report.fail(Status::Failed, error);
        }
        (report, error)
    }

    fn try_offload(
        &self,
        caller: &mut Caller<'_>,
        item: &Item,
        report: &mut Report,
        times: &mut Times,
    ) -> anyhow::Result<()> {
        if let Some(problem) = &item.problem {
            bail!("{problem}");
        }
        if self.args.resume && is_done(item) {
            report.status = Status::Skipped;
            return Ok(());
        }
        let mut inputs = [Source::open(&item.input)?];
        report.bytes_in = inputs[0].len() as u64;
        // A result that is only printed has no output file.
        let plan = Plan::new(self.args, self.target, &inputs, item.output.iter().len())?;
        let mut progress = Progress::hidden();
        call(self.args, self.target.code, caller, plan, &mut inputs, times, &mut progress)?;
        let results = caller.results()?;
        report.bytes_out = results.iter().map(|result| result.len() as u64).sum();
        if let Some((output, result)) = item.output.as_ref().zip(results.first()) {
            let sink = Sink::new(output, !self.args.no_sync)?;
            sink.write(result, || progress.tick(), || inputs[0].check_not_replaced())?;
        }
        report.conclude(self.target.code, &results);
        Ok(())
    }
}

/// Whether the result exists. Results get their names only when they are complete.
fn is_done(item: &Item) -> bool {
    let changed = |path: &Path| path.metadata().ok().filter(|meta| meta.is_file())?.modified().ok();
    let result = item.output.as_deref().and_then(changed);
    result.zip(changed(&item.input)).is_some_and(|(result, input)| result > input)
}

/// Whether the accelerator accepts no further session. Existing sessions may go on.
fn is_full(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Peer { .. })) || is_lost(error)
}

/// Whether the accelerator cannot be reached, so that no session is possible.
pub(super) fn is_lost(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(Error::ConnectionRefused { .. } | Error::Unreachable { .. } | Error::SetupTimedOut { .. })
    )
}
