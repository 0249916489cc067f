//! Command lines that a standby interpreter can take over.

use std::path::Path;

/// A command line `python [OPTIONS] (SCRIPT | -m MODULE | -c CODE) [ARGUMENTS]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PythonCommand {
    /// The interpreter, as the user wrote it.
    pub(super) interpreter: String,
    /// The options of the interpreter.
    pub(super) options: Vec<String>,
    /// The program with its arguments: a script, or `-m` and a module, or `-c` and code.
    pub(super) program: Vec<String>,
}

/// Options without a value that another run of the interpreter can repeat.
const FLAGS: &str = "bBdEIOPqRsSuv";

impl PythonCommand {
    /// Parses a command. None if it is none of Python, or has an option that only a fresh interpreter can obey.
    pub(super) fn parse(command: &[String]) -> Option<Self> {
        let (interpreter, rest) = command.split_first()?;
        if !is_python(interpreter) {
            return None;
        }
        let mut options = Vec::new();
        let mut words = rest.iter();
        while let Some(word) = words.next() {
            let Some(flags) = word.strip_prefix('-') else {
                let script = (!word.is_empty()).then(|| vec![word.clone()])?;
                return Some(Self::new(interpreter, options, script, words));
            };
            let end = flags.find(|flag| !FLAGS.contains(flag));
            let Some(end) = end.filter(|_| !flags.is_empty()) else {
                if flags.is_empty() {
                    return None;
                }
                options.push(word.clone());
                continue;
            };
            let (before, option) = flags.split_at(end);
            let (option, joined) = option.split_at(option.chars().next()?.len_utf8());
            let value = match joined {
                "" => words.next()?,
                joined => joined,
            };
            match option {
                "W" | "X" => {
                    options.push(word.clone());
                    if joined.is_empty() {
                        options.push(value.to_owned());
                    }
                }
                "m" | "c" => {
                    if !before.is_empty() {
                        options.push(format!("-{before}"));
                    }
                    let program = vec![format!("-{option}"), value.to_owned()];
                    return Some(Self::new(interpreter, options, program, words));
                }
                _ => return None,
            }
        }
        None
    }

    fn new<'a>(
        interpreter: &str,
        options: Vec<String>,
        mut program: Vec<String>,
        arguments: impl Iterator<Item = &'a String>,
    ) -> Self {
        program.extend(arguments.cloned());
        Self {
            interpreter: interpreter.to_owned(),
            options,
            program,
        }
    }
}

/// Whether a program is `python`, `python3` or `python3.N`.
fn is_python(program: &str) -> bool {
    let name = Path::new(program)
        .file_name()
        .and_then(|name| name.to_str());
    let Some(version) = name.and_then(|name| name.strip_prefix("python")) else {
        return false;
    };
    match version.strip_prefix("3.") {
        Some(minor) => !minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit()),
        None => version.is_empty() || version == "3",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(command: &str) -> Option<(String, String)> {
        let words: Vec<_> = command.split_whitespace().map(str::to_owned).collect();
        let parsed = PythonCommand::parse(&words)?;
        assert_eq!(parsed.interpreter, words[0]);
        Some((parsed.options.join(" "), parsed.program.join(" ")))
    }

    #[test]
    fn options_end_at_the_program() {
        for (command, options, program) in [
            ("python train.py -u x", "", "train.py -u x"),
            ("/venv/bin/python3.12 -u t.py", "-u", "t.py"),
            (
                "python3 -uB -W error -Xdev t.py",
                "-uB -W error -Xdev",
                "t.py",
            ),
            (
                "python3 -Werror -X dev -m a.b -m",
                "-Werror -X dev",
                "-m a.b -m",
            ),
            ("python -um a.b 1", "-u", "-m a.b 1"),
            ("python -ma.b -c", "", "-m a.b -c"),
            ("python -c pass 1 2", "", "-c pass 1 2"),
            ("python -OOcpass", "-OO", "-c pass"),
        ] {
            let expected = Some((options.to_owned(), program.to_owned()));
            assert_eq!(parse(command), expected, "{command}");
        }
    }

    #[test]
    fn other_commands_are_started_as_they_are() {
        for command in [
            "",
            "python",
            "python -",
            "python -u",
            "python -m",
            "python -W",
            "python -i t.py",
            "python -x t.py",
            "python -ui t.py",
            "python --version",
            "python -V",
            "python2 t.py",
            "python3. t.py",
            "python3.x t.py",
            "pythonw t.py",
            "ipython t.py",
            "sh -c python",
            "./train.py",
            "torchrun train.py",
        ] {
            assert_eq!(parse(command), None, "{command}");
        }
    }
}
