//! The data that members of a round exchange about their commits, so that nothing is sent if all are equal.

/// A commit as members compare it; equal if both fields are equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fingerprint {
    /// The length of the commit in bytes.
    pub len: u64,
    /// The xxh3 digest of its bytes.
    pub digest: u64,
}

/// The commits that a member brings to the start of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The commit with which it would begin; `None` if it does not hold it.
    pub commit: Option<Fingerprint>,
    /// That commit is commit 0 of the round, made of the live state, and not the base.
    pub is_first: bool,
    /// The base, if the round has one and the member holds it. Survivors that derived a state from the base compare
    /// their bases.
    pub base: Option<Fingerprint>,
}

impl Offer {
    /// The number of words of an encoded offer.
    pub const WORDS: usize = 7;

    /// Encodes the offer. A fingerprint becomes three words: whether it is present, and its two numbers.
    pub fn to_words(self) -> [u64; Self::WORDS] {
        let words = |print: Option<Fingerprint>| {
            print.map_or([0, 0, 0], |print| [1, print.len, print.digest])
        };
        let ([a, b, c], [x, y, z]) = (words(self.commit), words(self.base));
        [a, b, c, u64::from(self.is_first), x, y, z]
    }

    /// Decodes the result of [`to_words`](Self::to_words).
    pub fn from_words(words: &[u64; Self::WORDS]) -> Self {
        let print = |words: &[u64]| {
            (words[0] == 1).then_some(Fingerprint {
                len: words[1],
                digest: words[2],
            })
        };
        Self {
            commit: print(&words[..3]),
            is_first: words[3] == 1,
            base: print(&words[4..]),
        }
    }

    /// Whether members hold different bytes as the base. Then the states must decide whether they are equal.
    pub(super) fn bases_differ(all: &[Self]) -> bool {
        let mut bases = all.iter().filter_map(|offer| offer.base);
        let reference = bases.next();
        bases.any(|other| Some(other) != reference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_back() {
        let print = Fingerprint { len: 3, digest: 9 };
        for commit in [None, Some(print)] {
            for base in [None, Some(print)] {
                for is_first in [false, true] {
                    let offer = Offer {
                        commit,
                        is_first,
                        base,
                    };
                    assert_eq!(Offer::from_words(&offer.to_words()), offer);
                }
            }
        }
    }
}
