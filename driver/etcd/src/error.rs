//! Why a call has no result.

use std::fmt;

/// An endpoint that gave no result, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// The endpoint.
    pub endpoint: String,
    /// A fragment for a message.
    pub why: String,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.endpoint, self.why)
    }
}

/// The codes of gRPC that etcd gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code(pub i64);

impl Code {
    /// A request that cannot be right, also a wrong user or password.
    pub const INVALID_ARGUMENT: Self = Self(3);
    /// A lease that is gone.
    pub const NOT_FOUND: Self = Self(5);
    /// A user without the right.
    pub const PERMISSION_DENIED: Self = Self(7);
    /// A request that is too large, or a store that is full.
    pub const RESOURCE_EXHAUSTED: Self = Self(8);
    /// A state in which the request has no meaning.
    pub const FAILED_PRECONDITION: Self = Self(9);
    /// A revision that was compacted, or is in the future.
    pub const OUT_OF_RANGE: Self = Self(11);
    /// A token that has expired.
    pub const UNAUTHENTICATED: Self = Self(16);

    /// Whether etcd has refused the request. With other codes, such as that of a lost leader, it may have been executed.
    fn is_refusal(self) -> bool {
        [
            Self::INVALID_ARGUMENT,
            Self::NOT_FOUND,
            Self::PERMISSION_DENIED,
            Self::RESOURCE_EXHAUSTED,
            Self::FAILED_PRECONDITION,
            Self::OUT_OF_RANGE,
            Self::UNAUTHENTICATED,
        ]
        .contains(&self)
    }
}

/// Why a call has no result.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// No endpoint could be reached. Nothing was executed.
    #[error("no etcd endpoint can be reached ({})", list(.0))]
    Unreachable(Vec<Attempt>),
    /// An endpoint was reached, but has not answered.
    #[error("no answer of etcd ({0})")]
    NoAnswer(Attempt),
    /// The answer is not one of etcd's JSON gateway.
    #[error("no etcd gateway ({0})")]
    Unreadable(Attempt),
    /// etcd gave an error.
    #[error("etcd refuses ({endpoint}: {message})")]
    Etcd {
        /// The endpoint.
        endpoint: String,
        /// The code of gRPC.
        code: Code,
        /// etcd's message.
        message: String,
    },
}

fn list(attempts: &[Attempt]) -> String {
    let words: Vec<_> = attempts.iter().map(ToString::to_string).collect();
    words.join("; ")
}

impl Error {
    /// Whether etcd may have executed the request.
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Unreachable(_) => false,
            Self::NoAnswer(_) | Self::Unreadable(_) => true,
            Self::Etcd { code, .. } => !code.is_refusal(),
        }
    }

    /// Whether waiting may help. Wrong credentials and requests that are refused stay so.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Etcd { code, .. } => !code.is_refusal(),
            Self::Unreachable(_) | Self::NoAnswer(_) => true,
            Self::Unreadable(_) => false,
        }
    }

    /// Whether the token of the user must be renewed.
    pub(crate) fn wants_new_token(&self) -> bool {
        match self {
            Self::Etcd { code, message, .. } => {
                *code == Code::UNAUTHENTICATED || message.contains("revision of auth store is old")
            }
            _ => false,
        }
    }
}
