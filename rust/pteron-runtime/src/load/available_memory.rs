//! How much memory this process may use: the machine's, or what its control groups allow where that is less.

use std::path::{Component, Path, PathBuf};

/// Bytes of memory that the process may use; `None` where the system tells nothing (not Linux).
///
/// A limit of version 1 and of version 2, of the process's own group and of every group around it, as far as the
/// process can see them.
pub(crate) fn available_memory() -> Option<usize> {
    under(Path::new("/"))
}

/// The same with the folders of the system under `root`.
fn under(root: &Path) -> Option<usize> {
    let machine = read(root, Path::new("/proc/meminfo")).and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.split_whitespace().next()?.parse::<usize>().ok()?.checked_mul(1024)
    });
    machine.into_iter().chain(group_limits(root)).min()
}

/// All limits of groups that hold the process.
fn group_limits(root: &Path) -> Vec<usize> {
    let groups = read(root, Path::new("/proc/self/cgroup")).unwrap_or_default();
    let mounts = read(root, Path::new("/proc/self/mountinfo")).unwrap_or_default();
    let mut found = vec![];
    for line in groups.lines() {
        // Hierarchy, controllers, path of the group.
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let (system, file) = match controllers {
            "" => ("cgroup2", "memory.max"),
            names if names.split(',').any(|name| name == "memory") => ("cgroup", "memory.limit_in_bytes"),
            _ => continue,
        };
        for mount in mounts.lines().filter_map(Mount::read).filter(|mount| mount.is_of(system)) {
            let within = mount.folders_of(Path::new(group));
            let limit = |folder: PathBuf| read(root, &folder.join(file))?.trim().parse::<usize>().ok();
            found.extend(within.into_iter().filter_map(limit));
        }
    }
    found
}

/// A line of `/proc/self/mountinfo`.
struct Mount<'a> {
    /// Which group lies at the mount point.
    group: &'a Path,
    point: &'a Path,
    system: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let (front, back) = line.split_once(" - ")?;
        let (mut front, mut back) = (front.split(' ').skip(3), back.split(' '));
        let (group, point) = (Path::new(front.next()?), Path::new(front.next()?));
        let (system, _, options) = (back.next()?, back.next()?, back.next()?);
        Some(Mount { group, point, system, options })
    }

    fn is_of(&self, system: &str) -> bool {
        self.system == system
            && (system == "cgroup2" || self.options.split(',').any(|option| option == "memory"))
    }

    /// The folders of a group and of those around it, as far as they are mounted. A group that is not under the mount
    /// (seen from another namespace) has that of the mount itself.
    fn folders_of(&self, group: &Path) -> Vec<PathBuf> {
        let below = group.strip_prefix(self.group).unwrap_or(Path::new(""));
        let is_plain = below.components().all(|part| matches!(part, Component::Normal(_)));
        let deepest = self.point.join(if is_plain { below } else { Path::new("") });
        let around = deepest.ancestors().take_while(|folder| folder.starts_with(self.point));
        around.map(Path::to_path_buf).collect()
    }
}

fn read(root: &Path, path: &Path) -> Option<String> {
    std::fs::read_to_string(root.join(path.strip_prefix("/").unwrap_or(path))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system of these files, each with its text.
    fn system(name: &str, files: &[(&str, &str)]) -> Option<usize> {
        let root = std::env::temp_dir().join(format!("pteron-memory-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let found = under(&root);
        if root.exists() {
            std::fs::remove_dir_all(root).unwrap();
        }
        found
    }

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemFree: 5 kB\nMemTotal:    1000 kB\n");
    const V2: (&str, &str) = (
        "proc/self/mountinfo",
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
    );

    #[test]
    fn version_2_of_a_container_that_sees_its_own_group_alone() {
        let group = ("proc/self/cgroup", "0::/\n");
        let limit = ("sys/fs/cgroup/memory.max", "4096\n");
        assert_eq!(system("own", &[MACHINE, V2, group, limit]), Some(4096));
        let none = ("sys/fs/cgroup/memory.max", "max\n");
        assert_eq!(system("max", &[MACHINE, V2, group, none]), Some(1_024_000));
    }

    #[test]
    fn the_least_of_all_groups_around_the_process_holds() {
        let group = ("proc/self/cgroup", "0::/system.slice/server.service\n");
        let files = [
            MACHINE,
            V2,
            group,
            ("sys/fs/cgroup/system.slice/memory.max", "9000\n"),
            ("sys/fs/cgroup/system.slice/server.service/memory.max", "20000\n"),
            ("sys/fs/cgroup/other.slice/memory.max", "1\n"),
        ];
        assert_eq!(system("around", &files), Some(9000));
    }

    #[test]
    fn version_1_whose_mount_begins_at_the_group_of_the_container() {
        let files = [
            MACHINE,
            ("proc/self/cgroup", "5:cpu,cpuacct:/docker/7\n4:memory:/docker/7/inner\n0::/\n"),
            (
                "proc/self/mountinfo",
                "33 30 0:30 /docker/7 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
                 34 30 0:31 /docker/7 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "70000\n"),
            ("sys/fs/cgroup/cpu/memory.limit_in_bytes", "1\n"),
        ];
        assert_eq!(system("first", &files), Some(70000));
    }

    #[test]
    fn a_group_outside_of_the_mount_is_that_of_the_mount() {
        let group = ("proc/self/cgroup", "0::/../../elsewhere\n");
        let limit = ("sys/fs/cgroup/memory.max", "5000\n");
        assert_eq!(system("outside", &[MACHINE, V2, group, limit]), Some(5000));
    }

    #[test]
    fn a_system_that_tells_nothing() {
        assert_eq!(system("nothing", &[]), None);
    }
}
