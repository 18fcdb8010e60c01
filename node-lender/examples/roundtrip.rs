//! How long a get of a page takes over loopback, by who serves it: a thread that blocks, as in the daemon, or the runtime.
//!
//! All read one shelf, by turns, for one client. Prints a line of JSON for each: p50 and p99 in microseconds, the medians of
//! all turns.
//!
//!     node-lender/cargo run --release --example roundtrip [GETS [TURNS]]

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use node_lender::budget::Budget;
use node_lender::identity::Identity;
use node_lender::link::{Link, Reply};
use node_lender::seal::{KEY, Keys, Sealer};
use node_lender::serve::Newcomer;
use node_lender::session::{Allowance, Borrower, Terms};
use node_lender::shelf::{Found, NOTE_COST};
use node_lender::wire::{self, Channel, DATA_ITEM, FRAME, GET_ITEM, Hello, Kind, MOST, PAGE, PageId, TAG};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

const FILE: u64 = 7;
const PAGES: u64 = 4096;
const SIZE: u64 = PAGES * (PAGE + NOTE_COST) as u64;
/// The borrower's key and the lender's, as a handshake would end.
const KEYS: ([u8; KEY], [u8; KEY]) = ([1; KEY], [2; KEY]);
const HELLO: Hello =
    Hello { session: 1, resume: 0, version: 0, size: SIZE, features: 0, channel: Channel::Get, limits: MOST };
/// What a connection has in the daemon: its buffer, how long a borrower may be silent, and a frame under way.
const AHEAD: usize = 4096;
const SILENCE: Duration = Duration::from_secs(15);
const FRAME_TIME: Duration = Duration::from_secs(5);

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Who has one page after the other, and nothing else under way.
struct Client {
    stream: TcpStream,
    send: Sealer,
    receive: Sealer,
    asked: u64,
}

impl Client {
    fn new(stream: TcpStream) -> Self {
        Self { stream, send: Sealer::new(&KEYS.0), receive: Sealer::new(&KEYS.1), asked: 0 }
    }

    /// Gets a page, and says how long that took.
    fn get(&mut self, page: &PageId) -> Result<Duration> {
        let begin = Instant::now();
        self.ask(page)?;
        let body = loop {
            let (kind, body) = self.frame()?;
            if kind == Kind::Data as u8 {
                break body; // not the grant
            }
        };
        let took = begin.elapsed();
        if body[DATA_ITEM..] != contents(page.index) {
            return Err(format!("page {} is not the one that was put", page.index).into());
        }
        Ok(took)
    }

    fn ask(&mut self, page: &PageId) -> Result<()> {
        let mut metadata = [page.file, page.index, page.version].map(u64::to_le_bytes).concat();
        self.asked += 1;
        let header = wire::frame(Kind::Get, 0, 1, self.asked, 8 + GET_ITEM, 0);
        let tag = self.send.seal(&header, &mut metadata);
        Ok(self.stream.write_all(&[&header[..], &metadata, &tag].concat())?)
    }

    /// The next frame's type, and what it has: metadata and pages.
    fn frame(&mut self) -> Result<(u8, Vec<u8>)> {
        let mut header = [0; FRAME];
        self.stream.read_exact(&mut header)?;
        let length = u32::from_le_bytes(header[..4].try_into()?) as usize;
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        let (kind, hits) = (header[4], length / PAGE);
        let pages = body.split_off(length - hits * PAGE);
        let tag = body.split_off(body.len() - TAG);
        self.receive.open(&header, &mut body, tag[..].try_into()?)?;
        body.extend(pages);
        Ok((kind, body))
    }
}

fn contents(index: u64) -> [u8; PAGE] {
    std::array::from_fn(|n| (index as u8).wrapping_mul(31) ^ n as u8)
}

fn id(index: u64) -> PageId {
    PageId { file: FILE, index, version: index + 1 }
}

/// Two ends of a connection: the client's, and the lender's.
fn connected() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (lender, _) = listener.accept()?;
    client.set_nodelay(true)?;
    lender.set_nodelay(true)?;
    Ok((client, lender))
}

fn borrower() -> Arc<Borrower> {
    let budget = Arc::<Budget>::default();
    budget.set(PAGES);
    let terms = Terms { max_lend: SIZE, linger: Duration::from_secs(60), hold: false };
    let allowance = Allowance { quota: SIZE, enabled: true };
    Arc::new(Borrower::new("client".to_owned(), Identity([0; 32]), allowance, terms, budget))
}

fn fill(borrower: &Borrower) -> io::Result<()> {
    let mut shelf = borrower.shelf_mut();
    for index in 0..PAGES {
        shelf.put(id(index), [0; TAG], &contents(index));
    }
    shelf.settle()
}

/// The daemon's own way: threads of the connection's own, which wait in its socket.
fn serve_by_thread(borrower: &Arc<Borrower>) -> Result<Client> {
    let (client, stream) = connected()?;
    let (link, inbound) = Link::new(stream, Keys::new(&mut KEYS.clone()), Channel::Get, MOST, 1)?;
    let newcomer = Newcomer { borrower: Arc::clone(borrower), hello: HELLO, link: Arc::new(link), inbound };
    newcomer.start(|why| eprintln!("not served: {why}"))?;
    let mut client = Client::new(client);
    client.frame()?; // the grant
    fill(borrower)?;
    Ok(client)
}

/// The other way: a task of the runtime.
fn serve_by(runtime: &Runtime, borrower: &Arc<Borrower>) -> Result<Client> {
    let (client, stream) = connected()?;
    stream.set_nonblocking(true)?;
    let (borrower, keys) = (Arc::clone(borrower), Keys::new(&mut KEYS.clone()));
    let stream = runtime.block_on(async { tokio::net::TcpStream::from_std(stream) })?;
    runtime.spawn(serve_gets(borrower, stream, keys));
    Ok(Client::new(client))
}

/// Until the client hangs up, or takes too long.
async fn serve_gets(borrower: Arc<Borrower>, stream: tokio::net::TcpStream, mut keys: Keys) -> Result<()> {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::with_capacity(AHEAD, read);
    let (mut reply, mut metadata) = (Reply::new(), Vec::new());
    loop {
        let mut header = [0; FRAME];
        timeout(SILENCE, read.fill_buf()).await??;
        timeout(FRAME_TIME, read.read_exact(&mut header)).await??;
        let expected = wire::expect(&header, Channel::Get, &MOST)?;
        metadata.resize(expected.metadata + TAG, 0);
        timeout(FRAME_TIME, read.read_exact(&mut metadata)).await??;
        let (asked, tag) = metadata.split_at_mut(expected.metadata);
        keys.receive.open(&header, asked, (&*tag).try_into()?)?;
        let hits = look_up(&borrower, asked, &mut reply)?;
        let header = wire::frame(Kind::Data, 0, 1, expected.id, DATA_ITEM, hits * PAGE);
        let frame = reply.finish(header, DATA_ITEM, hits);
        seal(&mut keys.send, frame);
        timeout(FRAME_TIME, write.write_all(frame)).await??;
    }
}

/// Copies the one page that is asked for into the reply.
fn look_up(borrower: &Borrower, metadata: &[u8], reply: &mut Reply) -> Result<usize> {
    let parts = reply.prepare(DATA_ITEM, 1);
    parts.items.fill(0);
    let page = wire::get_items(metadata).next().ok_or("a get of no page")?;
    let Found::Here(tag) = borrower.shelf().get(&page, parts.pages.try_into()?) else { return Ok(0) };
    parts.items[..8].copy_from_slice(&page.version.to_le_bytes());
    parts.items[8..].copy_from_slice(&tag);
    Ok(1)
}

fn seal(sealer: &mut Sealer, frame: &mut [u8]) {
    let (header, rest) = frame.split_at_mut(FRAME);
    let (metadata, rest) = rest.split_at_mut(DATA_ITEM);
    rest[..TAG].copy_from_slice(&sealer.seal(header, metadata));
}

/// One who serves, and what a get took of each turn: p50 and p99 in microseconds.
struct Side {
    name: &'static str,
    client: Client,
    turns: Vec<[f64; 2]>,
}

impl Side {
    fn new(name: &'static str, client: Client) -> Self {
        Self { name, client, turns: Vec::new() }
    }

    /// So many gets, of pages here and there.
    fn turn(&mut self, gets: u64) -> Result<()> {
        let mut took = Vec::with_capacity(gets as usize);
        for n in 0..gets {
            took.push(self.client.get(&id(n * 997 % PAGES))?.as_secs_f64() * 1e6);
        }
        took.sort_by(f64::total_cmp);
        self.turns.push([took[took.len() / 2], took[took.len() * 99 / 100]]);
        Ok(())
    }

    fn median(&self, which: usize) -> f64 {
        let mut all: Vec<_> = self.turns.iter().map(|turn| turn[which]).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    }
}

fn main() -> Result<()> {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let (gets, turns) = (numbers.next().transpose()?.unwrap_or(2000), numbers.next().transpose()?.unwrap_or(15));
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let lone = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let borrower = borrower();
    let mut sides = [
        Side::new("a thread, as in the daemon", serve_by_thread(&borrower)?),
        Side::new("the runtime", serve_by(&runtime, &borrower)?),
        Side::new("the runtime, one thread", serve_by(&lone, &borrower)?),
    ];
    for _ in 0..turns {
        sides.iter_mut().try_for_each(|side| side.turn(gets))?;
    }
    for side in &sides {
        println!("{}", serde_json::json!({"side": side.name, "p50_us": side.median(0), "p99_us": side.median(1)}));
    }
    Ok(())
}
