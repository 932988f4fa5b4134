//! Decides where a consumer starts. A cursor is the number of the last event that the
//! consumer has.

/// Where a consumer starts, and what it is told first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// Starts at this number. `outdated`: the consumer may have missed earlier events.
    At { from: u64, outdated: bool },
    /// The cursor is beyond the last number.
    Future,
}

/// Decides where a consumer with this cursor starts. `oldest` is the first number in the
/// window, `next` the number after the last durable one.
pub(crate) fn start(cursor: Option<u64>, oldest: u64, next: u64) -> Start {
    let Some(cursor) = cursor else {
        return Start::At {
            from: next,
            outdated: false,
        };
    };
    if cursor >= next {
        return Start::Future;
    }
    let from = cursor + 1;
    Start::At {
        from: from.max(oldest),
        outdated: from < oldest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(from: u64, outdated: bool) -> Start {
        Start::At { from, outdated }
    }

    #[test]
    fn a_cursor_is_what_was_had_last() {
        assert_eq!(start(None, 40, 100), at(100, false), "only what is new");
        assert_eq!(start(Some(60), 40, 100), at(61, false));
        assert_eq!(start(Some(99), 40, 100), at(100, false), "has everything");
        assert_eq!(start(Some(100), 40, 100), Start::Future);
        assert_eq!(start(Some(u64::MAX), 40, 100), Start::Future);
    }

    #[test]
    fn a_cursor_older_than_the_window_starts_at_the_oldest_and_is_outdated() {
        assert_eq!(
            start(Some(39), 40, 100),
            at(40, false),
            "nothing is missing"
        );
        assert_eq!(start(Some(38), 40, 100), at(40, true));
        assert_eq!(start(Some(0), 40, 100), at(40, true));
        assert_eq!(start(Some(0), 1, 100), at(1, false), "all there ever was");
        assert_eq!(start(Some(0), 0, 1), at(1, false), "an empty log");
        assert_eq!(start(Some(5), 100, 100), at(100, true), "no frame is kept");
    }
}
