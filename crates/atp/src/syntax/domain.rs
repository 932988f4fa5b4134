//! Dot-separated DNS labels, which handles, NSIDs and did:web share.
//!
//! A label has 1 to 63 letters, digits and hyphens, and no hyphen at either end. The
//! caller checks what the first or last label may begin with.

const LABEL_BYTES: usize = 63;

/// Why a part between dots is not a DNS label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LabelFault {
    #[error("a part between dots is empty")]
    Empty,
    #[error("a part between dots is longer than {LABEL_BYTES} bytes")]
    TooLong,
    #[error("a part between dots begins or ends with a hyphen")]
    Hyphen,
    #[error("only letters, digits and hyphens are allowed between dots")]
    Character,
}

/// Checks every label and returns the number of labels.
pub(crate) fn check_domain(text: &[u8]) -> Result<usize, LabelFault> {
    let mut labels = 0;
    for label in text.split(|byte| *byte == b'.') {
        check_label(label)?;
        labels += 1;
    }
    Ok(labels)
}

fn check_label(label: &[u8]) -> Result<(), LabelFault> {
    let (Some(first), Some(last)) = (label.first(), label.last()) else {
        return Err(LabelFault::Empty);
    };
    if label.len() > LABEL_BYTES {
        return Err(LabelFault::TooLong);
    }
    if *first == b'-' || *last == b'-' {
        return Err(LabelFault::Hyphen);
    }
    let legal = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    if label.iter().all(legal) {
        Ok(())
    } else {
        Err(LabelFault::Character)
    }
}

/// Whether the last label begins with a letter, as every top-level domain does. This
/// excludes IPv4 addresses.
pub(crate) fn ends_in_top_level(text: &[u8]) -> bool {
    text.rsplit(|byte| *byte == b'.')
        .next()
        .and_then(|label| label.first())
        .is_some_and(u8::is_ascii_alphabetic)
}
