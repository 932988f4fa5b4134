//! Reads the frames that a reader sends, each within bounds. A breach of the protocol is
//! an error with the close code that names it.

use tokio::io::{AsyncRead, AsyncReadExt};

use super::{BINARY, CLOSE, PING, PONG};

/// Bytes of one message of a reader. Readers have nothing to send, so this is small.
const READER_MESSAGE_BYTES: u64 = 64 << 10;
/// Bytes of a ping, a pong or a close frame.
const CONTROL_BYTES: u64 = 125;

const CONTINUED: u8 = 0;
const TEXT: u8 = 1;

/// The reader broke the protocol.
const CLOSE_PROTOCOL: u16 = 1002;
/// A text is not valid UTF-8.
const CLOSE_NO_TEXT: u16 = 1007;
/// A message of a reader is too large.
const CLOSE_TOO_LARGE: u16 = 1009;

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CloseFrame {
    /// The close code; `None` if the other side sent none.
    pub(crate) code: Option<u16>,
    pub(crate) reason: &'static str,
    /// Whether the close frame of the other side is still to come.
    pub(crate) waits: bool,
}

impl CloseFrame {
    /// The close frame of a server that ends the connection first.
    pub(crate) const fn ours(code: u16, reason: &'static str) -> CloseFrame {
        CloseFrame {
            code: Some(code),
            reason,
            waits: true,
        }
    }

    /// The close frame after a breach of the protocol; no answer is awaited.
    const fn broken(code: u16, reason: &'static str) -> CloseFrame {
        CloseFrame {
            code: Some(code),
            reason,
            waits: false,
        }
    }

    /// The answer to a close frame.
    pub(crate) fn answer(payload: &[u8]) -> CloseFrame {
        let wrong = |reason| CloseFrame::broken(CLOSE_PROTOCOL, reason);
        let code = match payload {
            [] => None,
            [_] => return wrong("half a code"),
            [first, second, reason @ ..] => {
                if std::str::from_utf8(reason).is_err() {
                    return CloseFrame::broken(CLOSE_NO_TEXT, "the reason is no text");
                }
                Some(u16::from_be_bytes([*first, *second]))
            }
        };
        match code {
            Some(code) if !is_sent(code) => wrong("no such code"),
            code => CloseFrame {
                code,
                reason: "",
                waits: false,
            },
        }
    }
}

/// Whether a close code may be sent.
fn is_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

/// One frame of a reader.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InboundFrame {
    Ping(Vec<u8>),
    Close(Vec<u8>),
    /// A pong, or a message, which is ignored.
    Other,
}

/// Why there is no further frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InboundError {
    Gone,
    Violation(CloseFrame),
}

impl From<std::io::Error> for InboundError {
    fn from(_: std::io::Error) -> InboundError {
        InboundError::Gone
    }
}

fn wrong(reason: &'static str) -> InboundError {
    InboundError::Violation(CloseFrame::broken(CLOSE_PROTOCOL, reason))
}

/// Reads frames, each within bounds.
pub(crate) struct InboundFrames<R> {
    pub(crate) read: R,
    /// The bytes so far of a message in several frames.
    message: Option<u64>,
}

impl<R: AsyncRead + Unpin> InboundFrames<R> {
    pub(crate) fn new(read: R) -> InboundFrames<R> {
        InboundFrames {
            read,
            message: None,
        }
    }

    pub(crate) async fn next(&mut self) -> Result<InboundFrame, InboundError> {
        let mut head = [0; 2];
        self.read.read_exact(&mut head).await?;
        let [first, second] = head;
        let (is_last, opcode) = (first & 0x80 != 0, first & 0x0f);
        if first & 0x70 != 0 {
            return Err(wrong("a reserved bit is set"));
        }
        if second & 0x80 == 0 {
            return Err(wrong("a frame is not masked"));
        }
        let len = self.length(second & 0x7f).await?;
        match opcode {
            CONTINUED | TEXT | BINARY => self.part(opcode, is_last, len)?,
            CLOSE | PING | PONG if len > CONTROL_BYTES => {
                return Err(wrong("a control frame is too long"));
            }
            CLOSE | PING | PONG if !is_last => {
                return Err(wrong("a control frame is in parts"));
            }
            CLOSE | PING | PONG => {}
            _ => return Err(wrong("no such opcode")),
        }
        let payload = self.payload(len).await?;
        Ok(match opcode {
            PING => InboundFrame::Ping(payload),
            CLOSE => InboundFrame::Close(payload),
            _ => InboundFrame::Other,
        })
    }

    async fn length(&mut self, short: u8) -> Result<u64, InboundError> {
        let (len, least) = match short {
            126 => (u64::from(self.read.read_u16().await?), 126),
            127 => (self.read.read_u64().await?, 0x1_0000),
            short => return Ok(u64::from(short)),
        };
        if (least..=i64::MAX as u64).contains(&len) {
            Ok(len)
        } else {
            Err(wrong("a length is not written as it must be"))
        }
    }

    /// Counts a part of a message.
    fn part(&mut self, opcode: u8, is_last: bool, len: u64) -> Result<(), InboundError> {
        let before = match (opcode, self.message) {
            (CONTINUED, Some(before)) => before,
            (CONTINUED, None) => return Err(wrong("nothing was begun that goes on")),
            (_, None) => 0,
            (_, Some(_)) => return Err(wrong("a message begins within another")),
        };
        let bytes = before.saturating_add(len);
        if bytes > READER_MESSAGE_BYTES {
            let close = CloseFrame::broken(CLOSE_TOO_LARGE, "a message is too large");
            return Err(InboundError::Violation(close));
        }
        self.message = (!is_last).then_some(bytes);
        Ok(())
    }

    /// Reads a payload whose length was checked before.
    async fn payload(&mut self, len: u64) -> Result<Vec<u8>, InboundError> {
        let mut mask = [0; 4];
        self.read.read_exact(&mut mask).await?;
        let mut payload = vec![0; len as usize];
        self.read.read_exact(&mut payload).await?;
        for (byte, key) in payload.iter_mut().zip(mask.iter().cycle()) {
            *byte ^= key;
        }
        Ok(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn frames(bytes: &[u8]) -> Vec<Result<InboundFrame, InboundError>> {
        let mut frames = InboundFrames::new(bytes);
        let mut found = Vec::new();
        loop {
            let frame = frames.next().await;
            let ends = frame.is_err();
            found.push(frame);
            if ends {
                return found;
            }
        }
    }

    /// The code with which these bytes are answered.
    async fn code(bytes: &[u8]) -> Option<u16> {
        match frames(bytes).await.pop() {
            Some(Err(InboundError::Violation(close))) => close.code,
            _ => None,
        }
    }

    #[tokio::test]
    async fn what_a_reader_sends_is_unmasked_and_bounded() {
        let ping = [0x89, 0x82, 1, 2, 3, 4, b'h' ^ 1, b'i' ^ 2];
        let found = frames(&ping).await;
        assert_eq!(
            found,
            [
                Ok(InboundFrame::Ping(b"hi".to_vec())),
                Err(InboundError::Gone)
            ],
            "and then nothing comes"
        );
        assert_eq!(frames(&ping[..5]).await, [Err(InboundError::Gone)]);
        let protocol: [&[u8]; 10] = [
            &[0x89, 0x02, b'h', b'i'],                         // not masked
            &[0xc2, 0x80, 0, 0, 0, 0],                         // a reserved bit
            &[0x83, 0x80, 0, 0, 0, 0],                         // no opcode for messages
            &[0x8b, 0x80, 0, 0, 0, 0],                         // nor for control
            &[0x89, 0xfe, 0, 126],                             // a long ping
            &[0x09, 0x80, 0, 0, 0, 0],                         // a ping in parts
            &[0x80, 0x80, 0, 0, 0, 0],                         // the end of nothing
            &[0x02, 0x80, 0, 0, 0, 0, 0x82, 0x80, 0, 0, 0, 0], // one within another
            &[0x82, 0xfe, 0, 125],                             // a length too long by itself
            &[0x82, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0],          // and one that is negative
        ];
        for bytes in protocol {
            assert_eq!(code(bytes).await, Some(CLOSE_PROTOCOL), "{bytes:x?}");
        }
        let huge = [0x82, 0xff, 0, 0, 0, 0, 0, 1, 0, 1];
        assert_eq!(code(&huge).await, Some(CLOSE_TOO_LARGE));
        // Also when it comes in parts.
        let mut parts = vec![0x02, 0xfe, 0xff, 0xff, 0, 0, 0, 0];
        parts.resize(parts.len() + 0xffff, 0);
        parts.extend([0x00, 0x81, 0, 0, 0, 0, 0, 0x80, 0x81, 0, 0, 0, 0, 0]);
        assert_eq!(code(&parts).await, Some(CLOSE_TOO_LARGE));
        let in_parts = [
            0x01, 0x80, 0, 0, 0, 0, 0x8a, 0x80, 0, 0, 0, 0, 0x80, 0x80, 0, 0, 0, 0,
        ];
        assert_eq!(frames(&in_parts).await.len(), 4, "a pong may be between");
    }

    #[test]
    fn a_goodbye_is_answered_with_its_code() {
        let answer = |payload: &[u8]| CloseFrame::answer(payload).code;
        assert_eq!(answer(&[]), None);
        for code in [1000, 1001, 1003, 1011, 3000, 4999] {
            let payload = [&u16::to_be_bytes(code)[..], b"bye"].concat();
            assert_eq!(answer(&payload), Some(code));
        }
        for code in [0, 999, 1004, 1005, 1006, 1015, 2999, 5000] {
            let payload = u16::to_be_bytes(code);
            assert_eq!(answer(&payload), Some(CLOSE_PROTOCOL), "{code}");
        }
        assert_eq!(answer(&[3]), Some(CLOSE_PROTOCOL));
        assert_eq!(answer(&[3, 232, 0xff]), Some(CLOSE_NO_TEXT));
    }
}
