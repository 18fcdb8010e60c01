//! A lender needs no right but that to its port. Started as root it becomes somebody else before it listens to anybody.

use nix::sys::prctl;
use nix::unistd::{Gid, Uid, User, setgid, setgroups, setuid};

/// Who it becomes if nothing else is said.
pub const NOBODY: &str = "nobody";

/// Becomes that user if it is root, and gives up ever to have more rights. Before any thread is started.
///
/// What is wrong is said in words.
pub fn drop(user: &str) -> Result<(), String> {
    if Uid::effective().is_root() {
        let found = User::from_name(user).map_err(|error| format!("user {user}: {error}"))?;
        let User { uid, gid, .. } =
            found.ok_or_else(|| format!("user {user}: there is none; make it, or name another"))?;
        if uid.is_root() {
            return Err(format!("user {user}: that is root; name another"));
        }
        become_(uid, gid).map_err(|error| format!("user {user}: {error}"))?;
    }
    prctl::set_no_new_privs().map_err(|error| format!("no_new_privs: {error}"))?;
    prctl::set_dumpable(false).map_err(|error| format!("dumpable: {error}"))
}

/// A change from root to another user takes all capabilities with it.
fn become_(uid: Uid, gid: Gid) -> nix::Result<()> {
    setgroups(&[])?;
    setgid(gid)?;
    setuid(uid)
}
