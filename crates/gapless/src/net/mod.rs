//! Everything that goes out: the guarded client, hosts, sockets, the directory.
