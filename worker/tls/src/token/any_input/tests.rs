//! Texts of tokens that were damaged: the fuzzer's check, bounded, on any compiler.

#[path = "../../../../../tests/fuzz/seeds.rs"]
mod seeds;

use std::time::{Duration, UNIX_EPOCH};

use super::check;
use crate::token::Token;
use proptest::prelude::*;

#[test]
fn the_seeds_of_the_fuzzer_keep_the_properties() {
    for (name, bytes) in seeds::read("tokens") {
        assert_eq!(check(&bytes), !name.starts_with("bad-"), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_keep_the_properties(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        check(&bytes);
    }

    #[test]
    fn a_token_reads_back_whatever_its_expiry(seconds in 0_u64..100_000_000_000) {
        let expiry = UNIX_EPOCH + Duration::from_secs(seconds);
        let token = Token::random(expiry).unwrap();
        prop_assert!(check(token.expose().as_bytes()));
        prop_assert_eq!(token.expiry(), expiry);
    }

    #[test]
    fn a_token_with_one_other_character_is_none(
        index in any::<prop::sample::Index>(),
        character in "[!-~]",
    ) {
        let token = Token::random(UNIX_EPOCH + Duration::from_secs(1_800_000_000)).unwrap();
        let mut text = token.expose().to_string();
        let index = index.index(text.len());
        prop_assume!(text[index..=index] != character);
        text.replace_range(index..=index, &character);
        prop_assert!(!check(text.as_bytes()), "{}", text);
    }
}
