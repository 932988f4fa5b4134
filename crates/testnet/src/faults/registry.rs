//! The faults that are set, and how often each has fired.
//!
//! Code where something can go wrong calls [`Faults::take`]. A fault that applies is
//! counted and used up at that moment. A fault that never fired is reported with the
//! count 0.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gapless_atp::syntax::Did;
use serde_json::{Value as Json, json};
use tokio::sync::watch;

use super::kinds::{CATALOGUE, Fault, Place};
use super::spec::Spec;

#[derive(Debug)]
struct Active {
    id: u64,
    name: String,
    spec: Spec,
    left: Option<u64>,
    fired: u64,
}

#[derive(Debug, Default)]
struct State {
    active: Vec<Active>,
    /// Faults that were cleared before they fired.
    in_vain: Vec<(u64, Spec)>,
    fired: BTreeMap<String, u64>,
    next_id: u64,
}

/// The registry of all faults of a network.
#[derive(Debug)]
pub struct Faults {
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

impl Default for Faults {
    fn default() -> Faults {
        let names = CATALOGUE.iter().map(|(name, _)| ((*name).to_owned(), 0));
        let state = State {
            fired: names.collect(),
            ..State::default()
        };
        Faults {
            state: Mutex::new(state),
            changed: watch::Sender::new(0),
        }
    }
}

impl Faults {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets a fault that waits for its occasion, and returns its number.
    pub(crate) fn arm(&self, spec: Spec) -> u64 {
        let mut state = self.state();
        state.next_id += 1;
        let id = state.next_id;
        state.active.push(Active {
            id,
            name: spec.fault.name(),
            left: spec.count,
            spec,
            fired: 0,
        });
        id
    }

    /// Clears a fault; its count stays. Returns whether it was set.
    pub(crate) fn clear(&self, id: u64) -> bool {
        self.retain(|active| active.id != id)
    }

    /// Clears all faults of a name, or all faults. Returns whether any was set.
    pub(crate) fn clear_named(&self, name: Option<&str>) -> bool {
        self.retain(|active| name.is_some_and(|name| active.name != name))
    }

    fn retain(&self, keep: impl Fn(&Active) -> bool) -> bool {
        let mut state = self.state();
        let (kept, cleared): (Vec<_>, Vec<_>) = state.active.drain(..).partition(keep);
        state.active = kept;
        let changed = !cleared.is_empty();
        let in_vain = cleared.into_iter().filter(|active| active.fired == 0);
        state
            .in_vain
            .extend(in_vain.map(|active| (active.id, active.spec)));
        drop(state);
        self.changed.send_modify(|count| *count += 1);
        changed
    }

    /// Fires the first fault for this place and account for which `pick` returns a value.
    pub fn take<T>(
        &self,
        place: Place,
        did: Option<&Did>,
        pick: impl Fn(&Fault) -> Option<T>,
    ) -> Option<T> {
        self.take_with_id(place, did, pick).map(|(_, taken)| taken)
    }

    pub(crate) fn take_with_id<T>(
        &self,
        place: Place,
        did: Option<&Did>,
        pick: impl Fn(&Fault) -> Option<T>,
    ) -> Option<(u64, T)> {
        let mut state = self.state();
        let (at, taken) = state.active.iter().enumerate().find_map(|(at, active)| {
            let ready = active.left != Some(0) && active.spec.matches(place, did);
            let taken = ready.then(|| pick(&active.spec.fault)).flatten()?;
            Some((at, taken))
        })?;
        let active = &mut state.active[at];
        active.fired += 1;
        active.left = active.left.map(|left| left - 1);
        let (id, name) = (active.id, active.name.clone());
        *state.fired.entry(name).or_default() += 1;
        Some((id, taken))
    }

    /// Counts an immediate fault.
    pub(crate) fn note(&self, fault: &Fault) {
        *self.state().fired.entry(fault.name()).or_default() += 1;
    }

    /// The number of times that faults of this name have fired.
    pub fn fired(&self, name: &str) -> u64 {
        self.state().fired.get(name).copied().unwrap_or(0)
    }

    /// The faults that were set and never fired, cleared or not, with their numbers.
    pub fn silent(&self) -> Vec<(u64, Spec)> {
        let state = self.state();
        let waiting = state.active.iter().filter(|active| active.fired == 0);
        let waiting = waiting.map(|active| (active.id, active.spec.clone()));
        state.in_vain.iter().cloned().chain(waiting).collect()
    }

    /// The counts of all names, including zeros, and the faults that are set now.
    pub fn report(&self) -> Json {
        let state = self.state();
        let active = state.active.iter().map(|active| {
            json!({
                "id": active.id,
                "spec": active.spec.to_json(),
                "left": active.left,
                "fired": active.fired,
            })
        });
        json!({ "fired": state.fired, "active": active.collect::<Vec<_>>() })
    }

    /// Whether a fault swallows the answer to a ping at this place.
    pub(crate) fn swallow_pong(&self, place: Place) -> bool {
        let wanted = |fault: &Fault| matches!(fault, Fault::NoPongs {}).then_some(());
        self.take(place, None, wanted).is_some()
    }

    /// Waits until a fault is no longer set.
    pub(crate) async fn cleared(&self, id: u64) {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            if self.state().active.iter().all(|active| active.id != id) {
                return;
            }
            if changed.changed().await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drop_at(faults: &Faults, place: Place) -> bool {
        let wanted = |fault: &Fault| matches!(fault, Fault::Drop { .. }).then_some(());
        faults.take(place, None, wanted).is_some()
    }

    #[test]
    fn a_fault_fires_in_its_place_as_often_as_it_was_told_and_counts() {
        let faults = Faults::default();
        assert_eq!(faults.fired("drop"), 0);
        faults.arm(
            Spec::new(Fault::Drop { unnumbered: false })
                .on(Place::Pds(1))
                .times(2),
        );
        assert!(!drop_at(&faults, Place::Pds(0)));
        assert!(drop_at(&faults, Place::Pds(1)));
        assert!(drop_at(&faults, Place::Pds(1)));
        assert!(!drop_at(&faults, Place::Pds(1)));
        assert_eq!(faults.fired("drop"), 2);
        let id = faults.arm(Spec::new(Fault::Drop { unnumbered: false }));
        assert!(drop_at(&faults, Place::Pds(0)));
        assert!(faults.clear(id));
        assert!(!drop_at(&faults, Place::Pds(0)));
        assert_eq!(faults.silent(), []);
        let never = Spec::new(Fault::CarCut {});
        let cleared = faults.arm(never.clone());
        assert!(faults.clear(cleared));
        let waiting = faults.arm(never.clone());
        assert_eq!(
            faults.silent(),
            [(cleared, never.clone()), (waiting, never)]
        );
        let report = faults.report();
        assert_eq!(report["fired"]["drop"], 3);
        assert_eq!(report["fired"]["car-cut"], 0);
    }
}
