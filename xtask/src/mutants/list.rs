//! The format of `mutants/*.txt`, as `mutants/README.md` describes it.
//!
//! The parser is strict: a line that it cannot read is an error with the list's path and line, so
//! that a slip never yields a mutant that is caught for another reason. The parser does not read
//! the files that the mutants edit.

use super::edit::Edit;
use super::layer::Layer;
use std::collections::BTreeMap;

/// The longest `why`, in characters. Readers only glance at it.
const WHY_CHARS: usize = 120;
const START: &str = "a mutant starts with `mutant NAME`";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mutant {
    pub name: String,
    pub why: String,
    /// The path of the edited file, relative to the project's root.
    pub file: String,
    pub edit: Edit,
    /// The layers, tried in this order until one catches the mutant; never empty.
    pub layers: Vec<Layer>,
    /// The path of the list that has the mutant.
    pub list: String,
    pub line: usize,
}

/// What is wrong with a list, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub list: String,
    pub line: usize,
    pub wrong: String,
}

impl std::fmt::Display for Flaw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.list, self.line, self.wrong)
    }
}

/// Whether a path of the project is a list of mutants.
pub(crate) fn is_list(path: &str) -> bool {
    path.strip_prefix("mutants/")
        .is_some_and(|name| name.ends_with(".txt") && !name.contains('/'))
}

/// The mutants of one list, in its order.
pub(crate) fn parse(list: &str, text: &str) -> Result<Vec<Mutant>, Flaw> {
    let flaw = |line: usize, wrong: String| Flaw {
        list: list.to_string(),
        line,
        wrong,
    };
    let mut mutants = Vec::new();
    let mut draft: Option<Draft> = None;
    for (index, text) in text.lines().enumerate() {
        let line = index + 1;
        if let Some(name) = text.strip_prefix("mutant ") {
            if let Some(done) = draft.take() {
                mutants.push(done.finish(list)?);
            }
            let name = name.trim();
            if !is_name(name) {
                let wrong = format!("`{name}` is no name: small letters, digits and hyphens");
                return Err(flaw(line, wrong));
            }
            draft = Some(Draft::new(name, line));
            continue;
        }
        match &mut draft {
            Some(draft) => draft.read(text).map_err(|wrong| flaw(line, wrong))?,
            None if text.trim().is_empty() || text.starts_with('#') => {}
            None => return Err(flaw(line, START.to_string())),
        }
    }
    if let Some(done) = draft {
        mutants.push(done.finish(list)?);
    }
    Ok(mutants)
}

/// Finds mutants whose name an earlier mutant has.
pub(crate) fn doubles(mutants: &[Mutant]) -> Vec<Flaw> {
    let mut first: BTreeMap<&str, &Mutant> = BTreeMap::new();
    let mut flaws = Vec::new();
    for mutant in mutants {
        match first.get(mutant.name.as_str()) {
            None => {
                first.insert(&mutant.name, mutant);
            }
            Some(earlier) => flaws.push(mutant.flaw(format!(
                "the name `{}` is taken by {}:{}",
                mutant.name, earlier.list, earlier.line
            ))),
        }
    }
    flaws
}

impl Mutant {
    /// Why the edit does not fit its file's text; `None` if it fits. `text` is `None` for a file
    /// that is not part of the project.
    pub(crate) fn misfit(&self, text: Option<&str>) -> Option<Flaw> {
        let why = match text.map(|text| self.edit.apply(text)) {
            Some(Ok(_)) => return None,
            Some(Err(why)) => why,
            None => "it is no file of the project".to_string(),
        };
        Some(self.flaw(format!("{}: {}: {why}", self.name, self.file)))
    }

    pub(crate) fn flaw(&self, wrong: String) -> Flaw {
        Flaw {
            list: self.list.clone(),
            line: self.line,
            wrong,
        }
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// A mutant that is still being read.
struct Draft {
    name: String,
    line: usize,
    why: Option<String>,
    file: Option<String>,
    layers: Vec<Layer>,
    hunk: Vec<String>,
    hunk_over: bool,
}

impl Draft {
    fn new(name: &str, line: usize) -> Draft {
        Draft {
            name: name.to_string(),
            line,
            why: None,
            file: None,
            layers: Vec::new(),
            hunk: Vec::new(),
            hunk_over: false,
        }
    }

    fn read(&mut self, line: &str) -> Result<(), String> {
        if line.starts_with('#') {
            self.hunk_over = !self.hunk.is_empty();
            return Ok(());
        }
        if line.starts_with([' ', '-', '+']) || (line.is_empty() && !self.hunk.is_empty()) {
            return self.read_hunk(line);
        }
        if line.is_empty() {
            return Ok(());
        }
        if !self.hunk.is_empty() {
            return Err(format!(
                "after the edit only the next mutant may follow; {START}"
            ));
        }
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        let value = value.trim();
        match key {
            "why" | "file" | "test" if value.is_empty() => Err(format!("`{key}` says nothing")),
            "why" if value.chars().count() > WHY_CHARS => {
                Err(format!("`why` has more than {WHY_CHARS} characters"))
            }
            "why" => set(&mut self.why, key, value),
            "file" => set(&mut self.file, key, value),
            "test" => {
                self.layers.push(Layer::parse(value)?);
                Ok(())
            }
            _ => Err(format!(
                "`{key}` is none of mutant, why, file and test, and a line of the edit starts \
                 with a space, - or +"
            )),
        }
    }

    /// Reads a line of the edit. An empty line inside the edit is an empty line of the file; empty
    /// lines at the end of the edit only separate it from the next mutant.
    fn read_hunk(&mut self, line: &str) -> Result<(), String> {
        if self.hunk_over && !line.is_empty() {
            return Err("a comment ends the edit; one edit for each mutant".to_string());
        }
        if !self.hunk_over {
            self.hunk.push(line.to_string());
        }
        Ok(())
    }

    fn finish(mut self, list: &str) -> Result<Mutant, Flaw> {
        while self.hunk.last().is_some_and(|line| line.trim().is_empty()) {
            self.hunk.pop();
        }
        let name = &self.name;
        let flaw = |wrong: String| Flaw {
            list: list.to_string(),
            line: self.line,
            wrong: format!("{name}: {wrong}"),
        };
        let missing = |key: &str| flaw(format!("`{key}` is missing"));
        if self.layers.is_empty() {
            return Err(missing("test"));
        }
        let edit = Edit::parse(&self.hunk).map_err(&flaw)?;
        let why = self.why.clone().ok_or_else(|| missing("why"))?;
        let file = self.file.clone().ok_or_else(|| missing("file"))?;
        Ok(Mutant {
            name: self.name.clone(),
            why,
            file,
            edit,
            layers: self.layers.clone(),
            list: list.to_string(),
            line: self.line,
        })
    }
}

fn set(field: &mut Option<String>, key: &str, value: &str) -> Result<(), String> {
    match field.replace(value.to_string()) {
        None => Ok(()),
        Some(_) => Err(format!("`{key}` is there twice")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "\
# Of numbers.

mutant no-limit
why   the limit is not checked
file  crates/a/src/lib.rs
test  -p a --lib limits
test  -p a --test hostile
 fn check(n: usize) -> bool {
-    n < LIMIT

-    // as said above
+    true
 }

# Of words.
mutant any-word
file  crates/a/src/word.rs
why   every word passes
test  -p a --test words -- one two
-is_word(x)
+true
";

    fn wrong(text: &str) -> String {
        parse("mutants/a.txt", text).unwrap_err().to_string()
    }

    #[test]
    fn mutants_are_read_in_order() {
        let mutants = parse("mutants/a.txt", TWO).unwrap();
        assert_eq!(mutants.len(), 2);
        let [first, second] = &mutants[..] else {
            panic!("two")
        };
        assert_eq!((first.name.as_str(), first.line), ("no-limit", 3));
        assert_eq!(first.why, "the limit is not checked");
        assert_eq!(first.file, "crates/a/src/lib.rs");
        assert_eq!(first.layers.len(), 2);
        assert_eq!(first.layers[1].to_string(), "-p a --test hostile");
        let before = "x\nfn check(n: usize) -> bool {\n    n < LIMIT\n\n    // as said above\n}\n";
        let after = first.edit.apply(before).unwrap();
        assert_eq!(after, "x\nfn check(n: usize) -> bool {\n\n    true\n}\n");
        assert_eq!((second.name.as_str(), second.line), ("any-word", 16));
        assert_eq!(second.layers[0].to_string(), "-p a --test words -- one two");
    }

    #[test]
    fn a_list_without_mutants_is_empty() {
        assert_eq!(parse("mutants/a.txt", "# Nothing yet.\n\n"), Ok(Vec::new()));
    }

    #[test]
    fn what_is_not_understood_is_named_with_its_line() {
        for (from, to, expected) in [
            ("# Of numbers.", "Of numbers.", "a.txt:1: a mutant starts"),
            (
                "mutant no-limit",
                "mutant No limit",
                "a.txt:3: `No limit` is no name",
            ),
            (
                "why   the limit",
                "who   the limit",
                "a.txt:4: `who` is none of",
            ),
            (
                "file  crates/a/src/lib.rs",
                "file ",
                "a.txt:5: `file` says nothing",
            ),
            (
                "file  crates/a/src/lib.rs",
                "why x",
                "a.txt:5: `why` is there twice",
            ),
            ("--test hostile", "--tests", "a.txt:7: `--tests`"),
            (
                "+true\n",
                "+true\ntest -p a --lib\n",
                "a.txt:22: after the edit",
            ),
            (
                "+true\n",
                "+true\n# x\n+false\n",
                "a.txt:23: a comment ends",
            ),
        ] {
            let text = TWO.replacen(from, to, 1);
            assert_ne!(text, TWO, "{from}");
            assert!(wrong(&text).contains(expected), "{}", wrong(&text));
        }
    }

    #[test]
    fn what_is_missing_is_named_with_the_mutants_line() {
        for (without, expected) in [
            ("file  crates/a/src/word.rs\n", "`file` is missing"),
            ("why   every word passes\n", "`why` is missing"),
            ("test  -p a --test words -- one two\n", "`test` is missing"),
            ("-is_word(x)\n+true\n", "no edit"),
        ] {
            let text = TWO.replacen(without, "", 1);
            assert_ne!(text, TWO, "{without}");
            let why = wrong(&text);
            assert!(why.starts_with("mutants/a.txt:16: any-word: "), "{why}");
            assert!(why.contains(expected), "{why}");
        }
    }

    #[test]
    fn a_long_reason_is_refused() {
        let text = TWO.replacen("every word", &"very ".repeat(30), 1);
        assert!(wrong(&text).contains("120 characters"));
    }

    #[test]
    fn a_name_is_given_once() {
        let mut mutants = parse("mutants/a.txt", TWO).unwrap();
        assert_eq!(doubles(&mutants), Vec::new());
        mutants.extend(parse("mutants/b.txt", TWO).unwrap());
        let found = doubles(&mutants);
        assert_eq!(found.len(), 2);
        assert_eq!(
            found[0].to_string(),
            "mutants/b.txt:3: the name `no-limit` is taken by mutants/a.txt:3"
        );
    }

    #[test]
    fn lists_are_text_files_directly_in_the_folder() {
        assert!(is_list("mutants/codec.txt"));
        for path in ["mutants/README.md", "mutants/old/a.txt", "docs/a.txt"] {
            assert!(!is_list(path), "{path}");
        }
    }
}
