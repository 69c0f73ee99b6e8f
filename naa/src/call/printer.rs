//! Prints the results of a batch while it runs, and a summary at its end.

use std::{
    collections::BTreeMap,
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use naa_batch::{Batch, FileEnd, Interrupted, Item, Report, Status, is_lost};

use super::{
    Args,
    progress::{self, FilesProgress},
    report::{print_checksum, print_json},
    stop, usage,
};
use crate::{Usage, show};

/// The most names that are listed at the end. All failures were printed when they happened.
const LISTED: usize = 20;

/// Prints failures when they happen, and results in the order of the files.
pub(super) struct ResultPrinter<'a> {
    args: &'a Args,
    items: &'a [Item],
    batch: &'a Batch<'a>,
    progress: FilesProgress,
    started: Instant,
    /// Results that wait until the results before them are printed.
    waiting: BTreeMap<usize, Report>,
    next: usize,
    totals: Totals,
    failed: Vec<usize>,
    /// The first failure; `lost` is the failure that ended the batch.
    first: Option<anyhow::Error>,
    lost: Option<String>,
}

#[derive(Default)]
struct Totals {
    done: usize,
    skipped: usize,
    bytes_in: u64,
    bytes_out: u64,
}

impl<'a> ResultPrinter<'a> {
    pub(super) fn new(args: &'a Args, batch: &'a Batch<'a>) -> Self {
        let items = batch.items();
        Self {
            args,
            items,
            batch,
            progress: FilesProgress::new(items.len(), items.iter().map(|item| item.bytes).sum()),
            started: Instant::now(),
            waiting: BTreeMap::new(),
            next: 0,
            totals: Totals::default(),
            failed: Vec::new(),
            first: None,
            lost: None,
        }
    }

    pub(super) fn listen(&mut self, results: mpsc::Receiver<FileEnd>) -> anyhow::Result<()> {
        loop {
            match results.recv_timeout(progress::TICK) {
                Ok(ended) => self.take(ended)?,
                Err(mpsc::RecvTimeoutError::Timeout) => self.progress.tick(),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        self.progress.finish();
        Ok(())
    }

    fn take(&mut self, ended: FileEnd) -> anyhow::Result<()> {
        let FileEnd { index, mut report, error } = ended;
        let error = error.map(usage);
        if let Some(error) = &error {
            report.fail(error);
        }
        match error {
            None if report.status == Status::Skipped => self.totals.skipped += 1,
            None => {
                self.totals.done += 1;
                self.totals.bytes_in += report.bytes_in;
                self.totals.bytes_out += report.bytes_out;
            }
            Some(error) if error.is::<Interrupted>() => report.status = Status::NotTried,
            Some(error) => self.fail(index, error),
        }
        let ended = self.totals.done + self.totals.skipped + self.failed.len();
        self.progress.advance(self.items[index].bytes, ended);
        self.waiting.insert(index, report);
        while let Some(report) = self.waiting.remove(&self.next) {
            let index = self.next;
            self.next += 1;
            self.print(index, &report)?;
        }
        Ok(())
    }

    fn fail(&mut self, index: usize, error: anyhow::Error) {
        let told = verbs::error_text(error.as_ref());
        if is_lost(&error) {
            self.lost = Some(told);
        } else if self.items.len() > 1 {
            let name = self.items[index].input.display().to_string();
            let text = if told.contains(&name) { told } else { format!("{name}: {told}") };
            self.progress.suspend(|| show::error_line(&format!("naa: {text}")));
        }
        self.failed.push(index);
        self.first.get_or_insert(error);
    }

    fn print(&self, index: usize, report: &Report) -> anyhow::Result<()> {
        self.progress.suspend(|| {
            if self.args.json {
                return print_json(report, false);
            }
            match &report.result {
                Some(digits) if self.args.out_dir.is_none() => {
                    print_checksum(digits, &self.items[index].input)
                }
                _ => Ok(()),
            }
        })
    }

    /// Prints the remaining results, the summary, and the failures.
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        let Totals { done, skipped, .. } = self.totals;
        let not_tried = self.items.len() - done - skipped - self.failed.len();
        for index in self.next..self.items.len() {
            let waiting = self.waiting.remove(&index);
            let report =
                waiting.unwrap_or_else(|| Report { status: Status::NotTried, ..self.batch.report(index) });
            self.print(index, &report)?;
        }
        if self.items.len() != 1 {
            show::note(&format!("naa: {}", self.summary(not_tried)));
        }
        stop::check()?;
        let all = self.items.len();
        self.failed.sort_unstable();
        match (self.first, self.lost) {
            (None, _) => Ok(()),
            // If there is a single file, its own error is enough.
            (Some(error), _) if all == 1 => Err(error),
            (Some(_), Some(lost)) => {
                let rest = self.failed.len() + not_tried;
                let remedy = if self.args.out_dir.is_some() { "; --resume goes on with them" } else { "" };
                Err(anyhow!("{lost}; {rest} of {all} files are not done{remedy}"))
            }
            (Some(error), None) => {
                let names = self.failed.iter().take(LISTED);
                let mut names: Vec<_> =
                    names.map(|&index| self.items[index].input.display().to_string()).collect();
                if self.failed.len() > LISTED {
                    names.push(format!("and {} more", self.failed.len() - LISTED));
                }
                let text = format!("{} of {all} files failed: {}", self.failed.len(), names.join(", "));
                Err(if error.is::<Usage>() && self.failed.len() == all {
                    Usage::error(text)
                } else {
                    anyhow!(text)
                })
            }
        }
    }

    fn summary(&self, not_tried: usize) -> String {
        let Totals { done, skipped, bytes_in, bytes_out } = self.totals;
        let time: Duration = self.started.elapsed();
        let mut text = format!(
            "{done} files, {} in, {} out, {}, {}",
            show::bytes(bytes_in),
            show::bytes(bytes_out),
            show::time(time),
            show::rate(bytes_in, time)
        );
        for (count, what) in
            [(skipped, "were there already"), (self.failed.len(), "failed"), (not_tried, "not tried")]
        {
            if count > 0 {
                text = format!("{text}; {count} {what}");
            }
        }
        text
    }
}
