//! Which mutants a run takes: those named, or a sample that moves with the
//! commit.

use super::list::Mutant;

pub const USAGE: &str = "usage: cargo xtask mutants [NAME…] [--sample N] [--json] [--list]\n\
     NAME is a mutant, a list (`codec`) or a mutated file";

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub names: Vec<String>,
    pub sample: Option<usize>,
    pub json: bool,
    pub list: bool,
}

impl Request {
    pub fn parse(arguments: &[String]) -> Result<Request, String> {
        let mut request = Request::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--json" => request.json = true,
                "--list" => request.list = true,
                "--sample" => {
                    let value = rest.next().ok_or("--sample needs a number")?;
                    request.sample = match value.parse() {
                        Ok(count) if count > 0 => Some(count),
                        _ => return Err(format!("--sample needs a number above 0, not `{value}`")),
                    };
                }
                option if option.starts_with('-') => {
                    return Err(format!("unknown argument `{option}`\n{USAGE}"));
                }
                name => request.names.push(name.to_string()),
            }
        }
        Ok(request)
    }

    /// Those that the names stand for, in the order of the lists; all without names.
    pub fn choose(&self, mutants: Vec<Mutant>) -> Result<Vec<Mutant>, String> {
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

/// `count` neighbours, from a place that the commit gives. Neighbours, because
/// they share layers; and as every place is as likely as any other, many
/// commits take every mutant equally often.
pub fn sample(mutants: Vec<Mutant>, count: usize, commit: &str) -> Result<Vec<Mutant>, String> {
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
            sample: Some(4),
            json: true,
            list: false,
        };
        let order = ["a", "--sample", "4", "codec", "--json"];
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
