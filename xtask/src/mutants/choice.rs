//! Selects the mutants of a run.
//!
//! The names and `--since` narrow the lists down; `--part` or `--sample` then takes
//! some of the rest; `--resume` skips what an earlier run has caught. All selections
//! keep the order of [`grouped`], in which neighbours share a crate and a layer.

use super::layer::Target;
use super::list::Mutant;
use std::collections::BTreeSet;

pub(crate) const ARGUMENTS: &str =
    "[NAME…] [--since COMMIT] [--part I/N | --sample N] [--resume] [--json] [--list]";
const NAME_MEANS: &str = "NAME is a mutant, a list (`codec`) or a mutated file";

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub names: Vec<String>,
    /// The revision after which a mutant's file must have changed.
    pub since: Option<String>,
    pub part: Option<Part>,
    pub sample: Option<usize>,
    /// Skip the mutants that an earlier run has caught.
    pub resume: bool,
    pub json: bool,
    pub list: bool,
}

impl Request {
    pub(super) fn parse(arguments: &[String]) -> Result<Request, String> {
        let mut request = Request::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--json" => request.json = true,
                "--list" => request.list = true,
                "--resume" => request.resume = true,
                "--sample" => {
                    let value = rest.next().ok_or("--sample needs a number")?;
                    request.sample = match value.parse() {
                        Ok(count) if count > 0 => Some(count),
                        _ => return Err(format!("--sample needs a number above 0, not `{value}`")),
                    };
                }
                "--part" => {
                    let value = rest.next().ok_or("--part needs I/N, as in 2/5")?;
                    request.part = Some(Part::parse(value)?);
                }
                "--since" => {
                    let value = rest.next().ok_or("--since needs a commit")?;
                    request.since = Some(value.clone());
                }
                option if option.starts_with('-') => {
                    return Err(format!(
                        "unknown argument `{option}`\n\
                         usage: cargo xtask mutants {ARGUMENTS}\n{NAME_MEANS}"
                    ));
                }
                name => request.names.push(name.to_string()),
            }
        }
        if request.part.is_some() && request.sample.is_some() {
            return Err("--part and --sample exclude each other".to_string());
        }
        Ok(request)
    }

    /// Selects the mutants that the names stand for; without names, all of them.
    pub(super) fn choose(&self, mutants: Vec<Mutant>) -> Result<Vec<Mutant>, String> {
        let strange = self
            .names
            .iter()
            .find(|name| !mutants.iter().any(|mutant| answers_to(mutant, name)));
        if let Some(name) = strange {
            return Err(format!(
                "no mutant, list or mutated file `{name}`; `cargo xtask mutants --list` shows all"
            ));
        }
        Ok(mutants
            .into_iter()
            .filter(|mutant| {
                self.names.is_empty() || self.names.iter().any(|name| answers_to(mutant, name))
            })
            .collect())
    }
}

fn answers_to(mutant: &Mutant, name: &str) -> bool {
    let list = mutant.list.rsplit('/').next().unwrap_or(&mutant.list);
    [
        mutant.name.as_str(),
        mutant.file.as_str(),
        mutant.list.as_str(),
        list,
        list.trim_end_matches(".txt"),
    ]
    .contains(&name)
}

/// Orders the mutants so that each recompiles as little as possible after the one
/// before: by the crate of the edited file, then by the first layer, then by the file.
/// The order does not depend on the names or on the lists.
pub(super) fn grouped(mut mutants: Vec<Mutant>) -> Vec<Mutant> {
    fn group(mutant: &Mutant) -> (&str, Option<(&str, &Target)>, &str) {
        let folder = mutant.file.split_once("/src/");
        let layer = mutant.layers.first();
        (
            folder.map_or(mutant.file.as_str(), |(folder, _)| folder),
            layer.map(|layer| (layer.package.as_str(), &layer.target)),
            &mutant.file,
        )
    }
    mutants.sort_by(|a, b| group(a).cmp(&group(b)));
    mutants
}

/// One of `of` parts of about equal size, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    number: usize,
    of: usize,
}

impl Part {
    /// Reads `I/N`, with I from 1 to N.
    fn parse(text: &str) -> Result<Part, String> {
        let part = text.split_once('/').and_then(|(number, of)| {
            Some(Part {
                number: number.parse().ok()?,
                of: of.parse().ok()?,
            })
        });
        part.filter(|part| (1..=part.of).contains(&part.number))
            .ok_or_else(|| format!("--part needs I/N with I from 1 to N, not `{text}`"))
    }

    /// Selects the mutants of this part. Every mutant is in exactly one part.
    pub(super) fn select(self, mutants: Vec<Mutant>) -> Vec<Mutant> {
        // In 128 bits the product cannot overflow.
        let start_of = |number: usize| {
            let start = mutants.len() as u128 * number as u128 / self.of as u128;
            start as usize
        };
        let (start, end) = (start_of(self.number - 1), start_of(self.number));
        let part = mutants.into_iter().take(end).skip(start);
        part.collect()
    }
}

/// Selects the mutants whose file is in a listing of changed paths.
pub(super) fn changed(mutants: Vec<Mutant>, paths: &BTreeSet<&str>) -> Vec<Mutant> {
    mutants
        .into_iter()
        .filter(|mutant| paths.contains(mutant.file.as_str()))
        .collect()
}

/// Selects `count` neighbours, from a place that depends on the commit. Neighbours share layers.
/// Every place is equally likely, so over many commits every mutant is selected equally often.
pub(super) fn sample(
    mutants: Vec<Mutant>,
    count: usize,
    commit: &str,
) -> Result<Vec<Mutant>, String> {
    if mutants.is_empty() {
        return Ok(mutants);
    }
    let digits = commit.trim().get(..15).unwrap_or_default();
    let number = usize::from_str_radix(digits, 16)
        .map_err(|_| format!("`{}` is no commit", commit.trim()))?;
    let start = number % mutants.len();
    let count = count.min(mutants.len());
    Ok(mutants
        .iter()
        .cycle()
        .skip(start)
        .take(count)
        .cloned()
        .collect())
}

#[cfg(test)]
mod tests {
    use super::super::list::parse;
    use super::*;
    use std::collections::BTreeMap;

    fn request(arguments: &[&str]) -> Result<Request, String> {
        let owned: Vec<String> = arguments.iter().map(|a| a.to_string()).collect();
        Request::parse(&owned)
    }

    fn mutants(list: &str, names: &[&str]) -> Vec<Mutant> {
        let text: String = names
            .iter()
            .map(|name| {
                format!("mutant {name}\nwhy w\nfile src/{name}.rs\ntest -p a --lib\n-a\n+b\n")
            })
            .collect();
        parse(list, &text).unwrap()
    }

    fn names(mutants: &[Mutant]) -> Vec<&str> {
        mutants.iter().map(|mutant| mutant.name.as_str()).collect()
    }

    #[test]
    fn arguments_in_any_order() {
        let expected = Request {
            names: vec!["a".to_string(), "codec".to_string()],
            since: Some("main".to_string()),
            sample: Some(4),
            json: true,
            ..Request::default()
        };
        let order = ["a", "--sample", "4", "codec", "--since", "main", "--json"];
        assert_eq!(request(&order), Ok(expected));
        let expected = Request {
            part: Some(Part { number: 2, of: 5 }),
            resume: true,
            list: true,
            ..Request::default()
        };
        let order = ["--list", "--part", "2/5", "--resume"];
        assert_eq!(request(&order), Ok(expected));
        assert_eq!(request(&[]), Ok(Request::default()));
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for arguments in [
            &["--sample"][..],
            &["--sample", "0"],
            &["--sample", "few"],
            &["--all"],
            &["--since"],
            &["--part"],
            &["--part", "2"],
            &["--part", "0/3"],
            &["--part", "4/3"],
            &["--part", "0/0"],
            &["--part", "-1/3"],
            &["--part", "a/b"],
            &["--part", "1/2/3"],
            &["--part", "1/2", "--sample", "3"],
        ] {
            assert!(request(arguments).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn mutants_answer_to_name_list_and_file() {
        let all = || {
            let mut all = mutants("mutants/codec.txt", &["a", "b"]);
            all.extend(mutants("mutants/store.txt", &["c"]));
            all
        };
        for (name, expected) in [
            (&["b"][..], &["b"][..]),
            (&["codec"], &["a", "b"]),
            (&["codec.txt"], &["a", "b"]),
            (&["mutants/codec.txt", "c"], &["a", "b", "c"]),
            (&["src/c.rs", "a"], &["a", "c"]),
            (&[], &["a", "b", "c"]),
        ] {
            let chosen = request(name).unwrap().choose(all()).unwrap();
            assert_eq!(names(&chosen), expected, "{name:?}");
        }
        let why = request(&["a", "d"]).unwrap().choose(all()).unwrap_err();
        assert!(why.contains("`d`"), "{why}");
    }

    #[test]
    fn neighbours_share_a_crate_then_a_layer_then_a_file() {
        let mutant = |name: &str, file: &str, layer: &str| {
            format!("mutant {name}\nwhy w\nfile {file}\ntest {layer}\n-a\n+b\n")
        };
        let text = [
            mutant("a", "crates/b/src/z.rs", "-p b --test t"),
            mutant("b", "crates/a/src/z.rs", "-p b --test t"),
            mutant("c", "crates/b/src/y.rs", "-p b --lib x"),
            mutant("d", "crates/b/src/x.rs", "-p b --test t"),
            mutant("e", "crates/a/src/y.rs", "-p a --lib"),
            mutant("f", "crates/b/src/x.rs", "-p b --test t x"),
            mutant("g", "crates/a/src/z.rs", "-p a --lib y"),
        ]
        .concat();
        let order = grouped(parse("mutants/a.txt", &text).unwrap());
        assert_eq!(names(&order), ["e", "g", "b", "c", "d", "f", "a"]);
    }

    #[test]
    fn every_mutant_is_in_exactly_one_part() {
        let all = mutants("mutants/a.txt", &["a", "b", "c", "d", "e", "f", "g"]);
        for of in 1..=9 {
            let parts: Vec<Vec<Mutant>> = (1..=of)
                .map(|number| Part { number, of }.select(all.clone()))
                .collect();
            assert_eq!(parts.concat(), all, "{of} parts");
            let sizes = || parts.iter().map(Vec::len);
            let difference = sizes().max().unwrap() - sizes().min().unwrap();
            assert!(difference <= 1, "{of} parts: {parts:?}");
        }
        let huge = Part {
            number: usize::MAX,
            of: usize::MAX,
        };
        assert_eq!(names(&huge.select(all)), ["g"]);
    }

    #[test]
    fn only_mutants_of_changed_files_are_taken() {
        let all = || mutants("mutants/a.txt", &["a", "b", "c"]);
        let paths = BTreeSet::from(["src/c.rs", "src/a.rs", "src/a", "README.md"]);
        assert_eq!(names(&changed(all(), &paths)), ["a", "c"]);
        let lists = BTreeSet::from(["mutants/a.txt"]);
        assert_eq!(changed(all(), &lists), Vec::new());
    }

    #[test]
    fn the_sample_moves_with_the_commit_and_reaches_all() {
        let all = mutants("mutants/a.txt", &["a", "b", "c", "d", "e"]);
        let mut taken: BTreeMap<String, usize> = BTreeMap::new();
        for commit in 0..100_u32 {
            let commit = format!("{:040x}\n", u128::from(commit) << 100);
            let some = sample(all.clone(), 2, &commit).unwrap();
            assert_eq!(some, sample(all.clone(), 2, &commit).unwrap());
            assert_eq!(some.len(), 2);
            assert_ne!(some[0], some[1]);
            for mutant in some {
                *taken.entry(mutant.name).or_default() += 1;
            }
        }
        assert_eq!(taken.len(), 5);
        assert!(taken.values().all(|times| *times == 40), "{taken:?}");
    }

    #[test]
    fn a_large_sample_is_everything_once() {
        let all = mutants("mutants/a.txt", &["a", "b", "c"]);
        let mut some = sample(all.clone(), 7, &"5".repeat(40)).unwrap();
        some.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(some, all);
        assert_eq!(sample(Vec::new(), 7, "").unwrap(), Vec::new());
        assert!(sample(all, 1, "no commit").is_err());
    }
}
