//! The oracle itself: what it forbids.

use wholly_crash::{Object, Op, State};
use wholly_threads::Policy;
use wholly_threads::history::{Ending, History, Operation};

fn call(file: &'static str, begin: u64, end: u64) -> Operation {
    let changes = vec![(Op::Append { file, length: 1 }, vec![begin as u8])];
    Operation { label: "call".into(), begin, end, changes, own: Vec::new(), offset: None }
}

/// Two calls had returned when a sync of their file began that never did: both survive, or none.
#[test]
fn half_an_epoch_is_not_allowed() {
    let mut initial = State::default();
    for file in ["a", "b"] {
        initial.put(file, Object::file([], 0o644));
    }
    let mut history = History {
        operations: vec![call("a", 1, 2), call("a", 3, 4), call("b", 3, 4)],
        endings: vec![Ending { begin: 5, end: u64::MAX, file: Some("a") }],
        ..History::default()
    };
    let shared = Policy::Shared { interval: std::time::Duration::from_secs(1) };
    let lengths = |history: &History, policy| {
        let allowed = history.allowed(policy, &initial, 9);
        let length = |state: &State, file: &str| state.content(file).map_or(0, |content| content.len());
        let mut lengths: Vec<_> = allowed.iter().map(|state| (length(state, "a"), length(state, "b"))).collect();
        lengths.sort_unstable();
        lengths
    };
    assert_eq!(lengths(&history, Policy::PerSync), [(0, 0), (2, 0)]);
    assert_eq!(lengths(&history, shared), [(0, 0), (2, 1)]);
    // One that was under way when the sync began may be in it.
    history.operations[1].end = 6;
    assert_eq!(lengths(&history, Policy::PerSync), [(0, 0), (1, 0), (2, 0)]);
}
