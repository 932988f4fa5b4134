//! Checks that only `crates/net` opens connections. `cargo xtask walls` refuses client libraries
//! in other crates; this check refuses connecting without a library.

use super::{File, Report};

/// The crates that may connect: `net`, and the test network and the harness, which are not in the
/// program.
const MAY_CONNECT: [&str; 3] = ["crates/net/", "crates/testnet/", "crates/harness/"];

/// What opens a connection, or a socket that can.
const CONNECTS: [&str; 4] = [
    "TcpStream::connect",
    "UnixStream::connect",
    "TcpSocket::",
    "UdpSocket::",
];

pub(super) fn check(file: &File, report: &mut Report) {
    let checked = file.path.starts_with("crates/")
        && file.path.contains("/src/")
        && file.has_extension(&["rs"])
        && !MAY_CONNECT
            .iter()
            .any(|folder| file.path.starts_with(folder));
    if !checked {
        return;
    }
    for (index, line) in file.production_code().lines().enumerate() {
        if let Some(found) = CONNECTS.iter().find(|what| line.contains(**what)) {
            let wrong = format!("`{found}` outside of crates/net");
            report.fail(file, index + 1, wrong, "connect through crates/net");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings;

    #[test]
    fn connecting_outside_of_net_fails_except_in_tests() {
        let code = "//! A.\nfn reach() { TcpStream::connect(address); }\n";
        let found = findings(&[("crates/mirror/src/a.rs", code)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains("a.rs:2: `TcpStream::connect`"),
            "{found:?}"
        );
        let tests = format!("//! A.\n#[cfg(test)]\n{}", &code[6..]);
        for (path, text) in [
            ("crates/net/src/a.rs", code),
            ("crates/gapless/tests/a.rs", code),
            ("crates/mirror/src/a.rs", tests.as_str()),
            ("docs/a.md", "# A\n\nTcpStream::connect\n"),
        ] {
            assert_eq!(findings(&[(path, text)]), Vec::<String>::new(), "{path}");
        }
    }
}
