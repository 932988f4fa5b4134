//! Finds the modules of its own crate to which a Rust file refers.
//!
//! The reader understands `use` with nested braces and paths inside code, each from `crate::`,
//! `super::` or, in the root file, from a module's bare name. It is not a compiler: it misses a
//! macro of `macro_rules!` that another module uses by its bare name. Names in strings and
//! comments do not count.

use super::rust::is_word;

/// What a path at the root of the crate leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target<'a> {
    /// A name at the root: a module, or something that the root file has.
    Name(&'a str),
    /// Everything at the root, by `*` or by the crate itself.
    Everything,
}

/// One reference to something at the root of the crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Import<'a> {
    /// The module that contains the reference, if the module's body is in the root file.
    pub inside: Option<&'a str>,
    pub target: Target<'a>,
    pub line: usize,
}

/// A name that the root file re-exports from a module by `pub use`; `*` stands for all names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reexport<'a> {
    pub name: &'a str,
    pub module: &'a str,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct References<'a> {
    pub imports: Vec<Import<'a>>,
    pub reexports: Vec<Reexport<'a>>,
    /// Modules whose body is in the root file.
    pub inline_modules: Vec<&'a str>,
}

/// Reads a file whose module is `depth` levels below the root of its crate; 0 is the root file
/// itself, which may use the bare names of `modules`. `code` must have no comments and strings.
pub(super) fn read<'a>(code: &'a str, depth: usize, modules: &[&str]) -> References<'a> {
    let mut reader = Reader {
        code,
        depth,
        modules,
        nested: Vec::new(),
        braces: 0,
        found: References::default(),
    };
    reader.read();
    reader.found
}

/// The place in the crate that the beginning of a path has reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the first name of the path, in a module this many levels below the root.
    Start(usize),
    /// At a module this many levels below the root; 0 is the root.
    Level(usize),
    /// In another crate, or inside a module of which only the name counts.
    Beyond,
}

struct Reader<'a, 'm> {
    code: &'a str,
    depth: usize,
    modules: &'m [&'m str],
    /// The modules whose body is open, each with the number of braces that are open outside it.
    nested: Vec<(&'a str, usize)>,
    braces: usize,
    found: References<'a>,
}

impl<'a> Reader<'a, '_> {
    fn read(&mut self) {
        let mut at = 0;
        while let Some(byte) = self.byte(at) {
            if is_word(byte) {
                at = self.word(at);
                continue;
            }
            match byte {
                b'{' => self.braces += 1,
                b'}' => {
                    self.braces = self.braces.saturating_sub(1);
                    let outside = self.braces;
                    self.nested.retain(|(_, braces)| *braces < outside);
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// Reads the item that begins with the word at `at`. Returns the position to continue at.
    fn word(&mut self, at: usize) -> usize {
        let word = self.name_at(at);
        let after = at + word.len();
        match word {
            "use" if self.byte(self.skip_blanks(after)) != Some(b'<') => self.use_tree(at, after),
            "mod" => self.module(after),
            "crate" | "super" | "self" => self.path(at),
            _ if self.is_bare_module(at, word) => self.path(at),
            _ => after,
        }
    }

    /// Reads the head of a module. A module is recorded only if its body follows.
    fn module(&mut self, at: usize) -> usize {
        let start = self.skip_blanks(at);
        let name = self.name_at(start);
        let after = self.skip_blanks(start + name.len());
        if self.byte(after) == Some(b'{') && !name.is_empty() {
            if self.depth == 0 && self.nested.is_empty() {
                self.found.inline_modules.push(name);
            }
            self.nested.push((name, self.braces));
        }
        start + name.len()
    }

    /// Reads a path inside code. Returns the position to continue at.
    fn path(&mut self, start: usize) -> usize {
        let mut at = start;
        let mut place = Place::Start(self.level());
        loop {
            let name = self.name_at(at);
            let before = place;
            place = self.step(place, name);
            let after = at + name.len();
            if place == Place::Beyond && leads_into(before, self, name) {
                self.import(at, Target::Name(name));
            }
            let Some(next) = self.after_colons(after) else {
                return after;
            };
            let is_name = self.byte(next).is_some_and(is_word);
            if place == Place::Beyond || !is_name {
                return next;
            }
            at = next;
        }
    }

    /// Reads the tree of the `use` at `keyword`. Returns the position to continue at.
    fn use_tree(&mut self, keyword: usize, at: usize) -> usize {
        let before = self.code[..keyword].trim_end();
        let is_public = before.ends_with("pub") || before.ends_with(')');
        let reexports = self.depth == 0 && self.nested.is_empty() && is_public;
        self.branch(at, Place::Start(self.level()), None, reexports)
    }

    /// Reads one branch of a tree, from `place` on. `module` is the top-level module that the
    /// branch has entered. Returns the end of the branch.
    fn branch(
        &mut self,
        at: usize,
        place: Place,
        module: Option<&'a str>,
        reexports: bool,
    ) -> usize {
        let mut at = self.skip_blanks(at);
        if let Some(next) = self.after_colons(at) {
            return self.branch(next, Place::Beyond, module, reexports);
        }
        match self.byte(at) {
            Some(b'{') => {
                at += 1;
                loop {
                    at = self.skip_blanks(at);
                    match self.byte(at) {
                        Some(b'}') => return at + 1,
                        Some(b',') => at += 1,
                        Some(byte) if is_word(byte) || b"{*:".contains(&byte) => {
                            at = self.branch(at, place, module, reexports);
                        }
                        _ => return at,
                    }
                }
            }
            Some(b'*') => {
                match module {
                    Some(module) if reexports => {
                        let reexport = Reexport { name: "*", module };
                        self.found.reexports.push(reexport);
                    }
                    _ if place == Place::Level(0) => self.import(at, Target::Everything),
                    _ => {}
                }
                at + 1
            }
            Some(byte) if is_word(byte) => self.named_branch(at, place, module, reexports),
            _ => at,
        }
    }

    fn named_branch(
        &mut self,
        at: usize,
        place: Place,
        module: Option<&'a str>,
        reexports: bool,
    ) -> usize {
        let name = self.name_at(at);
        let after = at + name.len();
        let next = self.step(place, name);
        let mut module = module;
        if next == Place::Beyond && module.is_none() && leads_into(place, self, name) {
            module = Some(name);
            if !reexports {
                self.import(at, Target::Name(name));
            }
        }
        if let Some(deeper) = self.after_colons(after) {
            return self.branch(deeper, next, module, reexports);
        }
        if next == Place::Level(0) && !reexports {
            self.import(at, Target::Everything);
        }
        let (shown, end) = self.renamed(name, after);
        if let Some(module) = module.filter(|_| reexports) {
            let reexport = Reexport {
                name: shown,
                module,
            };
            self.found.reexports.push(reexport);
        }
        end
    }

    /// The name after `as`, if there is one, and the end of the branch.
    fn renamed(&self, name: &'a str, after: usize) -> (&'a str, usize) {
        let start = self.skip_blanks(after);
        if self.name_at(start) != "as" {
            return (name, after);
        }
        let start = self.skip_blanks(start + 2);
        let shown = self.name_at(start);
        (shown, start + shown.len())
    }

    fn step(&self, place: Place, name: &str) -> Place {
        match (place, name) {
            (Place::Start(_), "crate") => Place::Level(0),
            (Place::Start(level) | Place::Level(level), "self") => Place::Level(level),
            (Place::Start(level) | Place::Level(level), "super") => {
                Place::Level(level.saturating_sub(1))
            }
            _ => Place::Beyond,
        }
    }

    fn import(&mut self, at: usize, target: Target<'a>) {
        let inside = self.nested.first().map(|(name, _)| *name);
        self.found.imports.push(Import {
            inside: inside.filter(|_| self.depth == 0),
            target,
            line: self.code[..at].matches('\n').count() + 1,
        });
    }

    /// The level of the module that is being read.
    fn level(&self) -> usize {
        self.depth + self.nested.len()
    }

    /// Whether the word is a module named from the root file without `crate::`.
    fn is_bare_module(&self, at: usize, word: &str) -> bool {
        self.level() == 0
            && self.modules.contains(&word)
            && self.after_colons(at + word.len()).is_some()
            && !self.code[..at].trim_end().ends_with("::")
            && !self.code[..at].trim_end().ends_with('.')
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.code.as_bytes().get(at).copied()
    }

    fn name_at(&self, at: usize) -> &'a str {
        let rest = self.code.get(at..).unwrap_or_default();
        let length = rest.bytes().take_while(|byte| is_word(*byte)).count();
        &rest[..length]
    }

    fn skip_blanks(&self, at: usize) -> usize {
        let rest = self.code.get(at..).unwrap_or_default();
        at + rest.bytes().take_while(u8::is_ascii_whitespace).count()
    }

    /// The position after `::`, if `::` comes next.
    fn after_colons(&self, at: usize) -> Option<usize> {
        let at = self.skip_blanks(at);
        let rest = self.code.get(at..)?;
        rest.starts_with("::").then(|| self.skip_blanks(at + 2))
    }
}

/// Whether a name that follows `place` is a name at the root of the crate.
fn leads_into(place: Place, reader: &Reader<'_, '_>, name: &str) -> bool {
    match place {
        Place::Level(0) => true,
        Place::Start(0) => reader.modules.contains(&name),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names at the root that a module of this depth refers to.
    fn names(code: &str, depth: usize) -> Vec<String> {
        let found = read(code, depth, &["a", "b"]);
        found
            .imports
            .iter()
            .map(|import| match import.target {
                Target::Name(name) => format!("{}:{name}", import.line),
                Target::Everything => format!("{}:*", import.line),
            })
            .collect()
    }

    #[test]
    fn imports_are_found_in_nested_braces() {
        for (code, expected) in [
            ("use crate::a;", &["1:a"][..]),
            ("use crate::a::{B, c::{D, E}};", &["1:a"]),
            (
                "use crate::{\n    a::{B, c::{D, E}},\n    b as other,\n    c::D,\n};",
                &["2:a", "3:b", "4:c"],
            ),
            ("pub(crate) use crate::{a::*};", &["1:a"]),
            ("use {crate::a, std::b};", &["1:a"]),
            ("use std::{a, b}; use ::crate_of_others::a;", &[]),
            ("use crate::*; use crate::{self as top};", &["1:*", "1:*"]),
            ("use a::b; use self::b::c;", &[]),
            ("fn f() -> impl Sized + use<'_> { crate::a::g() }", &["1:a"]),
        ] {
            assert_eq!(names(code, 1), expected, "{code}");
        }
    }

    #[test]
    fn super_leads_to_the_root_from_the_right_depth() {
        assert_eq!(names("use super::a::B;", 1), ["1:a"]);
        assert_eq!(names("use super::a::B;", 2), Vec::<String>::new());
        assert_eq!(names("use super::super::a::B;", 2), ["1:a"]);
        assert_eq!(names("use super::{super::a::B, c};", 2), ["1:a"]);
        assert_eq!(names("use super::{a::B, c};", 1), ["1:a", "1:c"]);
        assert_eq!(names("use super::*;", 1), ["1:*"]);
        assert_eq!(names("use super::*;", 2), Vec::<String>::new());
        assert_eq!(
            names("mod inner { use super::a; }", 1),
            Vec::<String>::new()
        );
        assert_eq!(
            names("mod inner { use super::super::a; }\nuse super::b;", 1),
            ["1:a", "2:b"]
        );
    }

    #[test]
    fn paths_inside_code_count() {
        let code = "pub(crate) fn f(x: &crate::a::B) -> super::b::C {\n    \
                    $crate::c::make!(x);\n    super :: d :: go(self.x, self::own())\n}";
        assert_eq!(names(code, 1), ["1:a", "1:b", "2:c", "3:d"]);
        assert_eq!(names("crate::a::<B>::c(); crate::b { }", 1), ["1:a", "1:b"]);
        assert_eq!(names("pub(in crate::a) fn f() {}", 1), ["1:a"]);
    }

    #[test]
    fn the_root_file_uses_bare_names_and_hands_names_on() {
        let code = "mod a;\nmod b;\npub use a::{Kept, deep::Named as Shown};\n\
                    pub(crate) use crate::b::*;\nuse b::Used;\nuse std::a;\n\
                    fn f() { a::go(x.b::<u8>(), other::a::c) }\n\
                    mod inner { use super::a; use crate::b; use a::c; }\n";
        let found = read(code, 0, &["a", "b"]);
        let reexports: Vec<(&str, &str)> =
            found.reexports.iter().map(|r| (r.name, r.module)).collect();
        assert_eq!(reexports, [("Kept", "a"), ("Shown", "a"), ("*", "b")]);
        assert_eq!(found.inline_modules, ["inner"]);
        let imports: Vec<(Option<&str>, Target<'_>, usize)> = found
            .imports
            .iter()
            .map(|import| (import.inside, import.target, import.line))
            .collect();
        assert_eq!(
            imports,
            [
                (None, Target::Name("b"), 5),
                (None, Target::Name("a"), 7),
                (Some("inner"), Target::Name("a"), 8),
                (Some("inner"), Target::Name("b"), 8),
            ]
        );
    }

    #[test]
    fn unfinished_source_ends_quietly() {
        for code in [
            "use",
            "use {",
            "use crate::{a",
            "use crate::{;",
            "mod",
            "mod a {",
            "crate::",
            "}",
        ] {
            read(code, 1, &[]);
        }
    }
}
