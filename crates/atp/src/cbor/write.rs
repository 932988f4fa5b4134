//! Writes DAG-CBOR in its strict form.
//!
//! Heads are always shortest-form. The caller must write map keys in canonical order
//! (shorter keys first, then by bytes) and as many items as it announced.

use crate::cid::Cid;

/// Appends values to a buffer.
#[derive(Debug, Default)]
pub struct Writer {
    out: Vec<u8>,
}

impl Writer {
    pub fn new() -> Writer {
        Writer::default()
    }

    /// Continues an existing buffer, so that its memory is reused.
    pub fn with(out: Vec<u8>) -> Writer {
        Writer { out }
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    #[inline]
    fn head(&mut self, major: u8, value: u64) {
        let major = major << 5;
        match value {
            0..=23 => self.out.push(major | value as u8),
            24..=0xff => self.out.extend_from_slice(&[major | 24, value as u8]),
            0x100..=0xffff => {
                self.out.push(major | 25);
                self.out.extend_from_slice(&(value as u16).to_be_bytes());
            }
            0x1_0000..=0xffff_ffff => {
                self.out.push(major | 26);
                self.out.extend_from_slice(&(value as u32).to_be_bytes());
            }
            _ => {
                self.out.push(major | 27);
                self.out.extend_from_slice(&value.to_be_bytes());
            }
        }
    }

    pub fn map(&mut self, pairs: usize) -> &mut Writer {
        self.head(5, pairs as u64);
        self
    }

    pub fn array(&mut self, items: usize) -> &mut Writer {
        self.head(4, items as u64);
        self
    }

    pub fn uint(&mut self, value: u64) -> &mut Writer {
        self.head(0, value);
        self
    }

    pub fn int(&mut self, value: i64) -> &mut Writer {
        match u64::try_from(value) {
            Ok(value) => self.head(0, value),
            Err(_) => self.head(1, !(value as u64)),
        }
        self
    }

    pub fn text(&mut self, text: &str) -> &mut Writer {
        self.head(3, text.len() as u64);
        self.out.extend_from_slice(text.as_bytes());
        self
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Writer {
        self.head(2, bytes.len() as u64);
        self.out.extend_from_slice(bytes);
        self
    }

    pub fn bool(&mut self, value: bool) -> &mut Writer {
        self.out.push(if value { 0xf5 } else { 0xf4 });
        self
    }

    pub fn null(&mut self) -> &mut Writer {
        self.out.push(0xf6);
        self
    }

    pub fn cid(&mut self, cid: &Cid) -> &mut Writer {
        self.out.extend_from_slice(&[0xd8, 0x2a, 0x58, 0x25, 0x00]);
        self.out.extend_from_slice(cid.as_bytes());
        self
    }

    pub fn cid_or_null(&mut self, cid: Option<&Cid>) -> &mut Writer {
        match cid {
            Some(cid) => self.cid(cid),
            None => self.null(),
        }
    }

    /// Appends bytes that are already one DAG-CBOR value.
    pub fn verbatim(&mut self, value: &[u8]) -> &mut Writer {
        self.out.extend_from_slice(value);
        self
    }
}
