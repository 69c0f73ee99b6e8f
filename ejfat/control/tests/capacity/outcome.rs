//! What the criterion for shares counts.

use crate::setting::{Program, Run, Setting};

/// What the criterion counts, over some runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Pairs of a worker and a second.
    pub(crate) cells: u32,
    /// The pairs in which the worker gets more than a tenth and a slot above what it can take.
    pub(crate) above: u32,
    /// The pairs in which the worker is off its fair part by a tenth and a slot.
    pub(crate) off: u32,
    pub(crate) workers: u32,
    /// Workers whose slots vary by more than a fifth and 3 slots.
    pub(crate) varying: u32,
    pub(crate) events: u64,
    pub(crate) lost: u64,
    pub(crate) calendars: u32,
    /// For each run the seconds from the change until no worker had more than a tenth and a slot above its capacity,
    /// or above its fair part if the capacities do not suffice.
    pub(crate) settled: Vec<u32>,
}

impl Outcome {
    /// Runs a setting for 30 s from 20 s after the change on.
    pub(crate) fn add(&mut self, setting: &Setting, seed: u64) {
        let mut run = Run::new(setting.clone(), seed);
        let begins = setting.changes_at + 20;
        let mut settled = 0;
        while run.second < begins {
            run.second();
            let is_overloaded = (0..run.programs.len()).any(|member| {
                let most = run.fitting(member).max(run.fair(member));
                f64::from(run.programs[member].slots) > 1.1 * most + 1.0
            });
            if is_overloaded && run.second > setting.changes_at {
                settled = (run.second - setting.changes_at) as u32;
            }
        }
        self.settled.push(settled);
        let totals = |run: &Run| {
            let lost: u64 = run.programs.iter().map(Program::lost).sum();
            (run.programs.iter().map(Program::taken).sum::<u64>() + lost, lost)
        };
        let before = totals(&run);
        let mut ranges = vec![(u32::MAX, 0); run.programs.len()];
        let calendars = run.calendars;
        while run.second < begins + 30 {
            run.second();
            for (member, range) in ranges.iter_mut().enumerate() {
                let slots = run.programs[member].slots;
                let (has, fits, fair) = (f64::from(slots), run.fitting(member), run.fair(member));
                self.cells += 1;
                self.above += u32::from(has > 1.1 * fits + 1.0);
                self.off += u32::from((has - fair).abs() > 0.1 * fair + 1.0);
                *range = (range.0.min(slots), range.1.max(slots));
            }
        }
        for (least, most) in ranges {
            self.workers += 1;
            let middle = f64::from(least + most) / 2.0;
            self.varying += u32::from(f64::from(most - least) > (0.2 * middle).max(3.0));
        }
        let after = totals(&run);
        (self.events, self.lost) = (self.events + after.0 - before.0, self.lost + after.1 - before.1);
        self.calendars += run.calendars - calendars;
    }

    /// The part of all pairs that are within bounds, in percent: not above, and not off.
    pub(crate) fn percent_not_above(&self) -> f64 {
        100.0 - 100.0 * f64::from(self.above) / f64::from(self.cells)
    }

    pub(crate) fn percent_not_off(&self) -> f64 {
        100.0 - 100.0 * f64::from(self.off) / f64::from(self.cells)
    }

    pub(crate) fn percent_steady(&self) -> f64 {
        100.0 - 100.0 * f64::from(self.varying) / f64::from(self.workers)
    }

    pub(crate) fn median_settled(&self) -> u32 {
        let mut settled = self.settled.clone();
        settled.sort_unstable();
        settled[settled.len() / 2]
    }

    pub(crate) fn percent_lost(&self) -> f64 {
        100.0 * self.lost as f64 / self.events as f64
    }
}
