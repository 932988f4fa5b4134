//! TIDs: times in 13 characters that sort like numbers. Revs are TIDs.
//!
//! A [`Tid`] is its 64 bits: microseconds since 1970, then ten bits that distinguish
//! clocks. The order of the text, of the bits and of `Ord` is the same. The topmost bit
//! should be zero, but the syntax allows it to be one, so it is kept; such a TID is some
//! 285 years ahead, and [`Tid::is_future`] reports it.

use std::fmt;
use std::str::FromStr;

use super::Excerpt;
use crate::limits::REV_FUTURE_MICROS;

const TID_BYTES: usize = 13;
const CLOCK_BITS: u32 = 10;
const ALPHABET: &[u8; 32] = b"234567abcdefghijklmnopqrstuvwxyz";
const NO_DIGIT: u8 = 0xff;
const DIGITS: [u8; 256] = digits();

/// A TID: 64 bits, by value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(u64);

/// The revision of a repository: a TID that grows with every commit.
pub type Rev = Tid;

/// Why text is not a TID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{given} is not a TID: {fault}")]
pub struct TidError {
    pub fault: TidFault,
    pub given: Excerpt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TidFault {
    #[error("it must have {TID_BYTES} characters")]
    Length,
    #[error("only the digits 2 to 7 and the letters a to z are allowed")]
    Character,
    #[error("the first character must be one of 2 to 7 and a to j")]
    First,
}

const fn digits() -> [u8; 256] {
    let mut table = [NO_DIGIT; 256];
    let mut value = 0;
    while value < ALPHABET.len() {
        table[ALPHABET[value] as usize] = value as u8;
        value += 1;
    }
    table
}

impl Tid {
    /// Parses a TID. Allocates nothing.
    pub fn parse(text: &str) -> Result<Tid, TidError> {
        read(text.as_bytes()).map_err(|fault| TidError {
            fault,
            given: Excerpt::of(text),
        })
    }

    /// The TID of a time and a clock. Panics if `micros` is not below 2^53 or `clock_id`
    /// not below 1,024.
    pub fn from_micros(micros: u64, clock_id: u16) -> Tid {
        assert!(micros < 1 << 53, "a TID has 53 bits of microseconds");
        assert!(clock_id < 1 << CLOCK_BITS, "a TID has 10 bits of clock");
        Tid(micros << CLOCK_BITS | u64::from(clock_id))
    }

    /// The inverse of [`Tid::to_bits`]. Every number is a TID.
    pub fn from_bits(bits: u64) -> Tid {
        Tid(bits)
    }

    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// Microseconds since 1970.
    pub fn micros(self) -> u64 {
        self.0 >> CLOCK_BITS
    }

    pub fn clock_id(self) -> u16 {
        (self.0 & ((1 << CLOCK_BITS) - 1)) as u16
    }

    /// Whether the time is further ahead of `now_micros` than clocks may differ
    /// ([`REV_FUTURE_MICROS`]).
    pub fn is_future(self, now_micros: u64) -> bool {
        self.micros() > now_micros.saturating_add(REV_FUTURE_MICROS)
    }

    /// The text as bytes, without allocating.
    pub(crate) fn to_ascii(self) -> [u8; TID_BYTES] {
        let mut text = [0; TID_BYTES];
        let mut rest = self.0;
        for place in text.iter_mut().rev() {
            *place = ALPHABET[(rest & 31) as usize];
            rest >>= 5;
        }
        text
    }
}

fn read(text: &[u8]) -> Result<Tid, TidFault> {
    if text.len() != TID_BYTES {
        return Err(TidFault::Length);
    }
    let mut bits: u64 = 0;
    let mut worst = 0;
    for byte in text {
        let digit = DIGITS[usize::from(*byte)];
        worst |= digit;
        bits = bits << 5 | u64::from(digit & 31);
    }
    if worst == NO_DIGIT {
        return Err(TidFault::Character);
    }
    // Thirteen characters hold 65 bits: the first one may not use its top bit.
    if text.first().is_some_and(|byte| *byte > b'j') {
        return Err(TidFault::First);
    }
    Ok(Tid(bits))
}

impl FromStr for Tid {
    type Err = TidError;

    fn from_str(text: &str) -> Result<Tid, TidError> {
        Tid::parse(text)
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.to_ascii() {
            fmt::Write::write_char(f, char::from(byte))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
