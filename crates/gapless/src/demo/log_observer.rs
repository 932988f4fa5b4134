//! Follows the log as its consumers do, and compares where the log leads with the store.
//!
//! One model follows from the first number; further ones begin late, by a walk, while the mirror
//! changes. Each reads the log alone: what it holds at the end of the log must be what the store
//! holds. The demonstration and the tests of the program use the observer.

use gapless_store::Store;
use gapless_store::change::LogId;
use gapless_store::log_model::LogModel;
use gapless_store::log_reader::{PageError, PageLimits, Walk};
use gapless_store::read_view::ReadView;

/// Models that began with a walk and are followed at the same time.
const WALKERS: usize = 4;
/// Parts of its walk that a model takes in one observation, so that a walk lasts for several.
const PARTS_AT_ONCE: usize = 16;

/// Models that follow the log, and what they found.
#[derive(Default)]
pub struct LogObserver {
    log: Option<LogId>,
    models: Vec<ObservedModel>,
    /// Models that began with a walk.
    pub walks: u64,
    /// Comparisons of a model with the store.
    pub checks: u64,
    /// The number of the log up to which a model has read it from the beginning.
    pub read_upto: u64,
}

struct ObservedModel {
    model: LogModel,
    /// The walk that is under way.
    walk: Option<Walk>,
}

impl ObservedModel {
    fn begin(view: &ReadView) -> Result<ObservedModel, PageError> {
        let walk = Walk::begin(view)?;
        Ok(ObservedModel {
            model: LogModel::begin_walk(&walk),
            walk: Some(walk),
        })
    }

    /// Takes some parts of the walk, or reads the log to its end. Returns whether the model has read
    /// everything.
    fn advance(&mut self, view: &ReadView) -> Result<bool, PageError> {
        for _ in 0..PARTS_AT_ONCE {
            let Some(walk) = &mut self.walk else {
                break;
            };
            match walk.next_part(view)? {
                Some(part) => self.model.take_part(&part),
                None => self.walk = None,
            }
        }
        if self.walk.is_some() {
            return Ok(false);
        }
        while self.model.follow(view, PageLimits::default())? {}
        Ok(true)
    }
}

impl LogObserver {
    /// Lets every model read on, and compares those that have read everything. Returns a description
    /// of each difference.
    pub fn observe(&mut self, store: &Store) -> Result<Vec<String>, PageError> {
        let view = store.view();
        let mut different = Vec::new();
        let log = view.ids()?.map(|ids| ids.log);
        if self.log.is_some() && log != self.log {
            different.push(format!(
                "the log is another one: {log:?}, not {:?}",
                self.log
            ));
        }
        self.log = log;
        if self.models.is_empty() {
            self.models.push(ObservedModel {
                model: LogModel::from_the_beginning(),
                walk: None,
            });
        }
        if self.models.len() > WALKERS {
            // The first one stays; the oldest that walked goes.
            self.models.remove(1);
        }
        self.models.push(ObservedModel::begin(&view)?);
        self.walks += 1;
        for observed in &mut self.models {
            let began = observed.model.next;
            match observed.advance(&view) {
                Ok(true) => {
                    self.checks += 1;
                    if let Some(found) = observed.model.difference(&view)? {
                        different.push(format!(
                            "the log, read from {began} on, leads to something else: {found:?}"
                        ));
                    }
                }
                Ok(false) => {}
                Err(PageError::Trimmed { .. }) => *observed = ObservedModel::begin(&view)?,
                Err(error) => return Err(error),
            }
            let model = &observed.model;
            if model.spoilt > 0 {
                different.push(format!("{} spoilt records", model.spoilt));
            }
        }
        if let Some(first) = self.models.first() {
            self.read_upto = first.model.next.saturating_sub(1);
        }
        Ok(different)
    }
}
