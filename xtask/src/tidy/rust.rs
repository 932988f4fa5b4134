//! Reads as much Rust as the checks need: code without comments and strings, and the beginning
//! and end of each function.
//!
//! This module is not a parser. It recognises comments, strings, raw strings and characters, and
//! counts brackets; Rust has no macros with unbalanced brackets.

/// The source with comments, strings and characters turned into spaces. Line
/// breaks and byte positions stay.
pub(super) fn code_only(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match token_to_blank(bytes, at) {
            Some(end) => end.min(bytes.len()),
            None => {
                at += 1;
                continue;
            }
        };
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    // Blanking starts and ends at ASCII bytes, so no multi-byte character was cut.
    String::from_utf8(code).unwrap_or_default()
}

/// The contents of every string with unprocessed escapes, and the line on which the string
/// begins. Raw strings are left out.
pub(super) fn strings(source: &str) -> Vec<(usize, &str)> {
    let bytes = source.as_bytes();
    let mut found = Vec::new();
    let mut line = 1;
    let mut at = 0;
    while at < bytes.len() {
        let end = match token_to_blank(bytes, at) {
            Some(end) => end.min(bytes.len()),
            None => at + 1,
        };
        if bytes[at] == b'"' {
            let quoted = &source[at + 1..end];
            found.push((line, quoted.strip_suffix('"').unwrap_or(quoted)));
        }
        line += bytes[at..end].iter().filter(|b| **b == b'\n').count();
        at = end;
    }
    found
}

/// The end of the comment, string or character that starts at `at`, if one does.
fn token_to_blank(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return Some(at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()));
    }
    if rest.starts_with(b"/*") {
        return Some(at + block_comment_length(rest));
    }
    match rest.first() {
        Some(b'"') => Some(at + 1 + quoted_length(&rest[1..], b'"')),
        Some(b'\'') => character_length(rest).map(|length| at + length),
        Some(b'r') if at == 0 || !is_word(bytes[at - 1]) || is_string_prefix(bytes, at) => {
            raw_string_length(rest).map(|length| at + length)
        }
        _ => None,
    }
}

/// Whether the byte at `at` is the `b` or `c` before a raw string's `r`, at the start of a word.
fn is_string_prefix(bytes: &[u8], at: usize) -> bool {
    matches!(bytes[at - 1], b'b' | b'c') && (at == 1 || !is_word(bytes[at - 2]))
}

fn block_comment_length(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The number of bytes up to and including the closing quote; escaped quotes do not close.
fn quoted_length(rest: &[u8], quote: u8) -> usize {
    let mut at = 0;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a character literal: an escape, or one character and a quote. `None` for a
/// lifetime.
fn character_length(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        return Some(1 + quoted_length(&rest[1..], b'\''));
    }
    let first = *rest.get(1)?;
    let width = match first {
        0..=0x7f => 1,
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        _ => 4,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

fn raw_string_length(rest: &[u8]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|b| **b == b'#').count();
    let body = 1 + hashes + 1;
    if rest.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let mut closing = vec![b'"'];
    closing.resize(1 + hashes, b'#');
    let end = rest[body..]
        .windows(closing.len())
        .position(|window| window == closing);
    Some(end.map_or(rest.len(), |end| body + end + closing.len()))
}

/// Whether a byte can stand in a name.
pub(super) fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function<'a> {
    pub name: &'a str,
    pub line: usize,
    pub lines: usize,
    pub is_test: bool,
}

/// Every function with a body, nested ones too. `code` must be output of [`code_only`].
pub(super) fn functions(code: &str) -> Vec<Function<'_>> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    for (start, _) in code.match_indices("fn ") {
        if start > 0 && is_word(bytes[start - 1]) {
            continue;
        }
        let after = code[start + 3..].trim_start();
        let length = after.bytes().take_while(|b| is_word(*b)).count();
        let name = &after[..length];
        let Some(end) = body_end(bytes, start).filter(|_| !name.is_empty()) else {
            continue;
        };
        let lines_between = |from: usize, to: usize| code[from..to].matches('\n').count();
        found.push(Function {
            name,
            line: lines_between(0, start) + 1,
            lines: lines_between(start, end) + 1,
            is_test: is_test(&code[..start]),
        });
    }
    found
}

/// The position of the closing brace of the item that starts at `start`; `None` for a
/// declaration that ends with `;`.
pub(super) fn body_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut brackets = 0i32;
    let mut braces = 0i32;
    for (offset, byte) in bytes[start..].iter().enumerate() {
        match byte {
            b'(' | b'[' => brackets += 1,
            b')' | b']' => brackets -= 1,
            b';' if brackets == 0 && braces == 0 => return None,
            b'{' if brackets == 0 || braces > 0 => braces += 1,
            b'}' if braces > 0 => {
                braces -= 1;
                if braces == 0 {
                    return Some(start + offset);
                }
            }
            _ => {}
        }
    }
    None
}

/// Whether the attributes right before a function make it a test.
fn is_test(before: &str) -> bool {
    let own = before
        .rfind(['{', '}', ';'])
        .map_or(before, |at| &before[at..]);
    ["#[test]", "::test]", "::test("]
        .iter()
        .any(|mark| own.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_characters_vanish_and_lines_stay() {
        let source = "a // x {\nb /* { /* } */ { */ c\n\"s\\\"{\" 'd' '\\'' '{' &'e f\nr#\"g\"{\"# br\"{\" \"ü{\" h";
        let code = code_only(source);
        assert_eq!(code.len(), source.len());
        assert_eq!(code.matches('\n').count(), 3);
        assert_eq!(
            code.split_whitespace().collect::<Vec<_>>(),
            ["a", "b", "c", "&'e", "f", "b", "h"]
        );
    }

    #[test]
    fn strings_have_a_line_and_keep_their_escapes() {
        let source = "a(\"b\", 'c', \"d\\\"e\"); // \"f\"\n/* \"g\" */ r\"h\" \"i\nj\" '\"' \"k\"";
        let expected = [(1, "b"), (1, "d\\\"e"), (2, "i\nj"), (3, "k")];
        assert_eq!(strings(source), expected);
    }

    #[test]
    fn raw_identifiers_and_words_ending_in_r_are_code() {
        assert_eq!(
            code_only("r#fn for \"x\""),
            format!("r#fn for {}", " ".repeat(3))
        );
    }

    #[test]
    fn functions_have_a_start_a_length_and_a_kind() {
        let source = "trait T {\n    fn declared(&self, a: [u8; 2]);\n}\n\
            #[test]\nfn first() {\n    let f: fn (u8) -> u8 = |x| { x };\n}\n\
            #[tokio::test(flavor = \"x\")]\nasync fn second<const N: usize>() -> [u8; { N }] {\n    {}\n}\n\
            fn third() {}\n// #[test]\nfn fourth() {}\n";
        let code = code_only(source);
        let found: Vec<(&str, usize, usize, bool)> = functions(&code)
            .iter()
            .map(|f| (f.name, f.line, f.lines, f.is_test))
            .collect();
        assert_eq!(
            found,
            [
                ("first", 5, 3, true),
                ("second", 9, 3, true),
                ("third", 12, 1, false),
                ("fourth", 14, 1, false),
            ]
        );
    }

    #[test]
    fn unfinished_source_ends_quietly() {
        for source in [
            "fn a() {",
            "\"open",
            "/* open",
            "r##\"open\"#",
            "'",
            "'\\",
            "fn ",
            "b'",
        ] {
            functions(&code_only(source));
            strings(source);
        }
    }
}
