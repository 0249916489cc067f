//! R12: a durable commit is the base if no memory in reach has a newer one.

use elasticrun_core::{Decision, Settings, results::Outcome};
use elasticrun_protocol::{
    AgentCommand, CommitId, DriverEpoch, Round,
    control::{AdoptedPhase, AdoptedWorker, Adoption, ResumeFrom, StoredCommit},
};

use crate::{
    harness::{Harness, commit, host, process, range, seconds},
    hosts::elastic,
};

/// The id of a commit of a former run in a new one: older than all of its own.
const FORMER: CommitId = CommitId {
    epoch: DriverEpoch(0),
    round: Round(0),
    count: 1,
};

fn stored(run_id: &str, commit: CommitId, written_at: u64) -> StoredCommit {
    StoredCommit {
        written_at,
        run_id: run_id.into(),
        commit,
    }
}

/// A job of one or two workers with a durable store, which continues from a former run.
fn job_from(from: Option<ResumeFrom>, store: &[StoredCommit]) -> Harness {
    let mut harness = Harness::new(Settings {
        durable: true,
        resume_from: from,
        ..elastic(1, 1, 2)
    });
    harness.store = store.to_vec();
    harness
}

fn job(store: &[StoredCommit]) -> Harness {
    job_from(Some(ResumeFrom::Latest), store)
}

/// The commits that hosts were told to load.
fn loads(harness: &Harness) -> Vec<StoredCommit> {
    let sent = harness.sent.iter();
    sent.filter_map(|(_, command)| match command {
        AgentCommand::LoadDurable { stored, .. } => Some(stored.clone()),
        _ => None,
    })
    .collect()
}

fn begins_anew(harness: &Harness) -> usize {
    let notes = harness.notes.iter();
    notes
        .filter(|note| matches!(note, Decision::DurableNone))
        .count()
}

fn nothing_to_resume(run: Option<&str>) -> Option<Outcome> {
    let run = run.map(str::to_owned);
    Some(Outcome::NothingToResume { run })
}

/// Hosts `a` and `b` train and commit, and are lost. Host `c` is left, with a worker that holds nothing.
fn lose_all(harness: &mut Harness) {
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass(seconds(1));
    harness.commit();
    harness.lose("a");
    harness.commit();
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.pass(seconds(1));
    harness.forget_commits_on("c");
    harness.unreachable.extend(["a".into(), "b".into()]);
}

/// The host of rank 0 is lost before the other member has fetched the first state.
fn lose_rank_0(harness: &mut Harness) {
    let lost = harness.members()[0].0.clone();
    harness.forget_commits();
    harness.unreachable.insert(lost.as_str().into());
    harness.lose(&lost);
    harness.pass(seconds(61));
}

fn searches(harness: &Harness) -> usize {
    let is_search = |command: &AgentCommand| matches!(command, AgentCommand::FindDurable { .. });
    let sent = harness.sent.iter();
    sent.filter(|(_, command)| is_search(command)).count()
}

fn refused(harness: &Harness) -> Vec<&str> {
    harness
        .notes
        .iter()
        .filter_map(|decision| match decision {
            Decision::DurableRefused { why, .. } => Some(why.as_str()),
            _ => None,
        })
        .collect()
}

#[test]
fn a_new_job_continues_from_the_newest_commit_of_a_former_run() {
    let old = stored("old", commit(9, 9), 10);
    let new = stored("new", commit(2, 1), 20);
    let mut harness = job(&[old, new.clone()]);
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass(seconds(1));
    assert_eq!((harness.started(), harness.base()), (1, Some(FORMER)));
    assert_eq!(loads(&harness), [new]);
    assert!(harness.keeper().is_some(), "no member holds it");
}

#[test]
fn a_new_job_begins_anew_if_the_store_is_empty() {
    let mut harness = job(&[]);
    harness.list(&[host("a", 1)]);
    harness.pass(seconds(1));
    assert_eq!((harness.started(), harness.base()), (1, None));
    assert_eq!((searches(&harness), begins_anew(&harness)), (1, 1));
}

#[test]
fn a_job_that_continues_from_no_run_does_not_read_the_store_at_its_start() {
    let mut harness = job_from(None, &[stored("old", commit(9, 9), 10)]);
    harness.list(&[host("a", 1)]);
    harness.pass(seconds(1));
    assert_eq!((harness.started(), harness.base()), (1, None));
    assert_eq!((searches(&harness), begins_anew(&harness)), (0, 0));
}

#[test]
fn a_run_that_is_not_in_the_store_ends_the_job() {
    let mut harness = job_from(Some(ResumeFrom::Run("mistyped".into())), &[]);
    harness.list(&[host("a", 1)]);
    harness.pass(seconds(1));
    assert_eq!(harness.outcome, nothing_to_resume(Some("mistyped")));
}

#[test]
fn a_store_that_fails_is_not_taken_for_an_empty_one() {
    let mut harness = job(&[]);
    harness.store_errors = vec!["cannot list /d".into()];
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass(seconds(1));
    assert_eq!(harness.outcome, nothing_to_resume(None));
    assert_eq!(refused(&harness), ["cannot list /d"], "announced once");
}

#[test]
fn within_a_run_the_newest_commit_counts_and_not_the_clock() {
    // The host of the later round has a slow clock, or the write of the earlier one was slow.
    let newest = stored("r", commit(2, 1), 10);
    let mut harness = job(&[
        stored("r", commit(1, 9), 30),
        newest.clone(),
        stored("older", commit(7, 7), 20),
    ]);
    harness.list(&[host("a", 1)]);
    harness.pass(seconds(1));
    assert_eq!(loads(&harness), [newest]);
}

#[test]
fn a_damaged_run_is_not_replaced_by_an_older_one() {
    let mut harness = job(&[
        stored("new", commit(1, 1), 30),
        stored("old", commit(2, 2), 20),
    ]);
    harness.damaged.insert(commit(1, 1));
    harness.list(&[host("a", 1)]);
    harness.pass(seconds(1));
    assert_eq!(harness.outcome, nothing_to_resume(None));
}

#[test]
fn the_store_is_not_read_while_memory_has_the_state() {
    let mut harness = job(&[]);
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass(seconds(1));
    harness.store = vec![stored("run", commit(1, 1), 10)];
    harness.commit();
    harness.commit();
    let before = searches(&harness);
    harness.lose("a");
    assert_eq!(harness.base(), Some(commit(1, 2)));
    assert_eq!(searches(&harness), before);
}

#[test]
fn after_the_loss_of_all_memory_the_job_continues_from_the_store() {
    let mut harness = job(&[]);
    lose_all(&mut harness);
    let (rounds, round) = (harness.started(), harness.round().0);
    harness.store = vec![stored("run", commit(round - 1, 1), 10)];
    harness.lose("b");
    harness.pass(seconds(61));
    assert_eq!(harness.outcome, None);
    assert_eq!(harness.base(), Some(commit(round - 1, 1)));
    assert!(harness.started() > rounds);
}

#[test]
fn the_store_is_searched_again_after_the_loss_of_the_memory_that_was_as_new() {
    let mut harness = Harness::new(Settings {
        durable: true,
        elastic_timeout: seconds(20),
        ..elastic(1, 1, 2)
    });
    harness.returns = true;
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass(seconds(1));
    harness.commit();
    let kept = commit(harness.round().0, 1);
    harness.store = vec![stored("run", kept, 10)];
    // The agent on a keeps that commit. Newer ones are out of reach with b.
    harness.kill("a", 0);
    harness.commit();
    harness.breaks_off("b");
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    // The members on b may train unseen for longer than the wait for its commits.
    harness.pass_with(&["a", "c"], seconds(10));
    let before = searches(&harness);
    assert!(before > 0 && loads(&harness).is_empty());
    harness.breaks_off("a");
    harness.pass_with(&["c"], seconds(60));
    assert_eq!(
        (harness.outcome.clone(), harness.base()),
        (None, Some(kept))
    );
    assert!(searches(&harness) > before && loads(&harness).len() == 1);
}

#[test]
fn the_store_is_searched_although_a_member_shows_that_no_step_was_done() {
    let mut harness = job_from(None, &[]);
    harness.list(&[host("a", 1), host("b", 1)]);
    assert_eq!((harness.size(), harness.base()), (2, None));
    // Rank 0 wrote the state with which the round began, and b has not fetched it.
    let first = commit(1, 0);
    harness.store = vec![stored("run", first, 10)];
    lose_rank_0(&mut harness);
    assert_eq!((harness.size(), harness.base()), (1, Some(first)));
}

#[test]
fn without_a_commit_in_the_store_such_a_round_begins_anew() {
    let mut harness = job_from(None, &[]);
    harness.list(&[host("a", 1), host("b", 1)]);
    lose_rank_0(&mut harness);
    assert_eq!((harness.outcome.clone(), harness.size()), (None, 1));
    assert_eq!((harness.base(), searches(&harness)), (None, 1));
}

#[test]
fn a_host_that_is_lost_with_the_loaded_commit_is_replaced() {
    let mut harness = job(&[stored("former", commit(2, 2), 20)]);
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass(seconds(1));
    assert_eq!((harness.started(), harness.base()), (1, Some(FORMER)));
    let keeper = harness.keeper().expect("no member holds it").host.clone();
    let before = searches(&harness);
    harness.unreachable.insert(keeper.clone());
    harness.forget_commits();
    harness.lose(keeper.as_str());
    harness.pass(seconds(61));
    assert_eq!(
        (harness.outcome.clone(), harness.base()),
        (None, Some(FORMER))
    );
    assert!(
        searches(&harness) > before,
        "the commit was in no other memory"
    );
}

#[test]
fn a_void_commit_in_the_store_is_not_used() {
    let mut harness = job(&[]);
    lose_all(&mut harness);
    // A host wrote one more commit of round 1 than the others made, and was lost. Round 2 began from an older one.
    let (void, valid) = (commit(1, 7), commit(1, 1));
    harness.store = vec![stored("run", void, 20), stored("run", valid, 10)];
    harness.lose("b");
    harness.pass(seconds(61));
    assert_eq!(
        (harness.outcome.clone(), harness.base()),
        (None, Some(valid))
    );
}

#[test]
fn a_damaged_commit_is_named_and_the_next_older_one_is_used() {
    let mut harness = job(&[
        stored("former", commit(2, 2), 20),
        stored("former", commit(2, 1), 10),
    ]);
    harness.damaged.insert(commit(2, 2));
    harness.list(&[host("a", 1)]);
    harness.pass(seconds(1));
    assert_eq!((harness.started(), harness.base()), (1, Some(FORMER)));
    assert_eq!(refused(&harness), ["damaged"]);
}

#[test]
fn if_no_commit_can_be_loaded_the_loss_is_said() {
    let mut harness = job(&[]);
    lose_all(&mut harness);
    harness.store = vec![stored("run", commit(1, 1), 10)];
    harness.damaged.insert(commit(1, 1));
    harness.lose("b");
    harness.pass(seconds(61));
    assert_eq!(harness.outcome, Some(Outcome::NoStateLeft));
}

#[test]
fn a_store_that_does_not_answer_is_not_waited_for_without_end() {
    let mut harness = job(&[stored("former", commit(2, 2), 20)]);
    harness.mute.insert("a".into());
    harness.list(&[host("a", 1)]);
    harness.pass(seconds(29));
    assert_eq!((harness.started(), harness.outcome.clone()), (0, None));
    harness.pass(seconds(2));
    assert_eq!(harness.outcome, nothing_to_resume(None));
    let why = "it did not list the store within 30 s";
    assert_eq!(refused(&harness), [why]);
}

#[test]
fn a_host_that_comes_after_the_loss_of_those_asked_is_asked() {
    let mut harness = job(&[stored("former", commit(2, 2), 20)]);
    harness.mute.insert("a".into());
    harness.slow = true;
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.joins("a", 0);
    harness.pass(seconds(1));
    assert_eq!((searches(&harness), harness.started()), (1, 0));
    harness.unreachable.insert("a".into());
    harness.lose("a");
    harness.joins("b", 0);
    harness.pass(seconds(61));
    assert_eq!((harness.started(), harness.base()), (1, Some(FORMER)));
}

#[test]
fn a_host_that_returns_during_its_search_is_asked_again() {
    let mut harness = job(&[stored("former", commit(2, 2), 20)]);
    harness.returns = true;
    harness.mute.insert("a".into());
    harness.list(&[host("a", 1)]);
    harness.pass(seconds(1));
    assert_eq!((searches(&harness), harness.started()), (1, 0));
    harness.breaks_off("a");
    harness.mute.clear();
    let worker = AdoptedWorker {
        process: process(0, 1),
        phase: AdoptedPhase::Joined,
        attached: true,
        left: None,
        data_port: 1,
        commit: None,
        empty: false,
        stopping: false,
    };
    let adoption = Adoption {
        run_id: "run".into(),
        epoch: DriverEpoch(1),
        workers: vec![worker],
        starts: vec![process(0, 1)],
        ..Adoption::default()
    };
    harness.returns("a", adoption);
    harness.pass(seconds(1));
    assert_eq!((harness.started(), harness.base()), (1, Some(FORMER)));
}

#[test]
fn another_host_loads_the_commit_if_the_one_that_has_is_out_of_reach() {
    let mut harness = job(&[stored("former", commit(2, 2), 20)]);
    harness.returns = true;
    harness.slow = true;
    harness.list(&[host("a", 1), host("b", 1)]);
    // Only a is there when the store is searched, and its worker is not asked for the round until the load has ended.
    harness.joins("a", 0);
    harness.together(|harness| {
        harness.breaks_off("a");
        harness.joins("b", 0);
    });
    harness.pass(seconds(61));
    assert_eq!(
        (harness.outcome.clone(), harness.base()),
        (None, Some(FORMER))
    );
}

#[test]
fn a_later_driver_reads_the_store_with_agents_of_the_former_one() {
    let former = stored("former", commit(2, 2), 20);
    let mut harness = job(std::slice::from_ref(&former));
    harness.returns = true;
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass(seconds(1));
    assert_eq!((harness.started(), harness.base()), (1, Some(FORMER)));
    // The commit was in no other memory. Another job writes a newer one to the same store.
    let keeper = harness.keeper().expect("no member holds it").host.clone();
    let other = if keeper.as_str() == "a" { "b" } else { "a" };
    harness.store.push(stored("other", commit(3, 3), 90));
    harness.driver_dies(0);
    harness.lose_silently(keeper.as_str());
    harness.unreachable.insert(keeper);
    harness.forget_commits();
    harness.lose_members();
    harness.comes_back_with_workers(other);
    harness.pass(seconds(200));
    assert_eq!(
        (harness.outcome.clone(), harness.base()),
        (None, Some(FORMER))
    );
    assert_eq!(loads(&harness), [former]);
}

#[test]
fn a_later_driver_reads_the_store_for_rounds_that_its_records_lack() {
    for lost in 0..6 {
        let mut harness = Harness::new(Settings {
            durable: true,
            cooldown: range(20, 20),
            ..elastic(1, 1, 2)
        });
        harness.returns = true;
        let hosts = [host("a", 2), host("b", 1)];
        harness.list(&hosts);
        // Round 1 fails on a before its first commit. Round 2 trains on b.
        harness.forget_commits();
        harness.kill("a", 0);
        harness.pass(seconds(5));
        assert_eq!((harness.round(), harness.base()), (Round(2), None));
        harness.commit();
        let newest = commit(2, 1);
        harness.store = vec![stored("run", newest, 10)];
        harness.driver_dies(lost);
        harness.lose_silently("b");
        harness.unreachable.insert("b".into());
        harness.comes_back_with_workers("a");
        harness.list(&hosts);
        harness.pass(seconds(300));
        assert_eq!(harness.base(), Some(newest), "{lost}: {:?}", harness.notes);
    }
}

#[test]
fn another_host_loads_the_commit_if_the_first_one_is_lost() {
    let mut harness = job(&[stored("former", commit(2, 2), 20)]);
    harness.mute.insert("a".into());
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass(seconds(1));
    assert_eq!(harness.started(), 0, "a has not listed the store");
    harness.unreachable.insert("a".into());
    harness.lose("a");
    harness.pass(seconds(1));
    assert_eq!((harness.started(), harness.base()), (1, Some(FORMER)));
}
