//! Pages that the node's kernel may take at any time: 2 MiB of private anonymous memory in `MADV_FREE`.
//!
//! The only unsafe code of the lender. The kernel drops such a page as a whole, and from then on it reads as zeros. So the
//! last word of a page that is here is never zero: a mark, whose place's true bytes the caller keeps. Whoever reads copies
//! the page out first and looks at the mark then: if it is there, all that was copied before was there, too, for no page
//! comes back by itself.
//!
//! - Writing cancels `MADV_FREE` for a page; [`Segment::release`] is to follow. A page that was written and not released is
//!   not dropped, so none is ever half there.
//! - Writing needs `&mut`, so nobody reads or releases meanwhile: a release in the middle of writing could tear the page.
//! - A segment is a huge page if the kernel gives one at the first touch, as it does where all programs have them
//!   (`transparent_hugepage/enabled` is `always`), and one lies ready. It goes as a whole then.
#![allow(unsafe_code)]

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{Ordering, fence};

use libc::c_long;
use nix::unistd::{SysconfVar, sysconf};

use crate::wire::PAGE;

/// Pages of a segment.
pub const PAGES: usize = 512;
const BYTES: usize = PAGES * PAGE;
const WORD: usize = size_of::<u64>();
const BODY: usize = PAGE - WORD;
/// Whatever is not zero.
const MARK: u64 = 0x656c_6f6f_7065_6474;

/// Bytes that have a mapping of their own. It is what the allocator begins with; it would become more with what is freed.
const LARGE: libc::c_int = 128 << 10;

/// See the module.
#[derive(Debug)]
pub struct Segment {
    base: NonNull<u8>,
    touched: bool,
}

// SAFETY: the memory belongs to this value alone, and no thread has a part in where it lies.
unsafe impl Send for Segment {}
// SAFETY: through a shared reference it is only read, and given to the kernel, which any threads may do side by side.
unsafe impl Sync for Segment {}

impl Segment {
    /// Maps one; no memory is taken before a page is written.
    pub fn map() -> io::Result<Self> {
        let segment = Self { base: map_aligned()?, touched: false };
        segment.advise(0, PAGES, libc::MADV_DONTDUMP)?;
        Ok(segment)
    }

    fn page(&self, page: usize) -> *mut u8 {
        assert!(page < PAGES);
        // SAFETY: by the assertion the page lies within the mapping.
        unsafe { self.base.as_ptr().add(page * PAGE) }
    }

    fn advise(&self, first: usize, count: usize, advice: libc::c_int) -> io::Result<()> {
        assert!(count > 0 && first + count <= PAGES);
        // SAFETY: the range lies within the mapping, which is only ever read with the mark looked at afterwards.
        let done = unsafe { libc::madvise(self.page(first).cast(), count * PAGE, advice) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Writes a page; gives the word of it that is to be handed to [`Segment::read`].
    pub fn write(&mut self, page: usize, bytes: &[u8; PAGE]) -> u64 {
        let to = self.page(page);
        let (body, word) = bytes.split_at(BODY);
        // SAFETY: `to` has PAGE bytes, is aligned to them, and overlaps nothing that anybody else can name.
        unsafe {
            ptr::copy_nonoverlapping(body.as_ptr(), to, BODY);
            to.add(BODY).cast::<u64>().write_volatile(MARK);
        }
        if !std::mem::replace(&mut self.touched, true) {
            self.keep_small();
        }
        u64::from_ne_bytes(word.try_into().expect("it is the rest of the page"))
    }

    /// Copies a page out. False when the kernel has taken it, and then what was copied is of no use.
    pub fn read(&self, page: usize, word: u64, to: &mut [u8; PAGE]) -> bool {
        let from = self.page(page);
        // SAFETY: `from` has PAGE bytes, which are the kernel's to take but nobody's to write while `self` is borrowed.
        unsafe { ptr::copy_nonoverlapping(from, to.as_mut_ptr(), BODY) };
        fence(Ordering::Acquire); // nothing of the copy is read after the mark
        to[BODY..].copy_from_slice(&word.to_ne_bytes());
        self.present(page)
    }

    /// From now on the kernel makes no huge page of small ones: it would copy them to where it may not take them. If the
    /// first touch has brought a huge page, that stays. A kernel without huge pages knows of no such advice.
    fn keep_small(&self) {
        if let Err(error) = self.advise(0, PAGES, libc::MADV_NOHUGEPAGE)
            && error.raw_os_error() != Some(libc::EINVAL)
        {
            tracing::warn!(%error, "pages that the kernel makes one of are not its to take");
        }
    }

    /// Whether a page that was written is still here. Looking counts as use with the kernel.
    pub fn present(&self, page: usize) -> bool {
        // SAFETY: as in `read`; volatile, for the kernel may have put a page of zeros there.
        unsafe { self.page(page).add(BODY).cast::<u64>().read_volatile() == MARK }
    }

    /// From now on the kernel may take what was written. All of it is named, as a huge page of which a part is named falls
    /// into small ones.
    pub fn release(&self) -> io::Result<()> {
        self.advise(0, PAGES, libc::MADV_FREE)
    }

    /// Of which pages there is memory. Looking this way does not count as use; a page in swap may count as none.
    pub fn resident(&self) -> io::Result<[bool; PAGES]> {
        let mut pages = [0u8; PAGES];
        // SAFETY: the kernel writes a byte for each page of the mapping, and there are as many.
        let done = unsafe { libc::mincore(self.base.as_ptr().cast(), BYTES, pages.as_mut_ptr()) };
        if done == 0 { Ok(pages.map(|byte| byte & 1 != 0)) } else { Err(io::Error::last_os_error()) }
    }

    /// Has the kernel reclaim what it may, as it does when it is short of memory.
    #[cfg(test)]
    pub fn page_out(&self) {
        self.advise(0, PAGES, libc::MADV_PAGEOUT).expect("the mapping can be paged out");
    }

    /// Gives all to the kernel at once, whether it wants it or not.
    pub fn discard(&self) -> io::Result<()> {
        self.advise(0, PAGES, libc::MADV_DONTNEED)
    }

    /// Loses some pages for sure.
    #[cfg(test)]
    pub fn lose(&self, first: usize, count: usize) {
        self.advise(first, count, libc::MADV_DONTNEED).expect("pages of the mapping can be lost");
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and nobody can name it any more.
        let done = unsafe { libc::munmap(self.base.as_ptr().cast(), BYTES) };
        debug_assert_eq!(done, 0);
    }
}

/// Memory for one that begins where a huge page can.
fn map_aligned() -> io::Result<NonNull<u8>> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, at an address that the kernel chooses, touches nothing that is there.
    let all = unsafe { libc::mmap(ptr::null_mut(), 2 * BYTES, protection, flags | libc::MAP_NORESERVE, -1, 0) };
    if all == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let (all, before) = (all.cast::<u8>(), all.cast::<u8>().align_offset(BYTES));
    for (first, count) in [(0, before), (before + BYTES, BYTES - before)] {
        if count > 0 {
            // SAFETY: it is a part of the new mapping, which nobody else can name, and none that is handed out.
            let done = unsafe { libc::munmap(all.add(first).cast(), count) };
            debug_assert_eq!(done, 0);
        }
    }
    // SAFETY: the part that is left has BYTES bytes, within the mapping.
    Ok(NonNull::new(unsafe { all.add(before) }).expect("page 0 is never mapped"))
}

/// From now on what is large goes back to the kernel when it is freed. Each thread has a heap of its own, which would keep it.
pub fn keep_no_large_heaps() {
    // SAFETY: it sets a number of the allocator's, under a lock of that, and touches no memory.
    let done = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) };
    debug_assert_eq!(done, 1);
}

/// Whether this kernel lets pages go when it wants to, and no earlier; else what is wrong, and what would be right.
pub fn check_kernel() -> Result<(), String> {
    check_page_size(sysconf(SysconfVar::PAGE_SIZE).ok().flatten())?;
    check_lazy(is_kept())
}

/// Whether a page stays until the kernel wants it.
fn is_kept() -> io::Result<bool> {
    let mut segment = Segment::map()?;
    let word = segment.write(0, &[1; PAGE]);
    segment.release()?;
    Ok(segment.read(0, word, &mut [0; PAGE]))
}

fn check_lazy(kept: io::Result<bool>) -> Result<(), String> {
    match kept {
        Ok(true) => Ok(()),
        Ok(false) => Err("MADV_FREE frees pages at once on this kernel: Linux 4.12 or newer is needed".to_owned()),
        Err(error) => Err(format!("MADV_FREE: {error}: Linux 4.12 or newer is needed")),
    }
}

/// Of larger pages the kernel frees no part, and would have it asked for whole ones: some kernels of arm64 have them.
fn check_page_size(bytes: Option<c_long>) -> Result<(), String> {
    match bytes {
        Some(bytes) if usize::try_from(bytes) == Ok(PAGE) => Ok(()),
        Some(bytes) => Err(format!("this kernel has pages of {bytes} bytes: boot one with pages of {PAGE}")),
        None => Err("this kernel does not say how large its pages are".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(seed: u8) -> [u8; PAGE] {
        std::array::from_fn(|n| (n as u8).wrapping_mul(31) ^ seed)
    }

    #[test]
    fn a_kernel_with_other_pages_is_refused() {
        assert_eq!(check_page_size(Some(4096)), Ok(()));
        assert!(
            check_page_size(Some(65536)).unwrap_err().contains("pages of 65536 bytes: boot one with pages of 4096")
        );
        assert!(check_page_size(None).is_err());
    }

    /// One that frees at once, as those before 4.12 do without swap, and one that does not know the advice.
    #[test]
    fn a_kernel_that_does_not_free_lazily_is_refused() {
        assert_eq!(check_lazy(Ok(true)), Ok(()));
        let at_once = check_lazy(Ok(false)).unwrap_err();
        assert_eq!(at_once, "MADV_FREE frees pages at once on this kernel: Linux 4.12 or newer is needed");
        let unknown = check_lazy(Err(io::Error::from_raw_os_error(libc::EINVAL))).unwrap_err();
        assert_eq!(unknown, "MADV_FREE: Invalid argument (os error 22): Linux 4.12 or newer is needed");
    }

    #[test]
    fn a_page_is_read_as_it_was_written() {
        let mut segment = Segment::map().unwrap();
        let zeros_at_the_end = std::array::from_fn(|n| u8::from(n < BODY));
        for (place, bytes) in [page(1), [0; PAGE], zeros_at_the_end, [255; PAGE]].into_iter().enumerate() {
            let word = segment.write(place, &bytes);
            segment.release().unwrap();
            let mut read = [7; PAGE];
            assert!(segment.read(place, word, &mut read));
            assert_eq!(read, bytes);
        }
    }

    #[test]
    fn a_dropped_page_is_told_from_one_of_zeros() {
        let mut segment = Segment::map().unwrap();
        let words = [0, 1].map(|place| segment.write(place, &[0; PAGE]));
        segment.lose(1, 1);
        assert!(segment.read(0, words[0], &mut [0; PAGE]));
        assert!(!segment.read(1, words[1], &mut [0; PAGE]));
        assert!(!segment.present(2)); // and one that was never written
    }

    #[test]
    fn memory_that_is_gone_is_seen_without_a_touch() {
        let mut segment = Segment::map().unwrap();
        for place in 0..PAGES {
            segment.write(place, &page(9));
        }
        segment.lose(100, 50);
        let resident = segment.resident().unwrap();
        assert!((0..PAGES).all(|place| resident[place] != (100..150).contains(&place)));
    }

    #[test]
    fn the_kernel_of_this_machine_will_do() {
        assert_eq!(check_kernel(), Ok(()));
    }

    /// Whether a line of `smaps` begins a mapping that an address is in.
    fn covers(line: &str, address: usize) -> Option<bool> {
        let (first, end) = line.split_whitespace().next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some((number(first)?..number(end)?).contains(&address))
    }

    fn smaps(segment: &Segment) -> String {
        let base = segment.base.as_ptr() as usize;
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut behind = smaps.lines().skip_while(|line| !covers(line, base).unwrap_or(false));
        behind.find(|line| line.starts_with("VmFlags:")).expect("the mapping is listed").to_owned()
    }

    /// The kernel says so of the mapping itself: `nh`, as `smaps` calls it.
    #[test]
    fn a_huge_page_comes_with_the_first_touch_or_never() {
        let mut segment = Segment::map().unwrap();
        assert_eq!(segment.base.as_ptr().align_offset(BYTES), 0);
        assert!(!smaps(&segment).contains(" nh"));
        segment.write(PAGES - 1, &page(1));
        assert!(smaps(&segment).contains(" nh"));
    }

    #[test]
    fn what_is_discarded_is_gone_at_once() {
        let mut segment = Segment::map().unwrap();
        let word = segment.write(7, &page(7));
        segment.discard().unwrap();
        assert!(segment.resident().unwrap().iter().all(|here| !here));
        assert!(!segment.read(7, word, &mut [0; PAGE]));
    }
}
