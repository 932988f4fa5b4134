//! Everything that goes out: the guarded client, hosts, sockets, the directory.
//!
//! Whom we talk to is mostly chosen by strangers: DID documents name hosts, and
//! hosts redirect. So every way out leads through [`guard`], which knows where
//! strangers may send us; every answer has a bound in bytes and in time; and
//! every host is asked at a pace it can bear ([`host`]). What fails is an
//! [`AskError`] that names the host, what went wrong, and when to come back if
//! the host said so. Nothing here retries: the ledger's debts do.
//!
//! | module | its job |
//! |---|---|
//! | [`authorities`] | which certificate authorities are trusted |
//! | [`guard`] | which addresses strangers may send us to |
//! | [`lookup`] | names to addresses, all of them checked |
//! | [`client`] | one GET, bounded and guarded |
//! | [`headers`] | when a host wants to be asked again |
//! | [`host`] | how fast one host is asked |
//! | [`xrpc`] | what is asked of a host |
//! | [`network`] | what relays tell of hosts and collections |
//! | [`car`] | a repository, streamed |
//! | [`directory`] | who a DID is, and since when |
//! | [`handle`], [`dns`] | whose handle it is |
//! | [`operator`] | what the command line asks of a running mirror |
//! | [`socket`] | a WebSocket to an upstream |

pub mod authorities;
pub mod car;
pub mod client;
pub mod directory;
pub mod dns;
pub mod error;
pub mod guard;
pub mod handle;
pub mod headers;
pub mod host;
pub mod lookup;
pub mod network;
pub mod operator;
pub mod socket;
pub mod xrpc;

pub use authorities::{Certificate, CertificatesError, parse_certificates, tls_config};
pub use car::{FetchLimits, Fetched, GetRepoError};
pub use client::{Answer, Limits, Net, NetError, NetSettings};
pub use directory::{Known, ResolveError, Resolved, key_bytes, public_key};
pub use dns::{HandleRecords, NAME_SERVER, NameServer, Untold};
pub use error::{AskClass, AskError};
pub use guard::Trust;
pub use host::{HostLimits, Hosts, Permit};
pub use network::NamesPage;
pub use socket::{DialError, Message, ProtocolError, Socket, SocketError, Stream};
pub use xrpc::{HostAddress, Latest, Listed, Page};
