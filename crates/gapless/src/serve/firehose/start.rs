//! Where does a consumer begin? A cursor is the number of the last event that it
//! has: what comes after it is sent.

/// Where to begin, and what to say first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// From this number on. `outdated`: something before it may have been missed.
    At { from: u64, outdated: bool },
    /// Nobody has such a number.
    Future,
}

/// `oldest`: the first number that the window covers. `next`: the number after the
/// last one that is durable.
pub fn start(cursor: Option<u64>, oldest: u64, next: u64) -> Start {
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
    fn whoever_asks_for_more_than_there_is_is_told() {
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
