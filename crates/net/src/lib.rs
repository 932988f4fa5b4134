//! All outgoing connections: the guarded HTTP client, hosts, sockets and the directory.
//!
//! Other parties choose most of the addresses: DID documents name hosts, and hosts
//! redirect. So every connection to such an address passes [`guard`], which decides what
//! is allowed; every response is bounded in bytes and time; and requests to each host are
//! limited in rate ([`host`]). A failure is an [`AskError`] with the host, the cause and,
//! if the host gave one, the time to wait. This crate does not retry; the ledger's debts
//! do.
//!
//! | module | purpose |
//! |---|---|
//! | [`authorities`] | the trusted certificate authorities |
//! | [`guard`] | which addresses others may name |
//! | [`lookup`] | resolves names to addresses and checks all of them |
//! | [`client`] | GET requests, bounded and guarded |
//! | [`headers`] | how long a host wants Gapless to wait |
//! | [`host`] | the rate limits of each host |
//! | [`xrpc`] | requests to a host: heads, account states, listings |
//! | [`network`] | listings of relays: hosts, and repositories by collection |
//! | [`car`] | downloads a repository as a stream |
//! | [`directory`] | resolves DIDs, with a version for each document |
//! | [`handle`], [`dns`] | resolve handles |
//! | [`operator`] | the client of the command line for a running mirror |
//! | [`socket`] | a WebSocket to an upstream |

mod authorities;
mod car;
mod client;
mod directory;
mod dns;
mod error;
mod guard;
mod handle;
mod headers;
mod host;
mod lookup;
mod network;
pub mod operator;
mod socket;
mod xrpc;

pub use authorities::{Certificate, CertificatesError, parse_certificates};
pub use car::{Downloaded, FetchLimits, GetRepoError};
pub use client::{Net, NetError, NetSettings, RequestLimits, Response};
pub use directory::{KnownIdentity, ResolveError, ResolvedIdentity, key_bytes, public_key};
pub use dns::{DnsLookupError, HandleRecords, NAME_SERVER, NameServer};
pub use error::{AskClass, AskError};
pub use guard::Trust;
pub use host::{HostLimits, Hosts, Permit};
pub use network::NamesPage;
pub use socket::{DialError, Message, ProtocolError, Socket, SocketError, Stream};
pub use xrpc::{HostAddress, LatestAnswer, RepoListEntry, RepoListPage};
