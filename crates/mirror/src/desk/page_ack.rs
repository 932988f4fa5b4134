//! Is what a page led to durable? Each of its lines is a change of its own; the
//! store may refuse any of them, and then the page says nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gapless_store::error::StoreError;
use tokio::sync::oneshot;

use crate::desk::Then;

/// The lines of a page whose changes are on their way. When nobody waits for any
/// of them any more, it is told whether all of them are durable.
pub struct Written(Arc<OnTheirWay>);

struct OnTheirWay {
    lines: AtomicUsize,
    tell: Option<oneshot::Sender<bool>>,
}

impl Written {
    pub fn new() -> (Written, oneshot::Receiver<bool>) {
        let (tell, told) = oneshot::channel();
        let lines = OnTheirWay {
            lines: AtomicUsize::new(0),
            tell: Some(tell),
        };
        (Written(Arc::new(lines)), told)
    }

    /// One more line. Whoever drops this without calling it has not written it.
    pub fn line(&self) -> Then {
        let lines = self.0.clone();
        lines.lines.fetch_add(1, Ordering::Relaxed);
        Box::new(move |durable: Result<(), StoreError>| {
            if durable.is_ok() {
                lines.lines.fetch_sub(1, Ordering::Relaxed);
            }
        })
    }
}

impl Drop for OnTheirWay {
    fn drop(&mut self) {
        let all = *self.lines.get_mut() == 0;
        if let Some(tell) = self.tell.take() {
            // A sweep that was given up does not listen.
            let _ = tell.send(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_written_when_each_of_its_lines_is() {
        let (written, mut told) = Written::new();
        let (first, second) = (written.line(), written.line());
        drop(written);
        first(Ok(()));
        assert!(told.try_recv().is_err(), "one is on its way");
        second(Ok(()));
        assert_eq!(told.try_recv(), Ok(true));
    }

    #[test]
    fn a_line_that_is_refused_or_forgotten_is_not_written() {
        let (written, mut told) = Written::new();
        let (first, second) = (written.line(), written.line());
        drop(written);
        first(Err(StoreError::Closed));
        second(Ok(()));
        assert_eq!(told.try_recv(), Ok(false));
        let (written, mut told) = Written::new();
        drop(written.line());
        drop(written);
        assert_eq!(told.try_recv(), Ok(false));
    }
}
