//! Calls one function for many files, one call per file, over several sessions at once.

use std::{
    collections::{BTreeSet, VecDeque},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
};

use anyhow::{Context as _, bail};
use naa_host::{
    Error,
    asynchronous::{Attempts, Repeat},
};

use crate::{
    Call,
    files::InputFile,
    names::{self, Files, Item},
    offload::{BatchRegions, Caller, Times, again},
    output::{self, ResultOutput},
    plan::{self, Plan},
    progress::{Flag, Progress as _},
    report::{Report, Status},
};

/// Files up to this size share sessions, whose regions fit the largest of them.
const SMALL: u64 = 16 << 20;

/// The folders of the results.
fn folders(items: &[Item]) -> BTreeSet<&Path> {
    items.iter().filter_map(|item| item.output.as_deref()?.parent()).collect()
}

fn usual_sessions() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(4)
}

/// The result of one file.
#[derive(Debug)]
pub struct FileEnd {
    /// The index of the file in [`Batch::items`].
    pub index: usize,
    /// The report of the call, without its error.
    pub report: Report,
    /// Why the call failed, if it did.
    pub error: Option<anyhow::Error>,
}

/// Calls of one function on many files.
#[derive(Debug)]
pub struct Batch<'a> {
    call: Call<'a>,
    items: Vec<Item>,
    resume: bool,
    sessions: usize,
    shared: Option<BatchRegions>,
    queue: Mutex<FileQueue>,
    stopped: &'a AtomicBool,
}

/// The files that no session has taken yet, and the number of sessions that take files.
#[derive(Debug)]
struct FileQueue {
    files: VecDeque<usize>,
    sessions: usize,
}

impl<'a> Batch<'a> {
    /// Finds the files, makes the folders of results, and removes files that dead processes left in them. The batch ends
    /// early when `stopped` is set.
    ///
    /// # Errors
    /// [`Refused`](crate::Refused) if a result would replace another one or an input; the errors of folders.
    pub fn new(call: Call<'a>, files: &Files, stopped: &'a AtomicBool) -> anyhow::Result<Self> {
        let items = names::items(files, call.target.code)?;
        for folder in folders(&items) {
            naa_files::ResultFolder::create(folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let sessions = files.sessions.unwrap_or_else(|| usual_sessions() * (1 + call.peer.others.len()));
        let sessions = sessions.min(items.len());
        // Large files come first, because the last calls should be short, and smaller files fit into the regions of
        // larger ones.
        let mut order: Vec<_> = (0..items.len()).collect();
        order.sort_by_key(|&index| {
            let bytes = items[index].bytes;
            if bytes > SMALL { u64::MAX - bytes } else { u64::MAX }
        });
        let small = items.iter().map(|item| item.bytes).filter(|&bytes| bytes <= SMALL).max();
        let shared = small.map(|bytes| {
            let input = bytes as usize;
            BatchRegions { input, room: plan::room_for(call.settings, call.target.code, input) }
        });
        let queue = Mutex::new(FileQueue { files: order.into(), sessions });
        Ok(Self { call, items, resume: files.resume, sessions, shared, queue, stopped })
    }

    /// The files, in the order in which they were named; those of a folder are sorted by name.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Makes the calls. `listen` gets the result of each file when it is there. When `listen` returns, no further calls are
    /// begun.
    ///
    /// # Errors
    /// The error of `listen`.
    pub fn run<T>(
        &self,
        listen: impl FnOnce(mpsc::Receiver<FileEnd>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let (sender, results) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..self.sessions {
                let sender = sender.clone();
                scope.spawn(move || self.work(&sender));
            }
            drop(sender);
            listen(results)
        })
    }

    /// Syncs the folders of results, so that the names of results are on disk, unless the settings say otherwise.
    ///
    /// # Errors
    /// Fails if a folder cannot be synced.
    pub fn sync(&self) -> anyhow::Result<()> {
        match self.call.settings.sync {
            true => folders(&self.items).iter().try_for_each(|folder| output::sync_folder(folder)),
            false => Ok(()),
        }
    }

    /// Takes files from the queue and offloads them over one session.
    fn work(&self, sender: &mpsc::Sender<FileEnd>) {
        let mut caller = Caller::new(self.call.peer, self.shared);
        while let Some(index) = self.next() {
            let (report, error) = self.offload_again(&mut caller, index);
            if error.as_ref().is_some_and(is_full) && self.retire(index) {
                return;
            }
            let lost = error.as_ref().is_some_and(is_lost);
            // The receiver is dropped when results cannot be printed any more. Then the work is over.
            if sender.send(FileEnd { index, report, error }).is_err() {
                return;
            }
            if lost {
                self.with_queue(|queue| queue.files.clear());
            }
        }
        // All results are there, so it does not matter how the session ends.
        let _ = caller.finalize();
    }

    fn with_queue<T>(&self, then: impl FnOnce(&mut FileQueue) -> T) -> T {
        then(&mut self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the next file from the queue. If there is none, this session is over.
    fn next(&self) -> Option<usize> {
        self.with_queue(|queue| {
            let next = queue.files.pop_front().filter(|_| !self.stopped.load(Ordering::Relaxed));
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

    /// The report of a file whose call was not made.
    pub fn report(&self, index: usize) -> Report {
        let Item { input, output, bytes, .. } = &self.items[index];
        let name = |path: &PathBuf| path.display().to_string();
        Report {
            inputs: vec![name(input)],
            outputs: output.iter().map(name).collect(),
            bytes_in: *bytes,
            ..self.call.report()
        }
    }

    /// Offloads a file, again while its accelerator is lost and the settings permit it.
    fn offload_again(&self, caller: &mut Caller<'_>, index: usize) -> (Report, Option<anyhow::Error>) {
        let mut attempts = Attempts::new(Repeat::IfLost(self.call.settings.repeat_lost));
        // A pipe cannot be read again.
        let is_file = self.items[index].input.metadata().is_ok_and(|meta| meta.is_file());
        loop {
            let (report, error) = self.offload(caller, index);
            if !is_file || !error.as_ref().is_some_and(|error| again(&mut attempts, error)) {
                return (report, error);
            }
        }
    }

    fn offload(&self, caller: &mut Caller<'_>, index: usize) -> (Report, Option<anyhow::Error>) {
        let mut report = self.report(index);
        let mut times = Times::default();
        let error = self.try_offload(caller, &self.items[index], &mut report, &mut times).err();
        report.time(times);
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
        if self.resume && is_done(item) {
            report.status = Status::Skipped;
            return Ok(());
        }
        let mut inputs = [InputFile::open(&item.input)?];
        report.bytes_in = inputs[0].len() as u64;
        // A result that is only printed has no output file.
        let mut plan = Plan::new(self.call, &inputs, item.output.iter().len())?;
        let mut progress = Flag(self.stopped);
        self.call.make(caller, &mut plan, &mut inputs, times, &mut progress)?;
        let results = caller.results()?;
        report.bytes_out = results.iter().map(|result| result.len() as u64).sum();
        if let Some((output, result)) = item.output.as_ref().zip(results.first()) {
            let sink = ResultOutput::new(output, self.call.settings.sync)?;
            sink.write(result, || progress.tick(), || inputs[0].check_not_replaced())?;
        }
        report.conclude(self.call.target.code, &results);
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
pub fn is_lost(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(
            Error::ConnectionRefused { .. }
                | Error::Unreachable { .. }
                | Error::SetupTimedOut { .. }
                | Error::NoAcceleratorReached { .. }
        )
    )
}
