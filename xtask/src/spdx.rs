//! Decides whether a licence expression can be satisfied with allowed ids.
//!
//! The parser reads `OR`, `AND`, parentheses, `WITH`, and the old `/` for `OR`. Anything else is
//! an error, never an approval.

/// Whether `expression` can be satisfied by ids that `allowed` accepts.
pub(crate) fn satisfied(expression: &str, allowed: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader {
        words: &words,
        allowed,
    };
    let verdict = reader.any()?;
    match reader.words.first() {
        None => Ok(verdict),
        Some(word) => Err(format!("unexpected `{word}`")),
    }
}

struct Reader<'a> {
    words: &'a [&'a str],
    allowed: &'a dyn Fn(&str) -> bool,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.words.first() == Some(&word);
        if found {
            self.next();
        }
        found
    }

    fn any(&mut self) -> Result<bool, String> {
        let mut verdict = self.all()?;
        while self.take("OR") {
            verdict |= self.all()?;
        }
        Ok(verdict)
    }

    fn all(&mut self) -> Result<bool, String> {
        let mut verdict = self.one()?;
        while self.take("AND") {
            verdict &= self.one()?;
        }
        Ok(verdict)
    }

    fn one(&mut self) -> Result<bool, String> {
        let word = self.next().ok_or("it ends too early")?;
        if word == "(" {
            let verdict = self.any()?;
            return if self.take(")") {
                Ok(verdict)
            } else {
                Err("a parenthesis is not closed".to_string())
            };
        }
        if matches!(word, ")" | "OR" | "AND" | "WITH") {
            return Err(format!("unexpected `{word}`"));
        }
        if self.take("WITH") {
            let exception = self.next().ok_or("nothing follows WITH")?;
            return Ok((self.allowed)(&format!("{word} WITH {exception}")));
        }
        Ok((self.allowed)(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(expression: &str) -> Result<bool, String> {
        satisfied(expression, &|id| {
            ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].contains(&id)
        })
    }

    #[test]
    fn expressions_are_judged() {
        for (expression, expected) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("GPL-3.0-only OR MIT", true),
            ("GPL-3.0-only/MIT", true),
            ("GPL-3.0-only AND MIT", false),
            ("MIT AND GPL-3.0-only OR ISC", true),
            ("MIT AND (GPL-3.0-only OR ISC)", true),
            ("(MIT OR ISC) AND GPL-3.0-only", false),
            ("Apache-2.0", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("MIT WITH LLVM-exception", false),
        ] {
            assert_eq!(verdict(expression), Ok(expected), "{expression}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_no_approval() {
        for expression in [
            "", "MIT OR", "(MIT", "MIT)", "MIT ISC", "OR MIT", "MIT WITH",
        ] {
            assert!(verdict(expression).is_err(), "{expression:?}");
        }
    }
}
