//! The search over artificial runs.

use super::*;

fn violation(invariant: &'static str, what: &str) -> Option<Violation> {
    let what = what.to_owned();
    Some(Violation { invariant, what })
}

fn simplification(faults: &str, less: &str) -> Simplification {
    Simplification::parse(Some(faults), Some(less)).unwrap()
}

/// A seed with twenty faults, five ambushes and 40 steps, of which at least three remain.
fn drawn() -> Drawn {
    let amounts = [(Amount::Ambushes, 0, 5), (Amount::Steps, 3, 40)];
    Drawn::artificial(20, &amounts)
}

/// A run that remains of the drawn one.
struct Run {
    faults: BTreeSet<usize>,
    steps: u64,
}

impl Run {
    fn new(simpler: &Simplification) -> Self {
        let steps = simpler.amounts.get(&Amount::Steps);
        let faults = simpler.faults.clone();
        Self {
            faults: faults.unwrap_or_else(|| (0..20).collect()),
            steps: steps.copied().unwrap_or(40),
        }
    }

    fn has(&self, faults: &[usize]) -> bool {
        faults.iter().all(|fault| self.faults.contains(fault))
    }
}

/// Searches with a function that tells the violation of a run.
fn search(mut fails: impl FnMut(&Run) -> Option<Violation>) -> Option<Shrunk> {
    let run = |simpler: &Simplification| {
        drawn().check(simpler).unwrap();
        let run = Run::new(simpler);
        Report {
            events: run.faults.len() as u64 * run.steps,
            violation: fails(&run),
            ..Report::default()
        }
    };
    shrink(&drawn(), &Simplification::default(), run, |_| {})
}

#[test]
fn what_the_violation_needs_remains() {
    let needs = |run: &Run| run.has(&[3, 17]) && run.steps >= 7;
    let shrunk = search(|run| violation("R1", "").filter(|_| needs(run))).unwrap();
    let expected = simplification("3,17", "ambushes=0,steps=7");
    assert_eq!(shrunk.simplification, expected);
    assert_eq!((shrunk.before.events, shrunk.after.events), (800, 14));
    assert!(shrunk.is_minimal);
}

#[test]
fn nothing_remains_if_nothing_is_needed() {
    let shrunk = search(|_| violation("R1", "")).unwrap();
    let expected = simplification("none", "ambushes=0,steps=3");
    assert_eq!(shrunk.simplification, expected);
    // The first run, one for all faults, one for each amount.
    assert_eq!(shrunk.runs, 4);
}

#[test]
fn a_run_without_a_violation_is_not_shrunk() {
    let mut runs = 0;
    let shrunk = search(|_| {
        runs += 1;
        None
    });
    assert!(shrunk.is_none());
    assert_eq!(runs, 1);
}

#[test]
fn another_violation_is_not_taken() {
    let shrunk = search(|run| match run.has(&[5]) {
        true => violation("R1", "some text"),
        false => violation("R2", "some text"),
    });
    let faults = shrunk.unwrap().simplification.faults;
    assert_eq!(faults, Some(BTreeSet::from([5])));
}

#[test]
fn panics_are_the_same_if_their_texts_agree_without_numbers() {
    let shrunk = search(|run| match (run.has(&[5]), run.faults.len()) {
        (true, count) => violation("panic", &format!("index {count} of 3")),
        (false, count) => violation("panic", &format!("host {count} of 3")),
    });
    let faults = shrunk.unwrap().simplification.faults;
    assert_eq!(faults, Some(BTreeSet::from([5])));
}

/// A fault that goes lets another one go that was needed before.
#[test]
fn the_search_ends_only_when_nothing_more_can_go() {
    let needed = |run: &Run| run.has(&[8]) && (run.steps < 10 || run.has(&[2, 19]));
    let shrunk = search(|run| violation("R1", "").filter(|_| needed(run))).unwrap();
    let expected = simplification("8", "ambushes=0,steps=3");
    assert_eq!(shrunk.simplification, expected);
}

/// Each other set of faults changes what the two meet.
#[test]
fn two_faults_that_suffice_are_found_although_none_can_go_alone() {
    let needs = |run: &Run| run.faults.len() == 20 || run.faults == [3, 17].into();
    let shrunk = search(|run| violation("R1", "").filter(|_| needs(run))).unwrap();
    let faults = shrunk.simplification.faults;
    assert_eq!(faults, Some([3, 17].into()));
}

#[test]
fn no_single_fault_of_the_result_can_go() {
    // Any five faults with an even sum.
    let needs = |run: &Run| run.faults.len() >= 5 && run.faults.iter().sum::<usize>() % 2 == 0;
    let shrunk = search(|run| violation("R1", "").filter(|_| needs(run))).unwrap();
    let faults = shrunk.simplification.faults.unwrap();
    for fault in &faults {
        let mut fewer = faults.clone();
        fewer.remove(fault);
        let (faults, steps) = (fewer, 3);
        assert!(!needs(&Run { faults, steps }), "{fault} can go");
    }
}

#[test]
fn a_bound_ends_the_search() {
    let run = |simpler: &Simplification| {
        let faults = &Run::new(simpler).faults;
        Report {
            violation: violation("R1", "").filter(|_| faults.contains(&0)),
            ..Report::default()
        }
    };
    let mut last = None;
    let progress = |now: Progress| last = Some(now.runs);
    let shrunk = shrink_within(5, &drawn(), &Simplification::default(), run, progress).unwrap();
    assert!(!shrunk.is_minimal);
    assert_eq!((shrunk.runs, last), (5, Some(5)));
    assert!(shrunk.simplification.faults.unwrap().contains(&0));
}

#[test]
fn a_search_goes_on_from_a_simplification() {
    let start = simplification("3,4,5", "steps=20");
    let run = |simpler: &Simplification| Report {
        violation: violation("R1", "").filter(|_| Run::new(simpler).has(&[4])),
        ..Report::default()
    };
    let shrunk = shrink(&drawn(), &start, run, |_| {}).unwrap();
    let expected = simplification("4", "ambushes=0,steps=3");
    assert_eq!(shrunk.simplification, expected);
}
