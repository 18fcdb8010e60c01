//! Which slot has a page: a tree in the order of keys, whose links are two numbers in each slot's own note.
//!
//! A treap: balanced by priorities that nobody outside can foresee, so that no choice of keys makes it deep. It allocates
//! nothing; what it costs is in the notes.

use std::cmp::Ordering;

/// No slot.
pub const NONE: u32 = u32::MAX;

/// The slots below one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Links {
    /// Those with lesser keys.
    pub left: u32,
    /// Those with greater keys.
    pub right: u32,
}

/// No slots.
pub const LEAF: Links = Links { left: NONE, right: NONE };

/// What has the notes.
pub trait Nodes {
    /// What slots are ordered by; no two have the same.
    type Key: Ord;
    /// That of a slot.
    fn key(&self, slot: u32) -> Self::Key;
    /// The same for as long as a slot is in the tree, and not to be foreseen.
    fn priority(&self, slot: u32) -> u64;
    /// The slots below one.
    fn links(&mut self, slot: u32) -> &mut Links;
    /// Likewise, to be looked at.
    fn below(&self, slot: u32) -> Links;
}

/// The tree.
#[derive(Debug)]
pub struct Index {
    root: u32,
}

impl Default for Index {
    fn default() -> Self {
        Self { root: NONE }
    }
}

impl Index {
    /// The slot with a key.
    pub fn find<N: Nodes>(&self, nodes: &N, key: &N::Key) -> Option<u32> {
        self.from(nodes, key).filter(|&slot| nodes.key(slot) == *key)
    }

    /// The first slot whose key is not less than one.
    pub fn from<N: Nodes>(&self, nodes: &N, key: &N::Key) -> Option<u32> {
        let (mut at, mut found) = (self.root, None);
        while at != NONE {
            let below = nodes.below(at);
            at = if nodes.key(at) < *key {
                below.right
            } else {
                found = Some(at);
                below.left
            };
        }
        found
    }

    /// Takes a slot in whose key no other has.
    pub fn insert<N: Nodes>(&mut self, nodes: &mut N, slot: u32) {
        self.root = insert(nodes, self.root, slot);
    }

    /// Takes a slot out that is in.
    pub fn remove<N: Nodes>(&mut self, nodes: &mut N, slot: u32) {
        let key = nodes.key(slot);
        self.root = remove(nodes, self.root, &key);
    }
}

fn insert<N: Nodes>(nodes: &mut N, root: u32, slot: u32) -> u32 {
    let key = nodes.key(slot);
    if root == NONE || nodes.priority(slot) > nodes.priority(root) {
        let (left, right) = split(nodes, root, &key);
        *nodes.links(slot) = Links { left, right };
        return slot;
    }
    if key < nodes.key(root) {
        let left = nodes.below(root).left;
        nodes.links(root).left = insert(nodes, left, slot);
    } else {
        let right = nodes.below(root).right;
        nodes.links(root).right = insert(nodes, right, slot);
    }
    root
}

fn remove<N: Nodes>(nodes: &mut N, root: u32, key: &N::Key) -> u32 {
    let Links { left, right } = nodes.below(root);
    match key.cmp(&nodes.key(root)) {
        Ordering::Equal => return merge(nodes, left, right),
        Ordering::Less => nodes.links(root).left = remove(nodes, left, key),
        Ordering::Greater => nodes.links(root).right = remove(nodes, right, key),
    }
    root
}

/// Those with lesser keys, and the others.
fn split<N: Nodes>(nodes: &mut N, root: u32, key: &N::Key) -> (u32, u32) {
    if root == NONE {
        return (NONE, NONE);
    }
    let Links { left, right } = nodes.below(root);
    if nodes.key(root) < *key {
        let (less, rest) = split(nodes, right, key);
        nodes.links(root).right = less;
        (root, rest)
    } else {
        let (less, rest) = split(nodes, left, key);
        nodes.links(root).left = rest;
        (less, root)
    }
}

fn merge<N: Nodes>(nodes: &mut N, left: u32, right: u32) -> u32 {
    if left == NONE || right == NONE {
        return if left == NONE { right } else { left };
    }
    if nodes.priority(left) > nodes.priority(right) {
        let below = nodes.below(left).right;
        nodes.links(left).right = merge(nodes, below, right);
        left
    } else {
        let below = nodes.below(right).left;
        nodes.links(right).left = merge(nodes, left, below);
        right
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    struct Plain(Vec<(u16, Links)>);

    impl Nodes for Plain {
        type Key = u16;
        fn key(&self, slot: u32) -> u16 {
            self.0[slot as usize].0
        }
        fn priority(&self, slot: u32) -> u64 {
            u64::from(slot + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        }
        fn links(&mut self, slot: u32) -> &mut Links {
            &mut self.0[slot as usize].1
        }
        fn below(&self, slot: u32) -> Links {
            self.0[slot as usize].1
        }
    }

    fn depth(nodes: &Plain, root: u32) -> usize {
        if root == NONE {
            return 0;
        }
        let below = nodes.below(root);
        1 + depth(nodes, below.left).max(depth(nodes, below.right))
    }

    proptest! {
        /// After whatever comes and goes it finds what the standard library's map finds.
        #[test]
        fn finds_what_a_map_finds(steps in prop::collection::vec((any::<bool>(), 0..200u16), 0..400), asked in 0..200u16) {
            let (mut nodes, mut index, mut map) = (Plain(vec![]), Index::default(), BTreeMap::new());
            for (comes, key) in steps {
                if let Some(slot) = map.remove(&key) {
                    index.remove(&mut nodes, slot);
                }
                if comes {
                    let slot = nodes.0.len() as u32;
                    nodes.0.push((key, LEAF));
                    index.insert(&mut nodes, slot);
                    map.insert(key, slot);
                }
            }
            prop_assert_eq!(index.from(&nodes, &asked), map.range(asked..).next().map(|(_, &slot)| slot));
            prop_assert_eq!(index.find(&nodes, &asked), map.get(&asked).copied());
        }
    }

    #[test]
    fn keys_in_order_make_it_no_list() {
        let mut nodes = Plain((0..u16::MAX).map(|key| (key, LEAF)).collect());
        let mut index = Index::default();
        (0..u32::from(u16::MAX)).for_each(|slot| index.insert(&mut nodes, slot));
        assert!(depth(&nodes, index.root) < 64, "{}", depth(&nodes, index.root));
    }
}
