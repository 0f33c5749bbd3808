//! The example of the README, word for word from the first function on.

fn main() -> wholly::Result<()> {
    let store = wholly::Store::open_or_create("accounts")?; // recovers, if there was a crash

    let mut group = store.begin();
    let (alice, bob) = (group.open_or_create("alice", 0o640)?, group.open_or_create("bob", 0o640)?);
    group.write_at(&alice, 0, b"balance  70\n")?;
    group.write_at(&bob, 0, b"balance 130\n")?;
    let receipt = group.create("receipt.new", 0o640)?;
    group.append(&receipt, b"alice gave bob 30\n")?;
    group.rename("receipt.new", "receipt", wholly::Rename::Replace)?;
    group.commit()?; // all of it survives from here on; dropped without it, nothing has happened

    store.close() // everything is written back: the log is empty
}
