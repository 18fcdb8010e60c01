//! The pages that one borrower has here, and what is known of them.
//!
//! A page lies in a slot of a [`Segment`], in memory that the node's kernel takes when it likes. Its note, one line of the
//! processor's cache, says what the borrower calls it, what came with it, and its place in two orders: by name
//! ([`crate::index`]) and by age. When there is no room, the oldest page makes some, and the borrower is told.
//!
//! Whoever reads pages needs `&Shelf`, whoever adds or takes any `&mut Shelf`: a lock for each borrower is around it.

pub mod segment;

use std::io;
use std::iter::successors;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::budget::Budget;
use crate::index::{Index, LEAF, Links, NONE, Nodes};
use crate::notices::Notices;
use crate::wire::{EVICTED_ITEM, PAGE, PUT_MAX, PageId, Range, TAG};
use segment::{PAGES, Segment};

/// Pages that a `FORGET` passes in vain before it gives up.
const PATIENCE: usize = 64;
/// Pages that are dropped at once, while others wait.
const STEP: usize = 512;
/// There may be this part more slots than pages.
const SPARSE: usize = 8;
/// Slots that were read, after which the kernel is told that they may go all the same.
const READ_MOST: usize = 512;
/// Bytes that a page's table entry takes of the kernel.
const TABLE: usize = 8;
/// Bytes that are remembered of a page, at most: its note and, when it is gone, a notice, for which there may be an eighth
/// more room. A grant counts them with the page.
pub const NOTE_COST: usize = 100;

/// What is known of a page.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Note {
    id: PageId,
    tag: [u8; TAG],
    word: u64,
    links: Links,
    older: u32,
    newer: u32,
}

const EMPTY: Note = Note {
    id: PageId { file: 0, index: 0, version: 0 },
    tag: [0; TAG],
    word: 0,
    links: LEAF,
    older: NONE,
    newer: NONE,
};

const _: () = assert!(size_of::<Note>() == 64);
const _: () = assert!(size_of::<Note>() + TABLE + EVICTED_ITEM * 9 / 8 + size_of::<Row>().div_ceil(PAGES) <= NOTE_COST);
const _: () = assert!(NOTE_COST * 40 <= PAGE); // 2.5 % of the pages

/// A segment and what is known of its pages.
#[derive(Debug)]
struct Row {
    segment: Segment,
    notes: Box<[Note; PAGES]>,
    free: [u64; PAGES / 64],
    used: usize,
    /// All of its pages were let go, and none was written since.
    let_go: AtomicBool,
}

impl Row {
    fn map() -> io::Result<Self> {
        let segment = Segment::map()?;
        let notes = vec![EMPTY; PAGES].into_boxed_slice().try_into().expect("there are as many");
        Ok(Self { segment, notes, free: [u64::MAX; PAGES / 64], used: 0, let_go: AtomicBool::new(false) })
    }

    fn is_used(&self, place: usize) -> bool {
        self.free[place / 64] & (1 << (place % 64)) == 0
    }

    /// Of which pages there is memory, if the kernel says so.
    fn here(&self) -> Option<[bool; PAGES]> {
        if self.let_go.load(Ordering::Relaxed) { Some([false; PAGES]) } else { self.segment.resident().ok() }
    }

    /// Puts a page there; its word.
    fn write(&mut self, place: usize, bytes: &[u8; PAGE]) -> u64 {
        *self.let_go.get_mut() = false;
        self.segment.write(place, bytes)
    }

    fn take(&mut self) -> Option<usize> {
        let word = self.free.iter().position(|&word| word != 0)?;
        let bit = self.free[word].trailing_zeros() as usize;
        self.free[word] &= !(1 << bit);
        self.used += 1;
        Some(word * 64 + bit)
    }

    fn give(&mut self, place: usize) {
        self.free[place / 64] |= 1 << (place % 64);
        self.used -= 1;
    }
}

/// All rows: where a slot's page and note are.
#[derive(Debug, Default)]
struct Rows {
    rows: Vec<Option<Row>>,
    /// Rows with free slots.
    open: Vec<usize>,
    /// How many are here.
    mapped: usize,
    #[cfg(test)]
    most: usize,
    /// What priorities in the index come from.
    secret: u64,
}

fn place(slot: u32) -> (usize, usize) {
    (slot as usize / PAGES, slot as usize % PAGES)
}

impl Rows {
    fn row(&self, slot: u32) -> (&Row, usize) {
        let (row, place) = place(slot);
        (self.rows[row].as_ref().expect("a slot that is used has a row"), place)
    }

    fn row_mut(&mut self, slot: u32) -> (&mut Row, usize) {
        let (row, place) = place(slot);
        (self.rows[row].as_mut().expect("a slot that is used has a row"), place)
    }

    fn note(&self, slot: u32) -> &Note {
        let (row, place) = self.row(slot);
        &row.notes[place]
    }

    fn note_mut(&mut self, slot: u32) -> &mut Note {
        let (row, place) = self.row_mut(slot);
        &mut row.notes[place]
    }

    /// A free slot, of a new row if there is none in those that are here.
    fn take(&mut self) -> io::Result<u32> {
        let at = match self.open.last() {
            Some(&at) => at,
            None => self.map()?,
        };
        let row = self.rows[at].as_mut().expect("a row that is open is here");
        let place = row.take().expect("a row that is open has a free slot");
        if row.used == PAGES {
            self.open.pop();
        }
        Ok((at * PAGES + place) as u32)
    }

    fn map(&mut self) -> io::Result<usize> {
        #[cfg(test)]
        if self.mapped == self.most {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let row = Row::map()?;
        let at = self.rows.iter().position(Option::is_none).unwrap_or(self.rows.len());
        if at == self.rows.len() {
            self.rows.push(Some(row))
        } else {
            self.rows[at] = Some(row)
        }
        self.open.push(at);
        self.mapped += 1;
        Ok(at)
    }

    /// Frees a slot, and its row when that is the last of it; but one row with room stays for what comes next.
    fn give(&mut self, slot: u32) {
        let at = slot as usize / PAGES;
        let (row, place) = self.row_mut(slot);
        row.give(place);
        if row.used + 1 == PAGES {
            self.open.push(at);
        } else if row.used == 0 && self.open.iter().any(|&other| other != at) {
            self.unmap(at);
        }
    }

    fn unmap(&mut self, at: usize) {
        if self.rows[at].take().is_some() {
            self.mapped -= 1;
            self.close(at);
        }
    }

    /// Nothing more comes into a row.
    fn close(&mut self, at: usize) {
        self.open.retain(|&other| other != at);
    }

    /// The row of which the least is used.
    fn emptiest(&self) -> Option<usize> {
        let used = self.rows.iter().enumerate().filter_map(|(at, row)| Some((row.as_ref()?.used, at)));
        used.min().map(|(_, at)| at)
    }

    fn used_slots(&self, at: usize) -> Vec<u32> {
        let row = self.rows[at].as_ref();
        let places = (0..PAGES).filter(|&place| row.is_some_and(|row| row.is_used(place)));
        places.map(|place| (at * PAGES + place) as u32).collect()
    }

    /// The kernel may take these slots: a call for each row.
    fn release(&self, slots: &mut [u32]) -> io::Result<()> {
        slots.sort_unstable();
        let mut rows = slots.chunk_by(|a, b| place(*a).0 == place(*b).0);
        rows.try_for_each(|run| self.row(run[0]).0.segment.release())
    }
}

impl Nodes for Rows {
    type Key = (u64, u64);

    fn key(&self, slot: u32) -> (u64, u64) {
        let id = &self.note(slot).id;
        (id.file, id.index)
    }

    fn priority(&self, slot: u32) -> u64 {
        let mixed = (self.secret ^ u64::from(slot)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 32)).wrapping_mul(self.secret | 1)
    }

    fn links(&mut self, slot: u32) -> &mut Links {
        &mut self.note_mut(slot).links
    }

    fn below(&self, slot: u32) -> Links {
        self.note(slot).links
    }
}

/// What there is of a page.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// It was copied out; this came with it.
    Here([u8; TAG]),
    /// The kernel has taken it: [`Shelf::bury`] is to follow.
    Taken,
    /// There is none in that version.
    Nothing,
}

/// See the module.
#[derive(Debug)]
pub struct Shelf {
    rows: Rows,
    index: Index,
    oldest: u32,
    newest: u32,
    /// Where the last look for the oldest page that was not let go ended: those before it were. `NONE`: at the oldest of all.
    passed: AtomicU32,
    pages: usize,
    limit: usize,
    /// The newest version that was ever here.
    latest: u64,
    budget: Arc<Budget>,
    /// There was no memory for another row, which was said.
    cramped: bool,
    /// Pages that were written, and are not the kernel's to take yet.
    written: Vec<u32>,
    /// Pages that were read, which the kernel takes for being in use.
    read: Mutex<Vec<u32>>,
    /// Nothing more is kept.
    pub held: bool,
    /// What the borrower is to be told.
    pub notices: Notices,
    /// Pages that the kernel has taken.
    pub taken: u64,
}

impl Shelf {
    /// An empty one; `secret` is nobody else's.
    pub fn new(budget: Arc<Budget>, secret: u64) -> Self {
        Self {
            #[cfg(test)]
            rows: Rows { secret, most: usize::MAX, ..Rows::default() },
            #[cfg(not(test))]
            rows: Rows { secret, ..Rows::default() },
            index: Index::default(),
            oldest: NONE,
            newest: NONE,
            passed: AtomicU32::new(NONE),
            pages: 0,
            limit: 0,
            latest: 0,
            budget,
            cramped: false,
            written: Vec::new(),
            read: Mutex::default(),
            held: false,
            notices: Notices::default(),
            taken: 0,
        }
    }

    /// How many pages are here, those that the kernel has taken meanwhile included.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Lets it take as many bytes, what is remembered of its pages included. What it has beyond that [`Shelf::trim`] drops.
    pub fn resize(&mut self, bytes: u64) {
        self.limit = (bytes / (PAGE + NOTE_COST) as u64).min(NONE.into()) as usize;
        self.notices.limit(self.limit);
    }

    /// Drops some of the oldest pages if there are more than so many, or than there may be; whether it has dropped any.
    pub fn trim(&mut self, pages: usize) -> bool {
        let surplus = self.pages.saturating_sub(pages.min(self.limit));
        (0..surplus.min(STEP)).for_each(|_| self.drop_oldest());
        surplus > 0
    }

    /// Moves the pages of a row to others if there are too many rows for the pages, whose notes the kernel may not take;
    /// whether it has.
    pub fn pack(&mut self) -> bool {
        let sparse = self.rows.mapped * PAGES > self.pages + self.pages / SPARSE + 2 * PAGES;
        let Some(at) = self.rows.emptiest().filter(|_| sparse || self.pages == 0) else { return false };
        self.rows.close(at);
        for slot in self.rows.used_slots(at) {
            self.move_page(slot);
        }
        match &self.rows.rows[at] {
            Some(row) if row.used > 0 => self.rows.open.push(at), // there is no memory to move them to
            _ => self.rows.unmap(at),
        }
        if let Err(error) = self.settle() {
            tracing::warn!(%error, "pages that were moved stay with the kernel as used");
        }
        true
    }

    fn move_page(&mut self, slot: u32) {
        let (note, mut page) = (*self.rows.note(slot), [0; PAGE]);
        let (row, place) = self.rows.row(slot);
        if !row.segment.read(place, note.word, &mut page) {
            self.bury_slot(slot);
            return;
        }
        let Ok(to) = self.rows.take() else { return };
        self.index.remove(&mut self.rows, slot);
        let (row, place) = self.rows.row_mut(to);
        row.notes[place] = Note { word: row.write(place, &page), links: LEAF, ..note };
        self.set_neighbours(&note, to, to);
        *self.passed.get_mut() = NONE; // it may be this one, or is before it and here again
        self.index.insert(&mut self.rows, to);
        self.rows.give(slot);
        self.written.push(to);
    }

    /// Keeps the pages of a `PUT`; a bit for each that is here then, as those behind it may take its place.
    /// [`Shelf::settle`] is to follow.
    pub fn put_all<'a>(&mut self, pages: impl Iterator<Item = ((PageId, [u8; TAG]), &'a [u8; PAGE])> + Clone) -> u64 {
        let mut slots = [None; PUT_MAX as usize];
        for (slot, ((id, tag), bytes)) in slots.iter_mut().zip(pages.clone()) {
            *slot = self.put_in_slot(id, tag, bytes);
        }
        let is_here =
            |(slot, ((id, _), _)): (&Option<u32>, (_, _))| slot.is_some_and(|slot| self.is_in_slot(slot, &id));
        slots.iter().zip(pages).map(is_here).enumerate().fold(0, |bits, (place, here)| bits | u64::from(here) << place)
    }

    /// Keeps a page, in place of whatever version of it was here; whether it does. [`Shelf::settle`] is to follow.
    pub fn put(&mut self, id: PageId, tag: [u8; TAG], bytes: &[u8; PAGE]) -> bool {
        self.put_in_slot(id, tag, bytes).is_some()
    }

    fn put_in_slot(&mut self, id: PageId, tag: [u8; TAG], bytes: &[u8; PAGE]) -> Option<u32> {
        if id.version == 0 || id.version == u64::MAX {
            return None; // nobody asks for these
        }
        let former = self.index.find(&self.rows, &(id.file, id.index));
        let slot = self.make_room(former)?;
        let (row, place) = self.rows.row_mut(slot);
        let word = row.write(place, bytes);
        row.notes[place] = Note { id, tag, word, links: LEAF, older: self.newest, newer: NONE };
        match self.newest {
            NONE => self.oldest = slot,
            before => self.rows.note_mut(before).newer = slot,
        }
        self.newest = slot;
        self.pages += 1;
        self.latest = self.latest.max(id.version);
        self.index.insert(&mut self.rows, slot);
        self.written.push(slot);
        Some(slot)
    }

    /// From now on the kernel may take what was put.
    pub fn settle(&mut self) -> io::Result<()> {
        let mut slots = std::mem::take(&mut self.written);
        slots.retain(|&slot| self.is_used(slot));
        self.rows.release(&mut slots)
    }

    /// Copies a page out, if that version is here.
    pub fn get(&self, id: &PageId, to: &mut [u8; PAGE]) -> Found {
        let Some(slot) = self.find(id) else { return Found::Nothing };
        let (row, place) = self.rows.row(slot);
        let note = &row.notes[place];
        if !row.segment.read(place, note.word, to) {
            return Found::Taken;
        }
        self.was_read(slot);
        Found::Here(note.tag)
    }

    /// Reading is use, and what is used the kernel keeps: it is told again, for many at a time, that they may go.
    fn was_read(&self, slot: u32) {
        let mut read = self.read.lock().expect("nobody panics with it");
        read.push(slot);
        if read.len() >= READ_MOST {
            self.release_read(&mut read);
        }
    }

    /// Has the kernel told of what was read until now.
    pub fn cool(&self) {
        self.release_read(&mut self.read.lock().expect("nobody panics with it"));
    }

    fn release_read(&self, read: &mut Vec<u32>) {
        read.retain(|&slot| self.is_used(slot));
        if let Err(error) = self.rows.release(read) {
            tracing::warn!(%error, "pages that were read stay with the kernel as used");
        }
        read.clear();
    }

    /// Notes that the kernel has taken a page, if it has; whether it has.
    pub fn bury(&mut self, id: &PageId) -> bool {
        let Some(slot) = self.find(id) else { return false };
        let (row, place) = self.rows.row(slot);
        if row.segment.present(place) {
            return false; // put again
        }
        self.bury_slot(slot);
        true
    }

    fn bury_slot(&mut self, slot: u32) {
        self.taken += 1;
        self.drop_page(slot);
    }

    /// Whether the kernel takes pages from here: it begins with the oldest.
    pub fn oldest_is_taken(&self) -> bool {
        self.oldest_row().is_some_and(|at| self.has_holes(at))
    }

    /// Lets so many of the oldest pages go at once, in whole rows: the kernel takes them one by one, and has whoever wants
    /// memory wait for it. A sweep notes what has gone.
    pub fn let_go(&self, pages: usize) {
        let mut left = pages;
        while let Some(row) = self.oldest_row().filter(|_| left > 0).and_then(|at| self.rows.rows[at].as_ref()) {
            let here = row.here().map_or(PAGES, |pages| pages.into_iter().filter(|&here| here).count());
            left = left.saturating_sub(here);
            match row.segment.discard() {
                Ok(()) => row.let_go.store(true, Ordering::Relaxed),
                Err(error) => return tracing::warn!(%error, "pages that the kernel wants stay until it takes them"),
            }
        }
    }

    /// The row of the oldest page that was not let go. The next look begins there.
    fn oldest_row(&self) -> Option<usize> {
        let begin = Some(self.passed.load(Ordering::Relaxed)).filter(|&slot| slot != NONE).unwrap_or(self.oldest);
        let follow = |&slot: &u32| Some(self.rows.note(slot).newer).filter(|&slot| slot != NONE);
        let mut slots = successors(Some(begin).filter(|&slot| slot != NONE), follow);
        let found = slots.find(|&slot| !self.rows.row(slot).0.let_go.load(Ordering::Relaxed));
        self.passed.store(found.unwrap_or(self.newest), Ordering::Relaxed);
        found.map(|slot| place(slot).0)
    }

    /// How many rows there are to look at.
    pub fn rows(&self) -> usize {
        self.rows.rows.len()
    }

    /// Whether the kernel may have taken something of a row.
    pub fn has_holes(&self, row: usize) -> bool {
        self.holes(row).next().is_some()
    }

    /// Notes what the kernel has taken of a row; how many pages. What is in swap goes as well: to look would bring it back,
    /// and costs more than all else where there is nothing.
    pub fn sweep(&mut self, row: usize) -> usize {
        let holes: Vec<u32> = self.holes(row).collect();
        holes.iter().for_each(|&slot| self.bury_slot(slot));
        holes.len()
    }

    fn holes(&self, at: usize) -> impl Iterator<Item = u32> + '_ {
        let row = self.rows.rows.get(at).and_then(Option::as_ref).filter(|row| row.used > 0);
        let here = row.and_then(Row::here);
        let looked_at = row.zip(here).into_iter();
        looked_at.flat_map(move |(row, here)| {
            let holes = (0..PAGES).filter(move |&place| row.is_used(place) && !here[place]);
            holes.map(move |place| (at * PAGES + place) as u32)
        })
    }

    /// Drops a page that the borrower has taken back, if that version is here.
    pub fn give_back(&mut self, id: &PageId) {
        if let Some(slot) = self.find(id) {
            self.remove(slot);
        }
    }

    /// Drops pages that the borrower has no use for, some at once; gives the range that is left.
    ///
    /// A hint: behind 64 pages in a row that stay, all stay.
    pub fn forget(&mut self, range: &Range) -> Option<Range> {
        let (mut first, mut patience, mut step) = (range.first, PATIENCE, STEP);
        while step > 0 {
            let slot = self.index.from(&self.rows, &(range.file, first))?;
            let id = self.rows.note(slot).id;
            if (id.file, id.index) > (range.file, range.last) || patience == 0 {
                return None;
            }
            patience -= 1;
            if id.version < range.before {
                self.remove(slot);
                (patience, step) = (PATIENCE, step - 1);
            }
            first = id.index.checked_add(1)?;
        }
        Some(Range { first, ..*range })
    }

    /// No page that is here, or comes, has an older version, if the borrower puts them in the order of their versions.
    pub fn lowest(&self) -> u64 {
        match self.oldest {
            NONE => self.latest.saturating_add(1),
            slot => self.rows.note(slot).id.version,
        }
    }

    fn find(&self, id: &PageId) -> Option<u32> {
        let slot = self.index.find(&self.rows, &(id.file, id.index))?;
        (self.rows.note(slot).id.version == id.version).then_some(slot)
    }

    fn is_in_slot(&self, slot: u32, id: &PageId) -> bool {
        self.is_used(slot) && self.rows.note(slot).id == *id
    }

    fn is_used(&self, slot: u32) -> bool {
        let (row, place) = place(slot);
        self.rows.rows[row].as_ref().is_some_and(|row| row.is_used(place))
    }

    /// A slot for one page more: a free one or, when there may be none more, that of the oldest. The former version goes in
    /// any case.
    fn make_room(&mut self, former: Option<u32>) -> Option<u32> {
        if self.limit == 0 || self.held {
            former.into_iter().for_each(|slot| self.remove(slot));
            return None;
        }
        match former {
            Some(slot) => self.take_out(slot),
            None if self.pages < self.limit && self.budget.take() => (),
            None if self.oldest == NONE => return None,
            None => self.evict(self.oldest),
        }
        let slot = self.rows.take().or_else(|error| self.recycle(error));
        if slot.is_err() {
            self.budget.give(1);
        }
        slot.ok()
    }

    /// A slot of the oldest page when there is no memory for more rows.
    fn recycle(&mut self, error: io::Error) -> io::Result<u32> {
        if !std::mem::replace(&mut self.cramped, true) {
            tracing::warn!(%error, pages = self.pages, "a borrower has no memory for more pages: the oldest make room");
        }
        if self.oldest == NONE {
            return Err(error);
        }
        self.drop_oldest();
        self.rows.take()
    }

    fn drop_oldest(&mut self) {
        self.drop_page(self.oldest);
    }

    fn drop_page(&mut self, slot: u32) {
        self.evict(slot);
        self.budget.give(1);
    }

    /// Takes a page out and notes that the borrower is to be told.
    fn evict(&mut self, slot: u32) {
        let id = self.rows.note(slot).id;
        self.take_out(slot);
        self.notices.push(id, self.lowest());
    }

    fn remove(&mut self, slot: u32) {
        self.take_out(slot);
        self.budget.give(1);
    }

    /// The budget still counts it: it is given back, or another page comes in its place, which nobody else may have then.
    fn take_out(&mut self, slot: u32) {
        self.index.remove(&mut self.rows, slot);
        let note = *self.rows.note(slot);
        if *self.passed.get_mut() == slot {
            *self.passed.get_mut() = note.newer;
        }
        self.set_neighbours(&note, note.older, note.newer);
        self.rows.give(slot);
        self.pages -= 1;
    }

    /// What is before and behind a page in the order of age from now on, as its neighbours see it.
    fn set_neighbours(&mut self, note: &Note, before: u32, behind: u32) {
        match note.older {
            NONE => self.oldest = behind,
            slot => self.rows.note_mut(slot).newer = behind,
        }
        match note.newer {
            NONE => self.newest = before,
            slot => self.rows.note_mut(slot).older = before,
        }
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        self.budget.give(self.pages);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const EACH: u64 = (PAGE + NOTE_COST) as u64;

    fn shelf(pages: u64) -> Shelf {
        let budget = Arc::new(Budget::default());
        budget.set(1 << 20);
        let mut shelf = Shelf::new(budget, 0x1234_5678_9abc_def1);
        shelf.resize(pages * EACH);
        shelf
    }

    fn id(index: u64, version: u64) -> PageId {
        PageId { file: 7, index, version }
    }

    fn contents(version: u64) -> [u8; PAGE] {
        std::array::from_fn(|n| (version as u8).wrapping_mul(17) ^ n as u8)
    }

    fn fill(shelf: &mut Shelf, pages: u64) {
        (0..pages).for_each(|n| assert!(shelf.put(id(n, n + 1), [n as u8; TAG], &contents(n + 1))));
        shelf.settle().unwrap();
    }

    fn resize(shelf: &mut Shelf, pages: u64) {
        shelf.resize(pages * EACH);
        while shelf.trim(usize::MAX) {}
    }

    fn forget(shelf: &mut Shelf, file: u64, first: u64, last: u64, before: u64) {
        let mut left = Some(Range { file, first, last, before });
        while let Some(range) = left {
            left = shelf.forget(&range);
        }
    }

    fn mapped(shelf: &Shelf) -> usize {
        let mapped = shelf.rows.rows.iter().flatten().count();
        assert_eq!(mapped, shelf.rows.mapped);
        mapped
    }

    fn has(shelf: &Shelf, id: PageId) -> bool {
        let mut page = [0; PAGE];
        match shelf.get(&id, &mut page) {
            Found::Here(_) => {
                assert_eq!(page, contents(id.version));
                true
            }
            Found::Taken | Found::Nothing => false,
        }
    }

    /// Has the kernel reclaim the pages of a row, as it does under pressure; those that it may not take stay.
    fn press(shelf: &Shelf, row: usize) {
        shelf.rows.rows[row].as_ref().unwrap().segment.page_out();
    }

    proptest! {
        /// Whatever is put, got, forgotten and squeezed: a page that is got is the one that was put last, no page goes but
        /// with a notice or at the borrower's own word, and none is named that is here.
        #[test]
        fn keeps_what_it_has_not_told(steps in prop::collection::vec((0..5u8, 0..40u64), 1..300)) {
            let (mut shelf, mut model, mut told) = (shelf(24), BTreeMap::new(), Vec::new());
            for (version, (step, index)) in (1..).zip(steps) {
                match step {
                    0 | 1 => {
                        prop_assert!(shelf.put(id(index, version), [version as u8; TAG], &contents(version)));
                        model.insert(index, version);
                    }
                    2 => {
                        forget(&mut shelf, 7, index, index + 3, version / 2);
                        model.retain(|at, was| !(index..=index + 3).contains(at) || *was >= version / 2);
                    }
                    3 => {
                        let pages = if index % 4 == 0 { index / 4 } else { 24 };
                        resize(&mut shelf, pages);
                        resize(&mut shelf, 24);
                        shelf.pack();
                    }
                    _ => {
                        if let Some(&version) = model.get(&index) {
                            prop_assert!(has(&shelf, id(index, version)));
                            shelf.give_back(&id(index, version));
                            model.remove(&index);
                        }
                    }
                }
                shelf.settle().unwrap();
                for gone in shelf.notices.take(128) {
                    told.push(gone);
                    if model.get(&gone.index) == Some(&gone.version) {
                        model.remove(&gone.index);
                    }
                }
            }
            for (&index, &version) in &model {
                prop_assert!(has(&shelf, id(index, version)), "{} {}", index, version);
            }
            prop_assert_eq!(shelf.pages(), model.len());
            prop_assert_eq!(shelf.budget.used(), model.len() as u64);
            prop_assert!(told.iter().all(|gone| !has(&shelf, *gone)));
        }
    }

    #[test]
    fn the_oldest_makes_room_and_is_named() {
        let mut shelf = shelf(1000);
        fill(&mut shelf, 3000);
        assert_eq!(shelf.pages(), 1000);
        let gone = shelf.notices.take(usize::MAX);
        assert_eq!(gone.len(), 1024);
        assert_eq!(gone.last(), Some(&id(1999, 2000)));
        assert_eq!(shelf.lowest(), 2001);
        assert!(!has(&shelf, id(1999, 2000)) && has(&shelf, id(2000, 2001)));
        assert_eq!(shelf.rows(), 2);
        assert!(shelf.rows.open.len() <= 2, "{:?}", shelf.rows.open);
    }

    #[test]
    fn what_the_kernel_takes_is_noticed_and_told() {
        let mut shelf = shelf(2048);
        fill(&mut shelf, 2048);
        assert!((0..2048).all(|n| has(&shelf, id(n, n + 1))));
        shelf.cool();
        assert!((0..4).all(|row| !shelf.has_holes(row)));
        press(&shelf, 1);
        assert!(shelf.has_holes(1) && !shelf.has_holes(2));
        let taken = shelf.sweep(1);
        assert!(taken > PAGES / 2, "{taken}");
        assert_eq!(shelf.taken, taken as u64);
        let gone = shelf.notices.take(usize::MAX);
        assert_eq!(gone.len(), taken);
        assert!(gone.iter().all(|gone| (512..1024).contains(&gone.index) && !has(&shelf, *gone)));
        let left = (0..2048).filter(|&n| has(&shelf, id(n, n + 1))).count();
        assert_eq!(left, 2048 - taken);
        assert_eq!(shelf.pages(), left);
    }

    #[test]
    fn when_the_kernel_takes_the_oldest_more_are_let_go() {
        let mut shelf = shelf(4096);
        fill(&mut shelf, 4096);
        assert!(!shelf.oldest_is_taken());
        press(&shelf, 2);
        assert!(!shelf.oldest_is_taken());
        press(&shelf, 0);
        assert!(shelf.oldest_is_taken());
        shelf.let_go(600); // of rows 0 and 2 little was left
        assert!((1..3).all(|row| shelf.has_holes(row)) && !shelf.has_holes(4));
        assert!(!shelf.oldest_is_taken(), "what was let go is not what the kernel takes");
        let gone = (0..8).map(|row| shelf.sweep(row)).sum::<usize>();
        assert!((1024..=2048).contains(&gone), "{gone}");
        assert_eq!((shelf.pages(), shelf.taken), (4096 - gone, gone as u64));
        let left = (0..4096).filter(|&n| has(&shelf, id(n, n + 1))).count();
        assert_eq!(left, 4096 - gone);
        assert!((0..1024).all(|n| !has(&shelf, id(n, n + 1))));
        fill(&mut shelf, 100);
        assert!((0..100).all(|n| has(&shelf, id(n, n + 1))));
    }

    /// More than there is room for, and one of them in two versions.
    #[test]
    fn of_pages_that_come_together_those_that_stay_are_said() {
        let mut shelf = shelf(4);
        let page = contents(0);
        let mut put = |pages: &[(u64, u64)]| {
            let all = pages.iter().map(|&(index, version)| ((id(index, version), [0; TAG]), &page));
            shelf.put_all(all)
        };
        let many = (1..=64).map(|n| (n, n)).collect::<Vec<_>>();
        assert_eq!(put(&many), 0b1111 << 60);
        assert_eq!(put(&[(1, 70), (2, 71), (1, 72)]), 0b110);
        assert_eq!(put(&[(5, 0), (5, 80), (6, u64::MAX)]), 0b010);
        assert!([(2, 71), (1, 72), (5, 80)].iter().all(|&(index, version)| shelf.find(&id(index, version)).is_some()));
    }

    #[test]
    fn what_was_let_go_is_not_passed_again() {
        let mut shelf = shelf(4096);
        fill(&mut shelf, 4096);
        for row in 0..8 {
            assert_eq!(shelf.oldest_row(), Some(row));
            assert_eq!(*shelf.passed.get_mut() as usize, row * PAGES);
            shelf.let_go(1);
        }
        assert_eq!(shelf.oldest_row(), None);
        assert_eq!(*shelf.passed.get_mut(), shelf.newest);
        fill(&mut shelf, 1); // in place of the first, in its row
        assert_eq!(shelf.oldest_row(), Some(0));
        let gone = (0..8).map(|row| shelf.sweep(row)).sum::<usize>();
        assert_eq!((gone, shelf.pages()), (4095, 1));
        assert_eq!(shelf.oldest_row(), Some(0));
        assert!(has(&shelf, id(0, 1)));
    }

    #[test]
    fn a_page_that_is_moved_to_where_others_were_let_go_is_here() {
        let mut shelf = shelf(4096);
        fill(&mut shelf, 4096);
        for row in (0..8).rev() {
            forget(&mut shelf, 7, row * 512, row * 512 + if row == 0 { 255 } else { 503 }, u64::MAX);
        }
        shelf.let_go(1); // the first row, which has more left than others
        while shelf.pack() {}
        assert_eq!((0..8).map(|row| shelf.sweep(row)).sum::<usize>(), 256);
        assert!((0..4096).all(|n| has(&shelf, id(n, n + 1)) == (n >= 512 && n % 512 > 503)));
    }

    #[test]
    fn a_page_that_is_found_taken_is_a_miss_and_buried() {
        let mut shelf = shelf(512);
        fill(&mut shelf, 512);
        press(&shelf, 0);
        let taken: Vec<_> =
            (0..512).map(|n| id(n, n + 1)).filter(|id| shelf.get(id, &mut [0; PAGE]) == Found::Taken).collect();
        assert!(!taken.is_empty());
        assert!(taken.iter().all(|id| shelf.bury(id)));
        assert_eq!(shelf.notices.take(usize::MAX), taken);
        assert!(taken.iter().all(|id| shelf.get(id, &mut [0; PAGE]) == Found::Nothing));
        assert!(taken.iter().all(|id| !shelf.bury(id)));
    }

    #[test]
    fn what_was_put_and_not_settled_is_not_taken() {
        let mut shelf = shelf(512);
        (0..512).for_each(|n| assert!(shelf.put(id(n, n + 1), [0; TAG], &contents(n + 1))));
        press(&shelf, 0);
        assert!((0..512).all(|n| has(&shelf, id(n, n + 1))));
    }

    #[test]
    fn a_shelf_that_shrinks_gives_memory_back() {
        let mut shelf = shelf(4096);
        fill(&mut shelf, 4096);
        shelf.resize(600 * EACH);
        assert!(shelf.trim(usize::MAX));
        assert_eq!(shelf.pages(), 4096 - STEP);
        resize(&mut shelf, 600);
        assert_eq!((shelf.pages(), shelf.budget.used()), (600, 600));
        assert!(mapped(&shelf) <= 3); // one has room for what comes
        assert!((3496..4096).all(|n| has(&shelf, id(n, n + 1))));
        fill(&mut shelf, 100);
        assert_eq!(shelf.pages(), 600);
    }

    #[test]
    fn what_is_forgotten_leaves_no_memory_behind() {
        let mut shelf = shelf(4096);
        fill(&mut shelf, 4096);
        forget(&mut shelf, 7, 0, u64::MAX, u64::MAX);
        assert_eq!((shelf.pages(), mapped(&shelf)), (0, 1));
        assert!(shelf.pack() && !shelf.pack());
        assert_eq!(mapped(&shelf), 0);
        fill(&mut shelf, 100);
        assert!((0..100).all(|n| has(&shelf, id(n, n + 1))));
    }

    #[test]
    fn what_is_left_of_each_row_is_packed() {
        let mut shelf = shelf(4096);
        fill(&mut shelf, 4096);
        (0..4096).filter(|n| n % 16 != 5).for_each(|n| shelf.give_back(&id(n, n + 1)));
        assert_eq!(mapped(&shelf), 8);
        while shelf.pack() {}
        assert!(mapped(&shelf) <= 2, "{}", mapped(&shelf));
        assert!((0..4096).all(|n| has(&shelf, id(n, n + 1)) == (n % 16 == 5)));
        assert_eq!((shelf.pages(), shelf.budget.used()), (256, 256));
        resize(&mut shelf, 100); // the oldest still go first
        assert!((0..4096).filter(|n| n % 16 == 5).all(|n| has(&shelf, id(n, n + 1)) == (n / 16 >= 156)));
        assert_eq!(shelf.lowest(), 156 * 16 + 6);
    }

    #[test]
    fn the_oldest_makes_room_when_there_is_no_memory() {
        let mut shelf = shelf(4096);
        shelf.rows.most = 2;
        fill(&mut shelf, 3000);
        assert_eq!((shelf.pages(), shelf.budget.used()), (1024, 1024));
        assert!(has(&shelf, id(2999, 3000)) && !has(&shelf, id(1975, 1976)));
        let mut other = Shelf::new(Arc::clone(&shelf.budget), 5);
        other.rows.most = 0;
        other.resize(10 * EACH);
        assert!(!other.put(id(1, 1), [0; TAG], &[1; PAGE]));
        assert_eq!(shelf.budget.used(), 1024);
    }

    #[test]
    fn a_closed_or_full_budget_lets_nobody_grow() {
        let mut one = shelf(100);
        one.budget.set(50);
        let mut other = Shelf::new(Arc::clone(&one.budget), 5);
        other.resize(100 * EACH);
        fill(&mut one, 60);
        assert_eq!((one.pages(), one.budget.used()), (50, 50));
        assert!(!other.put(id(1, 1), [0; TAG], &[1; PAGE]));
        drop(one);
        fill(&mut other, 10);
        other.budget.close(true);
        fill(&mut other, 30);
        assert_eq!((other.pages(), other.budget.used()), (10, 10));
    }

    /// One puts page after page in place of its own, old and named alike: at no time another could have one more.
    #[test]
    fn room_that_a_page_makes_for_another_is_nobody_elses() {
        let mut one = shelf(50);
        fill(&mut one, 50);
        let budget = Arc::clone(&one.budget);
        std::thread::scope(|scope| {
            let puts = |n| one.put(id(n % 60, n), [0; TAG], &contents(n));
            let putting = scope.spawn(|| (51..100_000).all(puts));
            while !putting.is_finished() {
                assert_eq!(budget.used(), 50);
            }
            assert!(putting.join().unwrap());
        });
    }

    #[test]
    fn versions_that_nobody_asks_for_are_refused() {
        let mut shelf = shelf(10);
        assert!(!shelf.put(id(1, 0), [0; TAG], &[1; PAGE]));
        assert!(!shelf.put(id(1, u64::MAX), [0; TAG], &[1; PAGE]));
    }

    #[test]
    fn forget_spares_what_was_put_later_and_gives_up_in_vain() {
        let mut shelf = shelf(2000);
        fill(&mut shelf, 1500);
        forget(&mut shelf, 7, 0, u64::MAX, 61);
        assert_eq!(shelf.pages(), 1440);
        forget(&mut shelf, 7, 100, u64::MAX, 1);
        forget(&mut shelf, 6, 0, u64::MAX, u64::MAX);
        forget(&mut shelf, 7, 9, 3, u64::MAX);
        assert_eq!(shelf.pages(), 1440);
        forget(&mut shelf, 7, 1400, u64::MAX, u64::MAX);
        assert_eq!(shelf.pages(), 1340);
        assert_eq!(shelf.notices.untold(), 0);
    }
}
