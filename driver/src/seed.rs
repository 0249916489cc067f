//! Random numbers of the system.

/// A random number.
///
/// # Errors
/// The system has no randomness.
pub(crate) fn seed() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
    Ok(u64::from_le_bytes(bytes))
}
