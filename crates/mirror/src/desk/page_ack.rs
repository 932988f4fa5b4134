//! Tracks whether all changes that a page of a listing led to are durable. Each entry is a change
//! of its own; if the store refuses one of them, the page counts for nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gapless_store::error::StoreError;
use tokio::sync::oneshot;

use crate::desk::DurableReply;

/// Counts the entries of a page whose changes are not durable. When the `PageAck` and all its
/// replies are dropped, the receiver learns whether the changes of all entries are durable.
pub(super) struct PageAck(Arc<Inner>);

struct Inner {
    entries: AtomicUsize,
    sender: Option<oneshot::Sender<bool>>,
}

impl PageAck {
    pub(super) fn new() -> (PageAck, oneshot::Receiver<bool>) {
        let (sender, receiver) = oneshot::channel();
        let inner = Inner {
            entries: AtomicUsize::new(0),
            sender: Some(sender),
        };
        (PageAck(Arc::new(inner)), receiver)
    }

    /// Counts one more entry. A reply that is dropped without being called counts as not
    /// durable.
    pub(super) fn add_entry(&self) -> DurableReply {
        let inner = self.0.clone();
        inner.entries.fetch_add(1, Ordering::Relaxed);
        Box::new(move |durable: Result<(), StoreError>| {
            if durable.is_ok() {
                inner.entries.fetch_sub(1, Ordering::Relaxed);
            }
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let all = *self.entries.get_mut() == 0;
        if let Some(sender) = self.sender.take() {
            // The sweep may have been given up.
            let _ = sender.send(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_durable_when_each_of_its_entries_is() {
        let (ack, mut durable) = PageAck::new();
        let (first, second) = (ack.add_entry(), ack.add_entry());
        drop(ack);
        first(Ok(()));
        assert!(durable.try_recv().is_err(), "one is in flight");
        second(Ok(()));
        assert_eq!(durable.try_recv(), Ok(true));
    }

    #[test]
    fn an_entry_that_is_refused_or_dropped_is_not_durable() {
        let (ack, mut durable) = PageAck::new();
        let (first, second) = (ack.add_entry(), ack.add_entry());
        drop(ack);
        first(Err(StoreError::Closed));
        second(Ok(()));
        assert_eq!(durable.try_recv(), Ok(false));
        let (ack, mut durable) = PageAck::new();
        drop(ack.add_entry());
        drop(ack);
        assert_eq!(durable.try_recv(), Ok(false));
    }
}
