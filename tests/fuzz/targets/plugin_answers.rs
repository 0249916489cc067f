//! Any bytes as what a plugin library answers, what a plugin process sends, what a discovery script prints; any text as the
//! name and the options of a plugin. The first byte selects the reader, and the second one the code or the size of parts.
#![no_main]

use elasticrun_plugin_loader::any_input;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let [kind, number, rest @ ..] = input else {
        return;
    };
    match kind % 4 {
        0 => drop(any_input::check_answer(i32::from(*number), rest)),
        1 => drop(any_input::check_stream(usize::from(*number), rest)),
        2 => drop(any_input::check_script(rest)),
        _ => {
            if let Ok(text) = str::from_utf8(rest) {
                any_input::check_spec(text);
            }
        }
    }
});
