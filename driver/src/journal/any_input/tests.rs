//! The properties of values of a journal, over the seeds of the fuzzer and random values.

use proptest::prelude::*;

use super::check;
use crate::{
    journal::{Configuration, Entries, Epoch, Final},
    seeds,
};

#[test]
fn each_seed_of_the_fuzzer_is_read() {
    for (name, seed) in seeds::read("journal_values") {
        check(&seed);
        let kind = name.split('-').next().expect("a name has a kind");
        let key = if kind == "configuration" {
            "config"
        } else {
            kind
        };
        let entries = Entries::from([(key.to_owned(), seed)]);
        match kind {
            "configuration" => assert!(Configuration::read(&entries).is_some(), "{name}"),
            "epoch" => assert!(Epoch::read(&entries).is_some(), "{name}"),
            "final" => assert!(Final::read(&entries).is_some(), "{name}"),
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_read_the_same(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check(&bytes);
    }

    #[test]
    fn any_settings_are_refused_or_read_the_same(
        key in "np|min-np|hosts|env|journal|discovery|orphan-timeout|blacklist-cooldown-range|x",
        words in prop::collection::vec("[ -~]{0,20}", 0..3),
        part in "given|defaults",
    ) {
        let settings = serde_json::json!({part: {key: words}});
        let value = serde_json::json!({
            "settings": settings, "command": ["a"], "listen": "127.0.0.1:1", "secret": "00",
        });
        check(value.to_string().as_bytes());
    }
}
