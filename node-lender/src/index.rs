//! Which slot has a page: a tree in the order of keys, whose links are two numbers in each slot's own note.
//!
//! A treap: balanced by priorities that nobody outside can foresee, so that no choice of keys makes it deep. It allocates
//! nothing; what it costs is in the notes. No function calls itself, so a thread needs little stack.

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

    /// Takes a slot in, whose key no other has.
    pub fn insert<N: Nodes>(&mut self, nodes: &mut N, slot: u32) {
        let (key, priority) = (nodes.key(slot), nodes.priority(slot));
        let (mut place, mut at) = (Place::Root, self.root);
        while at != NONE && nodes.priority(at) >= priority {
            (place, at) = towards(nodes, &key, at);
        }
        self.hang(nodes, place, slot);
        self.split(nodes, at, &key, slot);
    }

    /// Takes a slot out that is in.
    pub fn remove<N: Nodes>(&mut self, nodes: &mut N, slot: u32) {
        let key = nodes.key(slot);
        let (mut place, mut at) = (Place::Root, self.root);
        while at != slot {
            (place, at) = towards(nodes, &key, at);
        }
        self.merge(nodes, nodes.below(slot), place);
    }

    /// What was below `at` goes below a new slot: those with lesser keys to the left, and the others to the right.
    fn split<N: Nodes>(&mut self, nodes: &mut N, mut at: u32, key: &N::Key, slot: u32) {
        let (mut less, mut rest) = (Place::Left(slot), Place::Right(slot));
        while at != NONE {
            let below = nodes.below(at);
            if nodes.key(at) < *key {
                self.hang(nodes, less, at);
                (less, at) = (Place::Right(at), below.right);
            } else {
                self.hang(nodes, rest, at);
                (rest, at) = (Place::Left(at), below.left);
            }
        }
        self.hang(nodes, less, NONE);
        self.hang(nodes, rest, NONE);
    }

    /// What was below a slot goes to where that was.
    fn merge<N: Nodes>(&mut self, nodes: &mut N, below: Links, mut place: Place) {
        let Links { mut left, mut right } = below;
        while left != NONE && right != NONE {
            if nodes.priority(left) > nodes.priority(right) {
                self.hang(nodes, place, left);
                (place, left) = (Place::Right(left), nodes.below(left).right);
            } else {
                self.hang(nodes, place, right);
                (place, right) = (Place::Left(right), nodes.below(right).left);
            }
        }
        self.hang(nodes, place, if left == NONE { right } else { left });
    }

    fn hang<N: Nodes>(&mut self, nodes: &mut N, place: Place, slot: u32) {
        match place {
            Place::Root => self.root = slot,
            Place::Left(above) => nodes.links(above).left = slot,
            Place::Right(above) => nodes.links(above).right = slot,
        }
    }
}

/// The place below a slot where a key belongs, and the slot that is there.
fn towards<N: Nodes>(nodes: &N, key: &N::Key, at: u32) -> (Place, u32) {
    let below = nodes.below(at);
    if *key < nodes.key(at) { (Place::Left(at), below.left) } else { (Place::Right(at), below.right) }
}

/// Where a slot hangs.
#[derive(Clone, Copy)]
enum Place {
    Root,
    /// Of which slot.
    Left(u32),
    Right(u32),
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

    /// Whether none has a higher priority than the one above it: that is what keeps it balanced.
    fn is_heap(nodes: &Plain, root: u32) -> bool {
        let Links { left, right } = nodes.below(root);
        let below = [left, right].into_iter().filter(|&slot| slot != NONE);
        below.into_iter().all(|slot| nodes.priority(slot) <= nodes.priority(root) && is_heap(nodes, slot))
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
            prop_assert!(index.root == NONE || is_heap(&nodes, index.root));
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
