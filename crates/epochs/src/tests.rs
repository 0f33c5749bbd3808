//! The rules over groups that only count.

use super::*;

/// What happened, in order.
#[derive(Default)]
struct Counting {
    begun: AtomicU64,
    committed: Mutex<Vec<u64>>,
    /// Whether commits fail, and the epochs go on.
    is_full: AtomicU64,
}

type File = Mark<(u64, Mutex<Vec<u64>>)>;

impl Below for Counting {
    type File = File;
    type Epoch = (u64, Mutex<Vec<u64>>);

    fn mark(file: &File) -> &File {
        file
    }

    fn begin(&self) -> Result<(u64, Self::Epoch)> {
        let number = 10 + self.begun.fetch_add(1, Ordering::Relaxed);
        Ok((number, (number, Mutex::default())))
    }

    fn has(&self, (_, files): &Self::Epoch, file: &Arc<File>) -> bool {
        files.lock().unwrap().contains(&file.number())
    }

    fn commit(&self, epoch: &mut Option<Self::Epoch>, _data_only: bool) -> Result<()> {
        if self.is_full.load(Ordering::Relaxed) != 0 {
            return Err(Error::NoSpace("a commit".into()));
        }
        let (number, files) = epoch.take().expect("there is one");
        if !files.into_inner().unwrap().is_empty() {
            self.committed.lock().unwrap().push(number);
        }
        Ok(())
    }
}

impl Counting {
    /// Changes a file.
    fn change(&self, policies: &Policies<Counting>, file: &Arc<File>) -> Result<u64> {
        policies.change(self, file, 1, |(number, files)| {
            files.lock().unwrap().push(file.number());
            Ok::<_, Error>(*number)
        })
    }

    fn committed(&self) -> Vec<u64> {
        std::mem::take(&mut self.committed.lock().unwrap())
    }
}

fn epoch(policies: &Policies<Counting>, file: &Arc<File>) -> Option<u64> {
    policies.look(file, |epoch| epoch.map(|(number, _)| *number))
}

const SHARED: Policy = Policy::Shared { interval: Duration::MAX };

fn files() -> [Arc<File>; 3] {
    [1, 2, 3].map(|number| Arc::new(Mark::new(number)))
}

#[test]
fn a_file_has_an_epoch_of_its_own_or_all_have_one() {
    for (policy, expected) in [(Policy::PerSync, [10, 11, 10]), (SHARED, [10, 10, 10])] {
        let (below, policies, [a, b, c]) = (Counting::default(), Policies::new(policy, 1, 9), files());
        let numbers = [&a, &b, &a].map(|file| below.change(&policies, file).unwrap());
        assert_eq!((numbers, policies.dirty_files()), (expected, 2));
        assert_eq!([&a, &b, &c].map(|file| epoch(&policies, file)), [Some(10), Some(expected[1]), None]);
        // An explicit group takes a clean file, then a dirty one.
        policies.clean(&below, &c).unwrap();
        assert_eq!(below.committed(), []);
        policies.clean(&below, &b).unwrap();
        assert_eq!((below.committed(), epoch(&policies, &b)), (vec![expected[1]], None));
        policies.close(&below, &a, || false).unwrap();
        assert_eq!((below.committed(), policies.is_dirty(&a)), (vec![], policy == Policy::PerSync), "a handle is open");
        policies.close(&below, &a, || true).unwrap();
        below.change(&policies, &c).unwrap();
        policies.sync(&below, None).unwrap();
        let shared = policy != Policy::PerSync;
        assert_eq!(below.committed(), if shared { vec![11] } else { vec![10] });
        policies.sync_all(&below).unwrap();
        assert_eq!((below.committed(), policies.dirty_files()), (if shared { vec![] } else { vec![12] }, 0));
    }
}

#[test]
fn a_call_that_changes_nothing_leaves_its_file_clean() {
    for policy in [Policy::PerSync, SHARED] {
        let (below, policies, [a, ..]) = (Counting::default(), Policies::new(policy, 1, 9), files());
        let failed: Result<()> = policies.change(&below, &a, 1, |_| Err(Error::Invalid("a call".into())));
        assert!(matches!(failed, Err(Error::Invalid(_))));
        assert_eq!((below.committed(), policies.dirty_files(), epoch(&policies, &a)), (vec![], 0, None));
    }
}

#[test]
fn an_epoch_that_cannot_be_committed_goes_on_until_the_end() {
    for policy in [Policy::PerSync, SHARED] {
        let (below, policies, [a, b, _]) = (Counting::default(), Policies::new(policy, 1, 9), files());
        [&a, &b].into_iter().for_each(|file| _ = below.change(&policies, file).unwrap());
        below.is_full.store(1, Ordering::Relaxed);
        assert!(matches!(policies.sync(&below, Some(&a)), Err(Error::NoSpace(_))));
        assert_eq!((epoch(&policies, &a), below.change(&policies, &a).unwrap()), (Some(10), 10));
        policies.end(Some(&below), &a);
        assert_eq!(epoch(&policies, &a), None);
        below.is_full.store(0, Ordering::Relaxed);
        policies.end_all(Some(&below));
        let left = if policy == Policy::PerSync { vec![11] } else { vec![] };
        assert_eq!((below.committed(), policies.dirty_files(), epoch(&policies, &b)), (left, 0, None));
    }
}

/// Two policies over the same files: neither looks at, nor ends, what the other has.
#[test]
fn policies_leave_each_others_epochs_alone() {
    for policy in [Policy::PerSync, SHARED] {
        let (below, [a, ..]) = (Counting::default(), files());
        let (one, two) = (Policies::new(policy, 1, 9), Policies::new(policy, 2, 9));
        below.change(&one, &a).unwrap();
        let refused: Result<()> = two.change(&below, &a, 1, |_| Err(Error::Invalid("the other has it".into())));
        assert!(refused.is_err() && epoch(&two, &a).is_none());
        two.sync(&below, Some(&a)).unwrap();
        two.end(Some(&below), &a);
        assert_eq!((below.committed(), epoch(&one, &a), one.dirty_files()), (vec![], Some(10), 1));
        one.sync(&below, Some(&a)).unwrap();
        assert_eq!((below.committed(), epoch(&one, &a)), (vec![10], None));
    }
}

#[test]
fn want_of_space_and_many_pieces_commit_the_shared_epoch_early() {
    let (below, policies, [a, ..]) = (Counting::default(), Policies::new(SHARED, 1, 9), files());
    below.change(&policies, &a).unwrap();
    // There is space once something is committed.
    let full = |_: &_| match below.committed.lock().unwrap().len() {
        0 => Err(Error::NoSpace("a call".into())),
        _ => Ok(()),
    };
    policies.change(&below, &a, 1, full).unwrap();
    assert_eq!((below.committed(), policies.early_commits()), (vec![10], 1));
    assert!(matches!(policies.change(&below, &a, 1, full), Err(Error::NoSpace(_))), "nothing is left to commit");
    below.change(&policies, &a).unwrap();
    policies.change(&below, &a, MOST_PIECES, |_| Ok::<_, Error>(())).unwrap();
    assert_eq!((below.committed().len(), policies.early_commits(), policies.dirty_files()), (1, 2, 0));
}

#[test]
fn a_timer_commits_what_is_old() {
    let [a, ..] = files();
    for (interval, committed) in [(Duration::ZERO, vec![10]), (Duration::MAX, vec![])] {
        let (below, policies) = (Counting::default(), Policies::new(Policy::Shared { interval }, 1, 9));
        below.change(&policies, &a).unwrap();
        policies.commit_old(&below);
        assert_eq!(below.committed(), committed);
    }
}
