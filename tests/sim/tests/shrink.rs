//! `elasticrun-sim --shrink`, and the command that it prints, as a user calls them.
//!
//! With the feature `mutants`, mistakes that are planted into the core are shrunk as well.

use std::process::{Command, Output};

fn sim(args: &str) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_elasticrun-sim"));
    program.args(args.split_whitespace());
    program.output().expect("cargo has built the program")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the program writes text")
}

#[test]
fn a_seed_that_violates_nothing_is_not_shrunk() {
    let output = sim("--seed 1 --shrink");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        text(&output.stdout),
        "seed 1 violates no invariant: there is nothing to shrink\n"
    );
}

#[test]
fn wrong_values_give_one_line_and_code_2() {
    for (args, line) in [
        (
            "--faults 99 --trace",
            "error: the seed has no planned fault 99: it has ",
        ),
        ("--faults all", "error: `all` is no number of a fault: "),
        (
            "--less stepz=7 --shrink",
            "error: no amount has the name `stepz`: the names are ambushes, ",
        ),
        (
            "--less steps=1",
            "error: steps=1 does not fit the seed: the value must be in 3..=",
        ),
        ("--less steps", "error: `steps` is no amount: "),
    ] {
        let output = sim(&format!("--seed 3 {args}"));
        assert_eq!(output.status.code(), Some(2), "{args}");
        let error = text(&output.stderr);
        assert!(error.starts_with(line), "{args}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn a_simplified_seed_runs_alone() {
    let run = |args| text(&sim(args).stdout);
    let whole = run("--seed 3 --trace");
    let simple = run("--seed 3 --faults none --less steps=3 --trace");
    assert!(simple.contains("seed 3: "), "{simple}");
    assert_ne!(simple, whole);
    assert_eq!(simple, run("--seed 3 --less steps=3 --faults none --trace"));
    assert_eq!(run("--seed 3 --faults none").lines().count(), 1);
}

#[cfg(feature = "mutants")]
mod mutants {
    use elasticrun_core::mutant::Mutant;
    use elasticrun_sim::{
        Detail, Report, Sighting, run_mutant, run_simplified,
        shrink::{Drawn, Simplification, shrink},
        sightings,
    };

    use super::{sim, text};

    fn first_seen(mutants: &[Mutant]) -> Vec<(Mutant, Report)> {
        let report = |sighting: Sighting| (sighting.mutant, sighting.seen.expect("it is seen"));
        let seen = sightings(mutants, 10_000, 2, |_| {});
        seen.into_iter().map(report).collect()
    }

    #[test]
    fn the_schedules_of_mistakes_become_simple() {
        let mutants = [
            Mutant::AlwaysMixed,
            Mutant::NoRestore,
            Mutant::BlameAccuser,
            Mutant::OldEpochAdopted,
            Mutant::PartialRoundAdopted,
            Mutant::OutageIsSilence,
        ];
        let (mut planned, mut remain) = (0, 0);
        for (mutant, seen) in first_seen(&mutants) {
            let (seed, drawn) = (seen.seed, Drawn::from_seed(seen.seed));
            let run = |simpler: &Simplification| run_mutant(mutant, seed, simpler);
            let shrunk = shrink(&drawn, &Simplification::default(), run, |_| {}).unwrap();
            let simple = &shrunk.simplification;
            assert_eq!(drawn.check(simple), Ok(()), "{mutant:?}");
            assert!(shrunk.is_minimal, "{mutant:?}: {} runs", shrunk.runs);
            assert_eq!(shrunk.before, seen);
            let name = |report: &Report| report.violation.as_ref().map(|seen| seen.invariant);
            assert_eq!(name(&shrunk.after), name(&seen), "{mutant:?}");
            // Bit for bit.
            assert_eq!(run(simple), shrunk.after);
            let well = run_simplified(seed, Detail::Brief, simple);
            assert_eq!(well.violation, None, "{mutant:?} with seed {seed} {simple}");
            assert!(shrunk.after.strikes.len() <= 3, "{shrunk}");
            planned += drawn.faults();
            remain += simple
                .faults
                .as_ref()
                .map_or(drawn.faults(), |faults| faults.len());
        }
        assert!(remain * 2 <= planned, "{remain} of {planned} faults remain");
    }

    #[test]
    fn the_printed_command_replays_the_violation() {
        let (mutant, seen) = first_seen(&[Mutant::NoRestore]).remove(0);
        let seed = seen.seed;
        let shrunk = sim(&format!("--plant {mutant:?} --seed {seed} --shrink"));
        assert_eq!(shrunk.status.code(), Some(1));
        let shrunk = text(&shrunk.stdout);
        let command = shrunk.lines().last().unwrap();
        let prefix = "  replay with: cargo run --release -p elasticrun-sim --features mutants -- ";
        let replay = command.strip_prefix(prefix).unwrap();
        let (first, second) = (sim(replay), sim(replay));
        assert_eq!(first.status.code(), Some(1));
        assert_eq!(first, second);
        let violated = shrunk
            .lines()
            .find(|line| line.contains(" violated: "))
            .unwrap();
        let trace = text(&first.stdout);
        assert!(trace.contains(violated), "{trace}");
        assert!(trace.ends_with(&format!("{command}\n")), "{trace}");
    }

    #[test]
    fn a_mistake_without_a_name_is_refused() {
        let output = sim("--plant NoSuchMistake --seed 3 --shrink");
        assert_eq!(output.status.code(), Some(2));
        let error = text(&output.stderr);
        assert_eq!(
            error,
            "error: no mistake has the name `NoSuchMistake`; --mutants names all\n"
        );
    }
}
