//! Repairs the frames: removes damaged ones and those without a row of the log. Firehose
//! consumers then get a `#sync` with the state of the repository instead.

use super::RepairMode;
use super::fix::RepairRun;
use crate::check::covers_others;
use crate::error::StoreError;
use crate::frames::{FRAMES_FOLDER, MendReport, mend};
use crate::read_view::ReadView;
use crate::table::{Table, key};

impl RepairRun<'_> {
    pub(super) fn fix_frames(&mut self) -> Result<(), StoreError> {
        let folder = self.folder.join(FRAMES_FOLDER);
        let write = self.mode == RepairMode::Repair;
        let mut belongs = |seq| self.has_row(seq);
        let MendReport { damaged, strays } = mend(&folder, &mut belongs, write)?;
        self.report.damaged_frames = damaged;
        self.report.stray_frames = strays;
        Ok(())
    }

    /// Whether a row of the log begins at `seq`, or that row was lost. Frames beyond the
    /// log are dropped when the store opens.
    fn has_row(&self, seq: u64) -> Result<bool, StoreError> {
        let lost = |(first, last): &(u64, u64)| (*first..=*last).contains(&seq);
        if seq >= self.highest.next_seq || self.report.lost_numbers.iter().any(lost) {
            return Ok(true);
        }
        if self.tx.get(Table::Log, &key::seq(seq))?.is_some() {
            return Ok(true);
        }
        let before = ReadView::new(self.view.clone());
        let covering = before.log_from(seq)?.next().transpose()?;
        Ok(covering.is_some_and(|(first, row)| first < seq && covers_others(row.kind)))
    }
}
