//! Errors of host lists: position, text, and what is allowed.

use std::fmt;

use super::MAX_SLOTS;

/// Why a host list is refused, with the position and the text of the mistake.
///
/// It reads `line 3, "b:0": slots must be a number from 1 to 1024`. The caller prepends the name of the file or flag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{position}{}: {problem}", Quoted(.text))]
pub struct HostsError {
    /// The position of the mistake.
    pub position: Position,
    /// The text of the mistake, truncated to 80 characters. Empty if there is none.
    pub text: String,
    /// What is wrong, and what is allowed.
    pub problem: Problem,
}

impl HostsError {
    pub(super) fn new(position: Position, text: &str, problem: Problem) -> Self {
        const MAX_CHARS: usize = 80;
        let text = match text.char_indices().nth(MAX_CHARS) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text.to_owned(),
        };
        Self {
            position,
            text,
            problem,
        }
    }
}

/// A position in a list, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The whole list.
    List,
    /// An entry between commas.
    Entry(usize),
    /// A line.
    Line(usize),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List => f.write_str("the list"),
            Self::Entry(number) => write!(f, "host {number}"),
            Self::Line(number) => write!(f, "line {number}"),
        }
    }
}

/// What is wrong, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// No host at all where at least one is needed.
    #[error("names no host")]
    Empty,
    /// An empty entry, or no name before `:`.
    #[error("a host is missing; allowed is host, host:slots or user@host:slots")]
    NoHost,
    /// Not a host name and not an address.
    #[error(
        "not a host; allowed is a name of letters, digits, '-', '_' and '.', an IPv4 address, \
         or an IPv6 address in brackets"
    )]
    BadHost,
    /// An IPv6 address without brackets, which cannot be told from `host:slots`.
    #[error("an IPv6 address goes in brackets, as in [::1]:4")]
    NoBrackets,
    /// Not a user name.
    #[error("not a user name; allowed are letters, digits, '-', '_', '+' and '.', no '-' in front")]
    BadUser,
    /// Slots that are not a number, 0, or more than [`MAX_SLOTS`].
    #[error("slots must be a number from 1 to {MAX_SLOTS}")]
    BadSlots,
    /// Slots are given twice.
    #[error("slots are given twice; allowed is host:4 or host slots=4")]
    SlotsTwice,
    /// A port that is not a number from 1 to 65535, or given twice.
    #[error("port must be one number from 1 to 65535")]
    BadPort,
    /// An unknown word after the host.
    #[error("unknown word after the host; allowed are slots=N and port=N")]
    UnknownWord,
    /// The host is repeated.
    #[error("the host is named before, in {first}; name it once, with all of its slots")]
    Repeated {
        /// Its first position.
        first: Position,
    },
    /// Not text.
    #[error("not UTF-8 text")]
    NotUtf8,
    /// A NUL or another control character.
    #[error("holds a control character; allowed is plain text")]
    Control,
}

struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            Ok(())
        } else {
            write!(f, ", {:?}", self.0)
        }
    }
}
