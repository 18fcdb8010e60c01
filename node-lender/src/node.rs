//! What is known of the node: its memory, the limit of this process's cgroup, what the kernel has taken back.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of the node's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// All that there is.
    pub total: u64,
    /// What programs could have; lent pages count to it, as the kernel takes them back.
    pub available: u64,
    /// Of swap.
    pub swap: u64,
}

impl Memory {
    /// As the kernel says now.
    pub fn read() -> std::io::Result<Self> {
        let text = fs::read_to_string("/proc/meminfo")?;
        Self::parse(&text).ok_or_else(|| std::io::Error::other("/proc/meminfo has not the lines that Linux has"))
    }

    fn parse(text: &str) -> Option<Self> {
        let kib = |name: &str| value(text, name).and_then(|value| value.checked_mul(1024));
        Some(Self { total: kib("MemTotal:")?, available: kib("MemAvailable:")?, swap: kib("SwapTotal:")? })
    }

    /// Whether there is memory to lend beyond what has to stay available on the node, `lent` being lent already.
    pub fn spares(&self, reserve: u64, lent: u64) -> bool {
        self.available.saturating_sub(lent) > reserve
    }
}

/// The number behind a name at the beginning of a line.
fn value(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Pages that the kernel has taken back from whomever let it, since it was booted. When that stands still, nothing of what
/// is lent has gone.
pub fn taken_back() -> Option<u64> {
    value(&fs::read_to_string("/proc/vmstat").ok()?, "pglazyfreed")
}

/// The least limit on the memory of this process's cgroup and those above it, in either version of cgroups.
pub fn memory_limit() -> Option<u64> {
    let cgroups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let limits = candidates(&cgroups).into_iter().filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
    limits.filter(|&limit| limit < u64::MAX / 4).min()
}

/// The files that may have such a limit: of the cgroup as the node sees it, and as a container does, whose own is the root.
fn candidates(cgroups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in cgroups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        let path = Path::new(root).join(path.trim_start_matches('/'));
        let above = path.ancestors().take_while(|above| above.starts_with(root));
        files.extend(above.map(|above| above.join(file)));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_the_kernel_says() {
        let text = "MemTotal:       24 kB\nMemFree: 1 kB\nMemAvailable:   12 kB\nSwapTotal:   0 kB\n";
        assert_eq!(Memory::parse(text), Some(Memory { total: 24 << 10, available: 12 << 10, swap: 0 }));
        assert_eq!(Memory::parse("MemTotal: x kB"), None);
        let here = Memory::read().unwrap();
        assert!(here.available < here.total);
        assert!(taken_back().is_some());
    }

    #[test]
    fn lent_pages_do_not_count_as_spare() {
        let memory = Memory { total: 100, available: 60, swap: 0 };
        assert!(memory.spares(20, 39));
        assert!(!memory.spares(20, 40));
        assert!(!memory.spares(0, 90));
    }

    #[test]
    fn limits_are_looked_for_up_to_the_root_in_both_versions() {
        let files = candidates("4:memory:/kubepods/pod1\n3:cpu:/x\n0::/pods/a\n");
        let expected = [
            "/sys/fs/cgroup/memory/kubepods/pod1/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/kubepods/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/pods/a/memory.max",
            "/sys/fs/cgroup/pods/memory.max",
            "/sys/fs/cgroup/memory.max",
        ];
        assert_eq!(files, expected.map(PathBuf::from));
    }
}
