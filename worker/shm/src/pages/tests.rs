use super::*;

/// Bytes in memory, as the allocator of the process gives them, that begin within a page.
fn bytes(len: usize, value: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    bytes.resize(len, value);
    bytes
}

/// Bytes without pages. The allocator of the process might give some that have been in use.
fn empty(len: usize) -> &'static mut [u8] {
    let piece = Piece::new(len).unwrap();
    let start = piece.start.as_ptr();
    std::mem::forget(piece);
    // SAFETY: fresh memory, which is never unmapped.
    unsafe { std::slice::from_raw_parts_mut(start, len) }
}

/// The number of pages of a range that have memory.
fn resident(bytes: &[u8]) -> usize {
    let pages = bytes.len() / PAGE - 1;
    let mut found = vec![0_u8; pages];
    let start = bytes
        .as_ptr()
        .wrapping_add(bytes.as_ptr().align_offset(PAGE));
    // SAFETY: whole pages within the slice, and one byte for each.
    let result = unsafe { libc::mincore(start as *mut _, pages * PAGE, found.as_mut_ptr()) };
    assert_eq!(result, 0);
    found.iter().filter(|page| **page & 1 == 1).count()
}

#[test]
fn pages_move_with_their_bytes_and_the_rest_stays() {
    const LEN: usize = 5 << 20;
    let mut pool = PagePool::new();
    let mut old = bytes(LEN + 100, 1);
    // SAFETY: our own bytes.
    let taken = unsafe { pool.take(old.as_mut_ptr().add(100), LEN) };
    assert!(taken > LEN - 2 * PAGE, "{taken}");
    // All addresses are valid.
    assert!(old[..100].iter().all(|byte| *byte == 1));
    assert!(old.iter().filter(|byte| **byte == 0).count() == taken);
    // The second half has pages.
    let new = empty(2 * LEN);
    new[LEN..].fill(2);
    // SAFETY: our own bytes.
    let given = unsafe { pool.give(new.as_mut_ptr(), 2 * LEN) }.unwrap();
    assert!(given <= taken && given > LEN - 3 * PAGE, "{given}");
    assert_eq!(new.iter().filter(|byte| **byte == 1).count(), given);
    assert!(new[LEN..].iter().all(|byte| *byte == 2));
    new.fill(3);
    old.fill(4);
    drop(old);
    drop(pool);
    assert!(new.iter().all(|byte| *byte == 3));
}

#[test]
fn a_pool_keeps_no_more_pages_than_it_is_asked_to() {
    const LEN: usize = 4 << 20;
    let mut pool = PagePool::new();
    let mut old = [bytes(LEN, 1), bytes(LEN, 1), bytes(LEN, 1)];
    for old in &mut old {
        // SAFETY: our own bytes.
        unsafe { pool.take(old.as_mut_ptr(), LEN) };
    }
    pool.keep(0, LEN + LEN / 2 + 100);
    let new = empty(3 * LEN);
    // SAFETY: our own bytes.
    let given = unsafe { pool.give(new.as_mut_ptr(), 3 * LEN) }.unwrap();
    assert_eq!(given, LEN + LEN / 2);
    assert_eq!(new.iter().filter(|byte| **byte == 1).count(), given);
    // SAFETY: our own bytes.
    unsafe { pool.take(new.as_mut_ptr(), LEN) };
    pool.keep(0, 0);
    // SAFETY: our own bytes.
    let given = unsafe { pool.give(empty(LEN).as_mut_ptr(), LEN) };
    assert_eq!(given.unwrap(), 0);
}

#[test]
fn pages_that_are_provided_ahead_are_there_at_once() {
    const LEN: usize = 64 << 20;
    let mut pool = PagePool::new();
    pool.provide(LEN);
    while (pool.ahead.as_ref()).is_some_and(|ahead| !ahead.is_finished()) {
        std::thread::yield_now();
    }
    let new = empty(LEN);
    assert!(resident(new) < 100);
    // SAFETY: our own bytes.
    let given = unsafe { pool.give(new.as_mut_ptr(), LEN) }.unwrap();
    assert!(given >= LEN - 2 * PAGE, "{given}");
    assert!(resident(new) + 2 >= LEN / PAGE);
    new.fill(1);
}

#[test]
fn a_pool_provides_what_is_missing() {
    const LEN: usize = 4 << 20;
    let mut pool = PagePool::new();
    let mut old = bytes(LEN, 1);
    // SAFETY: our own bytes.
    unsafe { pool.take(old.as_mut_ptr(), LEN) };
    pool.keep(3 * LEN, LEN / 2);
    while (pool.ahead.as_ref()).is_some_and(|ahead| !ahead.is_finished()) {
        std::thread::yield_now();
    }
    let new = empty(4 * LEN);
    // SAFETY: our own bytes.
    let given = unsafe { pool.give(new.as_mut_ptr(), 4 * LEN) }.unwrap();
    assert_eq!(given, 3 * LEN);
    new.fill(2);
    assert!(new.iter().all(|byte| *byte == 2));
}

#[test]
fn what_is_not_given_is_freed_and_small_ranges_stay() {
    let mut pool = PagePool::new();
    pool.provide(1 << 30);
    let mut small = bytes(MIN, 1);
    // SAFETY: our own bytes.
    assert_eq!(unsafe { pool.take(small.as_mut_ptr().add(1), MIN - 1) }, 0);
    // SAFETY: our own bytes.
    let given = unsafe { pool.give(small.as_mut_ptr().add(1), MIN - 1) };
    assert_eq!(given.unwrap(), 0);
    assert!(small.iter().all(|byte| *byte == 1));
}
