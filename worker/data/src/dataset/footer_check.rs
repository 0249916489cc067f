//! Checks a footer before Arrow's reader decodes it. That reader reserves memory by numbers of the schema, and
//! descends into it by recursion, so that a few bytes would end the process.
//!
//! Not checked: numbers of row groups and columns. A reader compares them with the pages when it decodes a row group.

use std::collections::BTreeSet;

use crate::thrift::{BINARY, Compact, FOOTER, I32, LIST, STRUCT, is_sound};

/// Maximum depth of a schema.
const MAX_DEPTH: usize = 100;

/// Maximum bytes of the names on the paths of all columns. A path repeats the names of all groups above its column.
const MAX_PATHS: usize = 64 << 20;

/// Numbers of the fields `schema` and `row_groups` of `FileMetaData` in parquet.thrift.
const SCHEMA: i16 = 2;
const ROW_GROUPS: i16 = 4;

/// An element of a schema. The elements are in the order of a walk through the tree, each before its children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Element {
    children: usize,
    /// Bytes of its name.
    name: usize,
}

/// What a sound footer says that Arrow's reader does not tell.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Footer {
    /// The leaf columns that are encrypted, by index, in any row group.
    pub(super) encrypted: BTreeSet<usize>,
}

/// Fails with the reason if the footer cannot be decoded, or if it would need far more memory than it has bytes.
pub(super) fn check(footer: &[u8]) -> Result<Footer, &'static str> {
    if !is_sound(footer, FOOTER) {
        return Err("it is cut or invalid");
    }
    check_tree(&elements(footer).ok_or("its schema is invalid")?)?;
    let mut encrypted = BTreeSet::new();
    encrypted_columns(footer, &mut encrypted).ok_or("its row groups are invalid")?;
    Ok(Footer { encrypted })
}

/// Adds the index of each column chunk that has a field `crypto_metadata` or `encrypted_column_metadata`.
fn encrypted_columns(footer: &[u8], encrypted: &mut BTreeSet<usize>) -> Option<()> {
    let mut input = Compact::new(footer);
    let mut id = 0;
    while let Some(kind) = input.field(&mut id)? {
        if (id, kind) != (ROW_GROUPS, LIST) {
            input.skip(kind, 0)?;
            continue;
        }
        let (_, groups) = input.list()?;
        for _ in 0..groups {
            let mut id = 0;
            while let Some(kind) = input.field(&mut id)? {
                if (id, kind) != (1, LIST) {
                    input.skip(kind, 0)?;
                    continue;
                }
                let (_, chunks) = input.list()?;
                for index in 0..chunks {
                    let mut id = 0;
                    while let Some(kind) = input.field(&mut id)? {
                        if let (8, STRUCT) | (9, BINARY) = (id, kind) {
                            encrypted.insert(index);
                        }
                        input.skip(kind, 0)?;
                    }
                }
            }
        }
    }
    Some(())
}

/// The elements of all schemas; there should be one. `None` if a number is negative.
fn elements(footer: &[u8]) -> Option<Vec<Element>> {
    let mut elements = Vec::new();
    let mut input = Compact::new(footer);
    let mut id = 0;
    while let Some(kind) = input.field(&mut id)? {
        if (id, kind) != (SCHEMA, LIST) {
            input.skip(kind, 0)?;
            continue;
        }
        let (kind, length) = input.list()?;
        for _ in 0..length {
            if kind != STRUCT {
                return None;
            }
            elements.push(element(&mut input)?);
        }
    }
    Some(elements)
}

fn element(input: &mut Compact<'_>) -> Option<Element> {
    let mut element = Element::default();
    let mut id = 0;
    while let Some(kind) = input.field(&mut id)? {
        match (id, kind) {
            (4, BINARY) => element.name = input.binary()?.len(),
            (5, I32) => element.children = input.length()?,
            _ => input.skip(kind, 0)?,
        }
    }
    Some(element)
}

/// Fails unless the elements are one tree of limited depth and names.
fn check_tree(elements: &[Element]) -> Result<(), &'static str> {
    // For each group on the path to the element: its children that are still to come, and the bytes of the path.
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut paths = 0_usize;
    for (index, element) in elements.iter().enumerate() {
        while let Some((0, _)) = open.last() {
            open.pop();
        }
        let above = match open.last_mut() {
            Some((left, path)) => {
                *left -= 1;
                *path
            }
            None if index == 0 => 0,
            None => return Err("its schema has more than one root"),
        };
        // The root is part of no path.
        let path = if index == 0 { 0 } else { above + element.name };
        if element.children == 0 {
            paths = paths.saturating_add(path);
            if paths > MAX_PATHS {
                return Err("the paths of its columns have more than 64 MiB");
            }
        } else {
            if element.children > elements.len() - index - 1 {
                return Err("its schema has fewer elements than it says");
            }
            if open.len() >= MAX_DEPTH {
                return Err("its schema has more than 100 levels");
            }
            open.push((element.children, path));
        }
    }
    match open.iter().all(|(left, _)| *left == 0) {
        true => Ok(()),
        false => Err("its schema has fewer elements than it says"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(children: &[usize]) -> Result<(), &'static str> {
        let element = |children: &usize| Element {
            children: *children,
            name: 1,
        };
        check_tree(&children.iter().map(element).collect::<Vec<_>>())
    }

    #[test]
    fn a_schema_is_one_tree() {
        for children in [&[][..], &[0], &[2, 0, 0], &[2, 1, 0, 2, 0, 0]] {
            assert_eq!(tree(children), Ok(()), "{children:?}");
        }
        let fewer = Err("its schema has fewer elements than it says");
        assert_eq!(tree(&[1]), fewer);
        assert_eq!(tree(&[i32::MAX as usize, 0, 0]), fewer);
        assert_eq!(tree(&[2, 2, 0, 0]), fewer);
        let roots = Err("its schema has more than one root");
        assert_eq!(tree(&[1, 0, 0]), roots);
        assert_eq!(tree(&[0, 0]), roots);
    }

    #[test]
    fn depth_and_names_are_limited() {
        let deep = |levels| [vec![1; levels], vec![0]].concat();
        assert_eq!(tree(&deep(100)), Ok(()));
        assert_eq!(tree(&deep(101)), Err("its schema has more than 100 levels"));
        // A group with a long name above many columns: its name is a part of each path.
        let columns = 1000;
        let wide = |name| {
            let root = Element { children: 1, name };
            let group = Element {
                children: columns,
                name,
            };
            [vec![root, group], vec![Element::default(); columns]].concat()
        };
        assert_eq!(check_tree(&wide(MAX_PATHS / columns)), Ok(()));
        assert!(check_tree(&wide(MAX_PATHS / columns + 1)).is_err());
    }

    #[test]
    fn encrypted_columns_are_known() {
        // Two row groups of two columns. The second column of the second one has a key.
        let plain = [0x26, 0x08, 0x00];
        let secret = [0x26, 0x08, 0x6c, 0x1c, 0x00, 0x00, 0x00];
        let group = |second: &[u8]| [&[0x19, 0x2c][..], &plain, second, &[0]].concat();
        let groups = [group(&plain), group(&secret)].concat();
        let footer = [&[0x15, 0x02, 0x39, 0x2c][..], &groups, &[0]].concat();
        // Fields 1 and 4.
        let mut found = BTreeSet::new();
        assert_eq!(encrypted_columns(&footer, &mut found), Some(()));
        assert_eq!(found, BTreeSet::from([1]));
    }

    #[test]
    fn numbers_of_children_come_from_the_schema() {
        // Version 1, a root "s" with one child "x" of type INT32, no row, no row group.
        let footer = |children| {
            let mut footer = vec![0x15, 0x02, 0x19, 0x2c];
            footer.extend([0x48, 1, b's', 0x15, children, 0]);
            footer.extend([0x15, 0x02, 0x25, 0x00, 0x18, 1, b'x', 0]);
            footer.extend([0x16, 0, 0x19, 0x0c, 0]);
            footer
        };
        assert_eq!(check(&footer(2)), Ok(Footer::default()));
        assert_eq!(
            check(&footer(4)),
            Err("its schema has fewer elements than it says")
        );
        assert_eq!(check(&footer(1)), Err("its schema is invalid"), "negative");
        let sound = footer(2);
        for cut in 0..sound.len() {
            assert_eq!(check(&sound[..cut]), Err("it is cut or invalid"), "{cut}");
        }
    }
}
