//! Lends a node's free memory to Tidepool's borrowers, in pages that the node's kernel takes back when it wants to.
//!
//! Each module may use those above it:
//!
//! - [`wire`], [`seal`]: protocol 3, `kernel-module/PROTOCOL.md`
//! - [`handshake`], [`identity`]: who a peer is; [`strangers`], [`sparing`]: of whom that is not known yet
//! - [`link`]: a connection; [`bell`]: what a thread waits for beside one
//! - [`budget`], [`index`], [`notices`], [`shelf`]: pages, in memory that the kernel may take
//! - [`session`], [`unwanted`], [`serve`]: what there is with a borrower, what it needs no more, and what it is answered
//! - [`node`], [`config`]: what the node has, and what an administrator wants
//! - [`lender`]: the whole; [`upkeep`]: what it does by itself
//! - [`state`], [`control`]: for those who run it; [`privileges`]: what it does without

pub mod bell;
pub mod budget;
pub mod config;
pub mod control;
pub mod handshake;
pub mod identity;
pub mod index;
pub mod lender;
pub mod link;
pub mod node;
pub mod notices;
pub mod privileges;
pub mod seal;
pub mod serve;
pub mod session;
pub mod shelf;
pub mod sparing;
pub mod state;
pub mod strangers;
pub mod unwanted;
pub mod upkeep;
pub mod wire;

/// What [`budget`] is made of; `tests/interleavings.rs` puts in what tries all orders.
mod sync {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
}
