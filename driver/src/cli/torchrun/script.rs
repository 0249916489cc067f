//! COMMAND: the script with the Python that runs it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::given::Given;
use crate::{config::Error, python_exec::installed_python};

/// Runs a script in an interpreter that has started already, with its own `sys.argv`.
const RUN_PATH: &str =
    "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')";

/// The command of a worker: `python -u SCRIPT ...`, and what `-m`, `--no-python` and `--run-path` make of it. The variable
/// `PYTHON_EXEC` names the interpreter, as for torchrun.
///
/// # Errors
/// There is no script, its file is missing, or options contradict each other.
pub(super) fn command(
    given: &Given,
    words: Vec<String>,
    environment: &BTreeMap<String, String>,
) -> Result<Vec<String>, Error> {
    let Some(script) = words.first().filter(|script| !script.is_empty()) else {
        return Err(Error::Usage {
            message:
                "no script: expected elasticrun torchrun [OPTIONS] SCRIPT..., see elasticrun torchrun --help"
                    .to_owned(),
        });
    };
    if given.is_set("no-python") && given.is_set("module") {
        let other = given.spelled("no-python");
        return Err(given.refuse("module", format!("not together with {other}")));
    }
    if given.is_set("no-python") && !given.is_set("run-path") {
        return Ok(words);
    }
    let python = environment
        .get("PYTHON_EXEC")
        .filter(|path| !path.is_empty());
    let python = python.map_or_else(installed_python, PathBuf::from);
    let mut command = vec![python.display().to_string(), "-u".to_owned()];
    if given.is_set("run-path") {
        check_file(script)?;
        command.extend(["-c".to_owned(), RUN_PATH.to_owned()]);
    } else if given.is_set("module") {
        command.push("-m".to_owned());
    } else {
        check_file(script)?;
    }
    command.extend(words);
    Ok(command)
}

/// Each worker would report that its script is missing.
fn check_file(script: &str) -> Result<(), Error> {
    match fs::metadata(Path::new(script)) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::Usage {
            message: format!(
                "{script}: {}; a module needs -m, another program --no-python",
                crate::config::reason(&error)
            ),
        }),
    }
}
