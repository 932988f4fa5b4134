"""What the mirror serves, verified by the Python library `atproto`.

    python verify.py MIRROR TRUTHS.json

Nothing here is shared with Gapless or with the reference in TypeScript: blocks are
hashed with hashlib, decoded with libipld, signatures are checked with cryptography.
The tree is walked here. Exits 1 with the check and the account that failed.
"""

import hashlib
import json
import sys
from urllib.parse import urlencode
from urllib.request import urlopen

import libipld
from atproto import CID
from atproto_crypto.verify import verify_signature

mirror, truths_file = sys.argv[1], sys.argv[2]
failures = []


def fetch(method, **query):
    with urlopen(f"{mirror}/xrpc/{method}?{urlencode(query)}", timeout=60) as answer:
        return answer.read()


def text(cid):
    return cid if isinstance(cid, str) else str(CID.decode(cid))


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def read_car(data):
    """The root and the blocks of a CAR; each block must have the hash its CID says."""
    length, at = varint(data, 0)
    roots = libipld.decode_dag_cbor(data[at:at + length])["roots"]
    at += length
    blocks = {}
    while at < len(data):
        length, at = varint(data, at)
        # CIDs of repositories: version 1, DAG-CBOR, SHA-256, 32 bytes.
        cid, block = data[at:at + 36], data[at + 36:at + length]
        at += length
        if cid[:4] != b"\x01\x71\x12\x20":
            raise ValueError(f"a CID begins with {cid[:4].hex()}")
        if hashlib.sha256(block).digest() != cid[4:]:
            raise ValueError(f"the block {text(cid)} has another hash")
        blocks[text(cid)] = block
    return text(roots[0]), blocks


def signed_commit(root, blocks, truth):
    commit = libipld.decode_dag_cbor(blocks[root])
    signature = commit.pop("sig")
    if commit["did"] != truth["did"] or commit["version"] != 3 or commit["rev"] != truth["rev"]:
        raise ValueError(f"the commit says {commit}")
    if not verify_signature(truth["key"], libipld.encode_dag_cbor(commit), signature):
        raise ValueError("the signature is not the owner's")
    return commit


def walk(cid, blocks, records, known=lambda _: True):
    """All records below a node, in order; nodes that are not `known` may be absent."""
    node = libipld.decode_dag_cbor(blocks[text(cid)])
    below = [node["l"]] if node["l"] else []
    key = b""
    for entry in node["e"]:
        key = key[:entry["p"]] + entry["k"]
        records[key.decode()] = text(entry["v"])
        if entry["t"]:
            below.append(entry["t"])
    for child in below:
        if known(text(child)):
            walk(child, blocks, records, known)


def whole(truth):
    root, blocks = read_car(fetch("com.atproto.sync.getRepo", did=truth["did"]))
    if root != truth["commit"]:
        raise ValueError(f"the root is {root}, not {truth['commit']}")
    commit = signed_commit(root, blocks, truth)
    records = {}
    walk(commit["data"], blocks, records)
    if records != truth["records"]:
        different = [path for path in {**records, **truth["records"]} if records.get(path) != truth["records"].get(path)]
        raise ValueError(f"{len(different)} records differ: {sorted(different)[:5]}")
    absent = [path for path, cid in records.items() if cid not in blocks]
    if absent:
        raise ValueError(f"the values of {sorted(absent)[:5]} are not in it")
    for cid in set(records.values()):
        libipld.decode_dag_cbor(blocks[cid])


def proof(truth, path):
    collection, rkey = path.split("/")
    root, blocks = read_car(fetch("com.atproto.sync.getRecord", did=truth["did"], collection=collection, rkey=rkey))
    commit = signed_commit(root, blocks, truth)
    records = {}
    walk(commit["data"], blocks, records, known=blocks.__contains__)
    if records.get(path) != truth["records"][path] or truth["records"][path] not in blocks:
        raise ValueError(f"{path} is {records.get(path)}, not {truth['records'][path]}")


def attempt(what, truth, check, *arguments):
    try:
        check(truth, *arguments)
    except Exception as error:
        failures.append(f"{what} of {truth['name']} ({truth['did']}): {type(error).__name__}: {error}")


with open(truths_file) as file:
    truths = json.load(file)
proofs = 0
for truth in truths:
    attempt("getRepo", truth, whole)
    paths = sorted(truth["records"])
    for path in paths[:: max(1, len(paths) // 5)]:
        attempt("getRecord", truth, proof, path)
        proofs += 1
# Who cannot say no has shown nothing: another key, and a record that is not there.
for truth in truths[:1]:
    path, other = next(iter(truth["records"])), truths[-1]["key"]
    for spoilt in ({**truth, "key": other}, {**truth, "records": {**truth["records"], path: truth["commit"]}}):
        try:
            whole(spoilt)
            failures.append("a spoilt truth passed")
        except ValueError:
            pass
if not truths or proofs == 0:
    failures.append("nothing was compared")
for failure in failures:
    print(failure, file=sys.stderr)
print(f"Python atproto: {len(truths)} repositories and {proofs} record proofs verified, {len(failures)} failed")
sys.exit(1 if failures else 0)
