//! The daemon: `tidepool-node-lender --config FILE`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use node_lender::config::Config;
use node_lender::lender::Lender;
use node_lender::node::Memory;
use node_lender::shelf::segment;
use node_lender::{control, privileges, upkeep};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{Signal, SignalKind, signal};

const USAGE: &str = "usage: tidepool-node-lender --config FILE [--user NAME] [--check | --wait]

  --config FILE  what to lend to whom: README.md says what is in it
  --user NAME    whom to become when started as root (default: nobody)
  --check        say whether the file is right, and end
  --wait         wait until the file is there
";

/// So often it is looked whether the file is there.
const LOOK: Duration = Duration::from_millis(500);

struct Arguments {
    config: PathBuf,
    user: String,
    check: bool,
    wait: bool,
}

fn arguments() -> Result<Option<Arguments>, lexopt::Error> {
    use lexopt::prelude::*;
    let (mut config, mut user, mut check, mut wait) = (None, privileges::NOBODY.to_owned(), false, false);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("config") => config = Some(PathBuf::from(parser.value()?)),
            Long("user") => user = parser.value()?.string()?,
            Long("check") => check = true,
            Long("wait") => wait = true,
            Long("help") => return Ok(None),
            other => return Err(other.unexpected()),
        }
    }
    let config = config.ok_or("--config: name the file")?;
    Ok(Some(Arguments { config, user, check, wait }))
}

/// What is open before it gives up its rights.
struct Listeners {
    borrowers: std::net::TcpListener,
    metrics: Option<std::net::TcpListener>,
}

fn listen(address: std::net::SocketAddr, what: &str) -> Result<std::net::TcpListener, String> {
    let wrong = |error| format!("{what}: {address}: {error}; is another lender on this node, or the port taken?");
    let listener = std::net::TcpListener::bind(address).map_err(wrong)?;
    listener.set_nonblocking(true).map_err(wrong)?;
    Ok(listener)
}

/// Returns when there is a file; whoever writes it does so whole or not at all.
fn wait_for(path: &Path) {
    if !path.exists() {
        tracing::info!(path = %path.display(), "waits for its configuration");
    }
    while !path.exists() {
        std::thread::sleep(LOOK);
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    if arguments.wait {
        wait_for(&arguments.config);
    }
    let node = Memory::read().map_err(|error| format!("/proc/meminfo: {error}"))?;
    let config = Config::read(&arguments.config, &node).map_err(|wrong| wrong.to_string())?;
    if arguments.check {
        return Ok(());
    }
    segment::check_kernel()?;
    segment::keep_no_large_heaps();
    let listeners = Listeners {
        borrowers: listen(config.listen, "listen")?,
        metrics: config.metrics.map(|address| listen(address, "metrics")).transpose()?,
    };
    privileges::drop(&arguments.user)?;
    may_reload(&arguments.config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(lend(config, arguments.config.clone(), listeners))
}

/// A reload reads the file with the rights that are left: whether it can is known at once.
fn may_reload(path: &Path) -> Result<(), String> {
    let wrong = |error| {
        let (path, user) = (path.display(), nix::unistd::Uid::current());
        format!("{path}: {error}: a reload reads it as user {user}; let that user read it")
    };
    std::fs::File::open(path).map(drop).map_err(wrong)
}

async fn lend(config: Config, path: PathBuf, listeners: Listeners) -> Result<(), String> {
    let signals = Signals::new().map_err(|error| error.to_string())?; // before anybody can know that it is there
    let control = config.control.clone().map(|path| bind(&path)).transpose()?;
    let lender = Lender::new(config);
    let address = listeners.borrowers.local_addr().map_err(|error| error.to_string())?;
    tracing::info!(identity = %lender.identity(), %address, "lends");
    lender.conditions().iter().for_each(|one| tracing::warn!(reason = one.reason, "{}", one.message));
    let adopt = |listener| TcpListener::from_std(listener).map_err(|error| error.to_string());
    let looked_after = Arc::clone(&lender);
    std::thread::spawn(move || upkeep::look_after(&looked_after));
    tokio::spawn(Arc::clone(&lender).listen(adopt(listeners.borrowers)?));
    if let Some(listener) = listeners.metrics {
        if let Ok(address) = listener.local_addr() {
            tracing::info!(%address, "metrics");
        }
        tokio::spawn(control::serve_metrics(Arc::clone(&lender), adopt(listener)?));
    }
    if let Some(listener) = control {
        tokio::spawn(control::listen(Arc::clone(&lender), listener, path.clone()));
    }
    until_told(signals, &lender, &path).await
}

fn bind(path: &Path) -> Result<UnixListener, String> {
    control::bind(path).map_err(|error| format!("control: {}: {error}", path.display()))
}

struct Signals {
    hangup: Signal,
    end: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        let (hangup, end) = (signal(SignalKind::hangup())?, signal(SignalKind::terminate())?);
        Ok(Self { hangup, end, interrupt: signal(SignalKind::interrupt())? })
    }
}

/// Goes on until it is told to end; SIGHUP has it read its configuration again.
async fn until_told(mut signals: Signals, lender: &Lender, path: &Path) -> Result<(), String> {
    loop {
        tokio::select! {
            _ = signals.hangup.recv() => drop(control::reload(lender, path)), // what is wrong is in the log
            _ = signals.end.recv() => return Ok(()),
            _ = signals.interrupt.recv() => return Ok(()),
        }
    }
}

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_target(false).init();
    let said = match arguments() {
        Ok(Some(arguments)) => run(&arguments),
        Ok(None) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprint!("tidepool-node-lender: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match said {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("tidepool-node-lender: {why}");
            ExitCode::FAILURE
        }
    }
}
