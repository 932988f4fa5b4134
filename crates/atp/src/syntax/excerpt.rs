//! The beginning of untrusted text, kept by value for the text of an error.
//!
//! An [`Excerpt`] never allocates and never exceeds its 46 bytes, so refusing bad input
//! costs no more than accepting good input.

use std::fmt;

const KEPT_BYTES: usize = 46;

/// At most 46 bytes of refused input, displayed in quotes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Excerpt {
    bytes: [u8; KEPT_BYTES],
    len: u8,
    cut: bool,
}

impl Excerpt {
    pub fn of(given: impl AsRef<[u8]>) -> Excerpt {
        let given = given.as_ref();
        let mut len = given.len().min(KEPT_BYTES);
        let cut = len < given.len();
        // Do not cut a character in two: step back over continuation bytes.
        while cut && len > 0 && given[len] & 0xc0 == 0x80 {
            len -= 1;
        }
        let mut bytes = [0; KEPT_BYTES];
        bytes[..len].copy_from_slice(&given[..len]);
        Excerpt {
            bytes,
            len: len as u8,
            cut,
        }
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = &self.bytes[..usize::from(self.len)];
        let text = String::from_utf8_lossy(kept);
        let more = if self.cut { "…" } else { "" };
        write!(f, "\"{}{more}\"", text.escape_debug())
    }
}

impl fmt::Debug for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_cuts() {
        assert_eq!(Excerpt::of("a\nb").to_string(), r#""a\nb""#);
        assert_eq!(Excerpt::of("").to_string(), r#""""#);
        let long = Excerpt::of("x".repeat(47)).to_string();
        assert_eq!(long, format!("\"{}…\"", "x".repeat(46)));
        // 45 bytes and then a character of two: only whole characters are shown.
        let split = format!("{}éé", "x".repeat(45));
        let shown = Excerpt::of(split).to_string();
        assert_eq!(shown, format!("\"{}…\"", "x".repeat(45)));
        assert_eq!(Excerpt::of([0xff, b'a']).to_string(), "\"\u{fffd}a\"");
        assert_eq!(Excerpt::of([0x80; 60]).to_string(), "\"…\"");
    }
}
