//! The lender as a whole: whom it lends to, who comes, what it does from time to time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::budget::Budget;
use crate::config::{Condition, Config};
use crate::handshake::{Met, Refused};
use crate::identity::{Identity, Own};
use crate::link::Link;
use crate::node::{self, Memory};
use crate::seal::Keys;
use crate::serve::{Newcomer, NotServed};
use crate::session::{Borrower, NotNow};
use crate::shelf::NOTE_COST;
use crate::sparing::Sparing;
use crate::strangers::Strangers;
use crate::wire::{self, Channel, HEAD, Hello, MAGIC, MOST, Malformed, PAGE, Reject, TAG, VERSION, Verdict};

/// For all of the handshake.
const STRANGER: Duration = Duration::from_secs(5);
/// For a peer that is refused to hear why.
const PARTING: Duration = Duration::from_secs(1);
/// After an error of the listener, which is mostly one of too many files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why somebody who came has no connection.
#[derive(Debug, thiserror::Error)]
enum Turned {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("{0:?} in the clear")]
    Rejected(Reject),
    #[error("{1}: {0:?}")]
    NotWelcome(Verdict, Identity),
    #[error(transparent)]
    NotServed(#[from] NotServed),
    #[error("it had to make room for others")]
    Cut,
}

/// See the module.
pub struct Lender {
    own: Own,
    /// How many pages there may be.
    pub budget: Arc<Budget>,
    config: RwLock<Config>,
    borrowers: RwLock<HashMap<Identity, Arc<Borrower>>>,
    strangers: Strangers,
    accepted: AtomicU64,
    rejected: AtomicU64,
    refusals: Sparing,
}

impl Lender {
    /// One with an identity of its own, as new as itself.
    pub fn new(config: Config) -> Arc<Self> {
        let lender = Self {
            own: Own::draw(),
            budget: Arc::default(),
            config: RwLock::new(config.clone()),
            borrowers: RwLock::default(),
            strangers: Strangers::default(),
            accepted: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            refusals: Sparing::default(),
        };
        lender.configure(config);
        Arc::new(lender)
    }

    /// Who it is.
    pub fn identity(&self) -> Identity {
        self.own.identity
    }

    /// As it is configured now.
    pub fn config(&self) -> Config {
        self.config.read().expect("nobody panics with it").clone()
    }

    /// What an administrator should know.
    pub fn conditions(&self) -> Vec<Condition> {
        Memory::read().map_or_else(|_| Vec::new(), |node| self.config().conditions(&node, node::memory_limit()))
    }

    /// How many connections were refused.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// How many are in the handshake.
    pub fn strangers(&self) -> usize {
        self.strangers.count()
    }

    /// All borrowers, in the order of their names.
    pub fn borrowers(&self) -> Vec<Arc<Borrower>> {
        let mut all: Vec<_> = self.borrowers.read().expect("nobody panics with it").values().cloned().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Takes another configuration. Waits for no borrower: pages that are too many now [`crate::upkeep`] drops.
    ///
    /// Who is no longer in it loses its session and its pages, and so does who has another name now; others go on.
    pub fn configure(&self, config: Config) {
        let terms = config.terms();
        let mut borrowers = self.borrowers.write().expect("nobody panics with it");
        let named: HashMap<_, _> = config.borrowers.iter().map(|(name, one)| (one.identity, (name, one))).collect();
        borrowers.retain(|identity, borrower| {
            let stays = named.get(identity).is_some_and(|(name, _)| **name == borrower.name);
            if !stays {
                borrower.renounce();
            }
            stays
        });
        for (identity, (name, one)) in named {
            match borrowers.get(&identity) {
                Some(borrower) => borrower.set(one.allowance(), terms),
                None => {
                    let (allowance, budget) = (one.allowance(), Arc::clone(&self.budget));
                    let borrower = Borrower::new(name.clone(), identity, allowance, terms, budget);
                    borrowers.insert(identity, Arc::new(borrower));
                }
            }
        }
        self.budget.set(config.pages());
        drop(borrowers);
        *self.config.write().expect("nobody panics with it") = config;
    }

    fn known(&self, who: &Identity) -> Option<Arc<Borrower>> {
        self.borrowers.read().expect("nobody panics with it").get(who).cloned()
    }

    fn verdict(&self, who: &Identity) -> Verdict {
        match self.known(who) {
            None => Verdict::Unknown,
            Some(borrower) if !borrower.enabled() => Verdict::Disabled,
            Some(_) => Verdict::Welcome,
        }
    }

    /// Accepts whoever comes, for ever.
    pub async fn listen(self: Arc<Self>, listener: TcpListener) {
        loop {
            if let Some((stream, address)) = accepted(listener.accept().await).await {
                tokio::spawn(Arc::clone(&self).meet(stream, address.ip()));
            }
        }
    }

    async fn meet(self: Arc<Self>, stream: TcpStream, address: IpAddr) {
        let ordinal = self.accepted.fetch_add(1, Ordering::Relaxed) + 1;
        let lender = Arc::clone(&self);
        let refused = move |why: NotServed| lender.refuse(address, &why.into());
        let started = match self.welcome(stream, address, ordinal).await {
            Ok(newcomer) => newcomer.start(refused).map_err(Turned::from),
            Err(why) => Err(why),
        };
        if let Err(why) = started {
            self.refuse(address, &why);
        }
    }

    fn refuse(&self, address: IpAddr, why: &Turned) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.refusals.may(std::time::Instant::now()) {
            tracing::info!(%address, %why, left_out, "connection refused");
        }
    }

    /// Nothing but its own state is changed before the handshake is over.
    async fn welcome(&self, mut stream: TcpStream, address: IpAddr, ordinal: u64) -> Result<Newcomer, Turned> {
        let deadline = Instant::now() + STRANGER;
        let mut stranger = self.strangers.admit(ordinal, address);
        let met = tokio::select! {
            _ = &mut stranger.cut => Err(Turned::Cut),
            met = tokio::time::timeout_at(deadline, self.shake_hands_or_part(&mut stream)) => {
                met.unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
            }
        };
        drop(stranger);
        let (peer, hello, keys) = met?;
        let borrower = self.known(&peer).ok_or(Turned::NotWelcome(Verdict::Unknown, peer))?; // it may be gone by now
        let limits = match hello.channel {
            Channel::Get => MOST.agree(&hello.limits),
            Channel::Put | Channel::Lane => {
                borrower.limits(hello.session).ok_or(NotNow::NoRoom).map_err(NotServed::from)?
            }
        };
        let (link, inbound) = Link::new(stream.into_std()?, keys, hello.channel, limits, ordinal)?;
        Ok(Newcomer { borrower, hello, link: Arc::new(link), inbound })
    }

    /// Whoever is refused has some time to hear why.
    async fn shake_hands_or_part(&self, stream: &mut TcpStream) -> Result<(Identity, Hello, Keys), Turned> {
        let met = self.shake_hands(stream).await;
        if let Err(Turned::Rejected(_) | Turned::NotWelcome(..)) = met {
            part(stream).await;
        }
        met
    }

    async fn shake_hands(&self, stream: &mut TcpStream) -> Result<(Identity, Hello, Keys), Turned> {
        stream.set_nodelay(true)?;
        let mut head = [0; HEAD];
        stream.read_exact(&mut head).await?;
        if head[..4] != MAGIC.to_le_bytes() {
            return Err(Malformed::Head.into());
        }
        if head[4..6] != VERSION.to_le_bytes() {
            return Err(reject(stream, Reject::Version).await);
        }
        if head != wire::head(wire::Message::First, 0) {
            return Err(Malformed::Head.into());
        }
        let mut message = [0; wire::MESSAGE_1];
        stream.read_exact(&mut message).await?;
        let met = match Met::read(&self.own, &message) {
            Ok(met) => met,
            Err(Refused::Identity) => return Err(reject(stream, Reject::Identity).await),
            Err(Refused::Malformed(why)) => return Err(why.into()),
        };
        let (peer, hello) = (met.peer, met.hello);
        let (message, verdict, asked) = met.answer(self.verdict(&peer));
        stream.write_all(&message).await?;
        if verdict != Verdict::Welcome {
            return Err(Turned::NotWelcome(verdict, peer));
        }
        let mut message = [0; HEAD + TAG];
        stream.read_exact(&mut message).await?;
        Ok((peer, hello, asked.prove(&message)?))
    }

    /// What is lent, what is remembered of it included.
    pub fn lent_bytes(&self) -> u64 {
        self.budget.used() * (PAGE + NOTE_COST) as u64
    }
}

/// Whoever was accepted. After an error there is a pause: it comes again at once.
pub(crate) async fn accepted<T>(accepted: std::io::Result<T>) -> Option<T> {
    if let Err(error) = &accepted {
        tracing::warn!(%error, "a connection could not be accepted");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
    accepted.ok()
}

async fn reject(stream: &mut TcpStream, why: Reject) -> Turned {
    match stream.write_all(&wire::rejection(why)).await {
        Ok(()) => Turned::Rejected(why),
        Err(error) => error.into(),
    }
}

/// Lets a peer read what it was told: a connection that is closed with something unread is reset.
async fn part(stream: &mut TcpStream) {
    let end = async {
        stream.shutdown().await?;
        let mut rest = [0; 256];
        while stream.read(&mut rest).await? > 0 {}
        Ok::<(), std::io::Error>(())
    };
    let _ = tokio::time::timeout(PARTING, end).await; // whoever does not listen any more need not
}
