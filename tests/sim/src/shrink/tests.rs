//! Simplifications of real seeds.

use super::*;
use crate::{rng::Rng, runner::run_simplified, trace::Detail};

/// A simplification of what a seed has drawn: each fault remains or goes, and each amount has any value that fits.
fn random(drawn: &Drawn, rng: &mut Rng) -> Simplification {
    let mut remains = |_: &usize| rng.percent(50);
    let faults = (0..drawn.faults())
        .filter(|number| remains(number))
        .collect();
    let mut less = |(amount, (least, most)): (&Amount, &(u64, u64))| {
        let value = match rng.percent(50) {
            true => *least,
            false => rng.range(*least, *most),
        };
        rng.percent(50).then_some((*amount, value))
    };
    Simplification {
        faults: Some(faults),
        amounts: drawn.amounts().iter().filter_map(&mut less).collect(),
    }
}

/// With fewer hardships the invariants hold as well. Otherwise a search would end at a mistake of the simplification.
#[test]
fn simplified_seeds_violate_nothing() {
    for seed in 0..500 {
        let drawn = Drawn::from_seed(seed);
        let simplification = random(&drawn, &mut Rng::new(seed));
        assert_eq!(drawn.check(&simplification), Ok(()));
        let report = run_simplified(seed, Detail::Brief, &simplification);
        assert_eq!(report.violation, None, "seed {seed} {simplification}");
    }
}

#[test]
fn a_simplified_seed_replays_bit_for_bit() {
    for seed in 0..50 {
        let drawn = Drawn::from_seed(seed);
        let simplification = random(&drawn, &mut Rng::new(seed));
        let [faults, less] = ["--faults ", "--less "].map(|option| {
            let text = simplification.to_string();
            let value = text.split_once(option)?.1;
            Some(value.split(' ').next()?.to_owned())
        });
        let parsed = Simplification::parse(faults.as_deref(), less.as_deref());
        assert_eq!(parsed.as_ref(), Ok(&simplification));
        let run = |simplification| run_simplified(seed, Detail::Full, simplification);
        assert_eq!(run(&simplification), run(&parsed.unwrap()));
    }
}

#[test]
fn what_is_taken_away_does_not_strike() {
    for seed in 0..50 {
        let drawn = Drawn::from_seed(seed);
        let run = |faults: Vec<usize>| {
            let simplification = Simplification {
                faults: Some(faults.into_iter().collect()),
                amounts: drawn
                    .amounts()
                    .iter()
                    .map(|(amount, (least, _))| (*amount, *least))
                    .collect(),
            };
            run_simplified(seed, Detail::Brief, &simplification).strikes
        };
        assert_eq!(run(Vec::new()), []);
        for number in 0..drawn.faults() {
            let strikes = run(vec![number]);
            let others = strikes.iter().filter_map(|strike| drawn.number(strike));
            assert!(
                others.into_iter().all(|other| other == number),
                "{strikes:?}"
            );
        }
    }
}

#[test]
fn a_seed_in_full_fits_itself() {
    for seed in 0..100 {
        let drawn = Drawn::from_seed(seed);
        let all = Simplification {
            faults: Some((0..drawn.faults()).collect()),
            amounts: Default::default(),
        };
        let run = |simplification| run_simplified(seed, Detail::Full, simplification);
        assert_eq!(run(&all), run(&Simplification::default()));
    }
}
