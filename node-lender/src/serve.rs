//! What a lender answers, and what it says by itself.

use std::sync::Arc;
use std::time::Duration;

use crate::link::{Ended, Frame, Inbound, Link, Reply};
use crate::session::{Attached, Borrower, count};
use crate::shelf::Found;
use crate::unwanted::Unwanted;
use crate::wire::{self, Channel, DATA_ITEM, EXCLUSIVE, Kind, NOTICE_MAX, PAGE, PUT_MAX, PageId};

/// Notices wait so long for others.
const TELL_DELAY: Duration = Duration::from_millis(50);

/// Serves a connection until it ends.
pub async fn serve(attached: Attached, mut inbound: Inbound) {
    let Attached { borrower, link, .. } = &attached;
    let ended = match link.channel {
        Channel::Get => serve_get_channel(&attached, &mut inbound).await,
        Channel::Lane => serve_lane(borrower, link, &mut inbound).await,
        Channel::Put => serve_puts(borrower, &mut inbound).await,
    };
    if let Err(Ended::Malformed(why)) = &ended {
        link.set_vital();
        count(&borrower.counts.bad_frames, 1);
        tracing::warn!(borrower = borrower.name, %why, "connection closed");
    } else if let Err(why) = &ended {
        tracing::debug!(borrower = borrower.name, %why, "connection ended");
    }
}

async fn serve_get_channel(attached: &Attached, inbound: &mut Inbound) -> Result<(), Ended> {
    let Attached { borrower, link, resumed } = attached;
    let (bytes, linger_ms, hold) = borrower.granted();
    link.grant(bytes, linger_ms, *resumed, hold).await?;
    borrower.tell.notify_one(); // what has gone meanwhile
    tokio::select! {
        ended = serve_lane(borrower, link, inbound) => ended,
        ended = tell(borrower, link) => ended,
    }
}

/// Tells the borrower its grant when that has changed, and which pages are gone.
async fn tell(borrower: &Borrower, link: &Link) -> Result<(), Ended> {
    loop {
        borrower.tell.notified().await;
        if borrower.take_grant_due() {
            let (bytes, linger_ms, hold) = borrower.granted();
            link.grant(bytes, linger_ms, false, hold).await?;
        }
        tokio::time::sleep(TELL_DELAY).await;
        while send_evicted(borrower, link).await? > 0 {}
    }
}

/// Tells it some of what has gone; of how many pages by name.
async fn send_evicted(borrower: &Borrower, link: &Link) -> Result<usize, Ended> {
    let mut sending = link.sending().await?;
    let (before, named) = what_has_gone(borrower, &mut sending.out.told, link.limits.notices.into());
    if let Some(version) = before {
        sending.send(Kind::EvictedBefore, 0, 0, 0, &version.to_le_bytes()).await?;
    }
    if !named.is_empty() {
        let mut metadata = Vec::new();
        named.iter().for_each(|page| page.write(&mut metadata));
        sending.send(Kind::Evicted, 0, named.len(), 0, &metadata).await?;
        count(&borrower.counts.notices, named.len());
    }
    Ok(named.len())
}

fn what_has_gone(borrower: &Borrower, told: &mut u64, most: usize) -> (Option<u64>, Vec<PageId>) {
    let mut shelf = borrower.shelf_mut();
    let before = shelf.notices.before(told).then(|| shelf.lowest());
    (before, shelf.notices.take(most))
}

/// Frames of the GET channel or of another lane, which `wire::expect` tells apart.
async fn serve_lane(borrower: &Borrower, link: &Link, inbound: &mut Inbound) -> Result<(), Ended> {
    let (mut reply, mut unwanted) = (Reply::new(), Unwanted::default());
    loop {
        let frame = unwanted.drop_until(borrower, inbound.frame()).await?;
        match frame.expected.kind {
            Kind::Get => serve_get(borrower, link, &frame, &mut reply).await?,
            Kind::Ping => link.send(Kind::Pong, 0, frame.expected.id, &[]).await?,
            Kind::Forget => unwanted.add(borrower, wire::forget_items(&frame.metadata)).await,
            Kind::Resize => borrower.resize(wire::number(&frame.metadata)),
            other => unreachable!("{other:?} is not expected on a lane"),
        }
    }
}

async fn serve_get(borrower: &Borrower, link: &Link, frame: &Frame, reply: &mut Reply) -> Result<(), Ended> {
    link.set_vital();
    let metadata = usize::from(frame.expected.count) * DATA_ITEM;
    let looked_up = look_up(borrower, frame, reply);
    bury(borrower, &looked_up.taken); // looking made a page there, so nobody else would notice
    let hits = looked_up.hits.len();
    let header = wire::frame(Kind::Data, 0, frame.expected.count.into(), frame.expected.id, metadata, hits * PAGE);
    link.sending().await?.send_reply(reply.finish(header, metadata, hits), metadata).await?;
    reply.shrink();
    if frame.expected.flags & EXCLUSIVE != 0 {
        let mut shelf = borrower.shelf_mut();
        looked_up.hits.iter().for_each(|page| shelf.give_back(page));
    }
    Ok(())
}

fn bury(borrower: &Borrower, taken: &[PageId]) {
    if taken.is_empty() {
        return;
    }
    let mut shelf = borrower.shelf_mut();
    for page in taken {
        shelf.bury(page);
    }
    drop(shelf);
    borrower.tell.notify_one();
}

/// What became of the pages that were asked for.
struct LookedUp {
    hits: Vec<PageId>,
    taken: Vec<PageId>,
}

/// Copies what is here into the reply.
fn look_up(borrower: &Borrower, frame: &Frame, reply: &mut Reply) -> LookedUp {
    let asked = usize::from(frame.expected.count);
    let parts = reply.prepare(asked * DATA_ITEM, asked);
    let mut found = LookedUp { hits: Vec::with_capacity(asked), taken: Vec::new() };
    let mut pages = parts.pages.chunks_exact_mut(PAGE);
    let mut room = pages.next();
    let shelf = borrower.shelf();
    for (page, item) in wire::get_items(&frame.metadata).zip(parts.items.chunks_exact_mut(DATA_ITEM)) {
        item.fill(0);
        let to = room
            .as_deref_mut()
            .and_then(|room| room.try_into().ok())
            .expect("there is room for each that is asked for");
        match shelf.get(&page, to) {
            Found::Here(tag) => {
                item[..8].copy_from_slice(&page.version.to_le_bytes());
                item[8..].copy_from_slice(&tag);
                found.hits.push(page);
                room = pages.next();
            }
            Found::Taken => found.taken.push(page),
            Found::Nothing => (),
        }
    }
    drop(shelf);
    count(&borrower.counts.gets, 1);
    count(&borrower.counts.hits, found.hits.len());
    count(&borrower.counts.misses, asked - found.hits.len());
    found
}

async fn serve_puts(borrower: &Arc<Borrower>, inbound: &mut Inbound) -> Result<(), Ended> {
    let mut pages = vec![0; usize::from(PUT_MAX) * PAGE];
    loop {
        let frame = inbound.frame().await?;
        let get = borrower.get().ok_or(Ended::Shut)?;
        // Pages come no faster than the borrower learns which have gone for them.
        while borrower.shelf().notices.untold() >= NOTICE_MAX.into() {
            send_evicted(borrower, &get).await?;
        }
        wire::put_items(&frame.metadata).for_each(|(page, _)| borrower.saw_version(page.version));
        let pages = &mut pages[..frame.expected.pages];
        inbound.pages(pages).await?;
        let kept = keep(borrower, &frame, pages);
        get.send(Kind::PutAck, frame.expected.count.into(), frame.expected.id, &kept.to_le_bytes()).await?;
    }
}

/// Keeps pages; a bit for each that is here now.
fn keep(borrower: &Borrower, frame: &Frame, pages: &[u8]) -> u64 {
    let mut shelf = borrower.shelf_mut();
    let mut kept = 0u64;
    for (place, ((id, tag), page)) in wire::put_items(&frame.metadata).zip(pages.chunks_exact(PAGE)).enumerate() {
        let page = page.try_into().expect("the size is a page's");
        kept |= u64::from(shelf.put(id, tag, page)) << place;
    }
    for (place, (id, _)) in wire::put_items(&frame.metadata).enumerate() {
        kept &= !(u64::from(!shelf.has(&id)) << place); // those behind it may have taken its place
    }
    if let Err(error) = shelf.settle() {
        tracing::warn!(borrower = borrower.name, %error, "pages stay with the kernel as used");
    }
    let untold = shelf.notices.untold();
    drop(shelf);
    if untold > 0 {
        borrower.tell.notify_one();
    }
    let stored = kept.count_ones() as usize;
    count(&borrower.counts.puts, stored);
    count(&borrower.counts.puts_refused, usize::from(frame.expected.count) - stored);
    kept
}
