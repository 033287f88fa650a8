//! Runs a mutant in a forked child of the warm server, with limits on memory and time, and says how it ended.

use std::sync::atomic::{AtomicPtr, Ordering};

/// Bytes of address space that a child may take besides the server's.
const ADDRESS_SPACE: u64 = 3 << 30;
/// Processor seconds that a child may use: a multiple of all deadlines of its calls.
const CPU_SECONDS: u64 = 60;
/// Seconds after which a child that waits for something is ended.
const WALL_SECONDS: u32 = 240;

/// Room for what a child says.
const PAGE: usize = 16 << 10;
const HEAD: usize = 8;

const RUNNING: u32 = 0;
const SAID: u32 = 1;
const PANICKED: u32 = 2;

/// Memory that the server and its children share.
struct Page(*mut u8);

/// The page of this child, for the hook of panics.
static REPORT: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// How a child ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    /// It said this.
    Said(String),
    /// It panicked, whoever caught that.
    Panicked(String),
    /// A signal ended it.
    Killed(i32),
    /// It ended by itself without a word.
    Silent(i32),
}

pub struct Server {
    page: Page,
}

impl Server {
    pub fn new() -> Server {
        // SAFETY: a new mapping, which nobody else has.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(page, libc::MAP_FAILED, "no shared memory");
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let report = REPORT.load(Ordering::Relaxed);
            if report.is_null() {
                usual(info);
            } else {
                write(report, PANICKED, &info.to_string());
            }
        }));
        Server { page: Page(page.cast()) }
    }

    /// What came of `work` in a child. The calling process must have no other threads.
    pub fn run(&self, work: impl FnOnce() -> String) -> Ending {
        write(self.page.0, RUNNING, "");
        // SAFETY: no other thread of this process can hold a lock that the child needs.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "no child could be made: {}", std::io::Error::last_os_error());
        if child == 0 {
            REPORT.store(self.page.0, Ordering::Relaxed);
            confine();
            let text = work();
            if state(self.page.0) == RUNNING {
                write(self.page.0, SAID, &text);
            }
            // SAFETY: ends the child at once, without the server's exit handlers.
            unsafe { libc::_exit(0) }
        }
        let mut status = 0;
        // SAFETY: `child` is a child of this process that nobody else waits for.
        while unsafe { libc::waitpid(child, &mut status, 0) } < 0 {}
        if libc::WIFSIGNALED(status) {
            return Ending::Killed(libc::WTERMSIG(status));
        }
        match state(self.page.0) {
            SAID => Ending::Said(text(self.page.0)),
            PANICKED => Ending::Panicked(text(self.page.0)),
            _ => Ending::Silent(libc::WEXITSTATUS(status)),
        }
    }
}

fn confine() {
    let limit = |what, most: u64| {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: `limit` lives through the call.
        unsafe { libc::setrlimit(what, &limit) };
    };
    limit(libc::RLIMIT_AS, address_space_in_use().saturating_add(ADDRESS_SPACE));
    limit(libc::RLIMIT_CPU, CPU_SECONDS);
    limit(libc::RLIMIT_CORE, 0);
    // SAFETY: these change this process alone.
    unsafe {
        libc::alarm(WALL_SECONDS);
        libc::close(2);
    }
}

/// Sanitizers and emulators reserve far more than they use.
fn address_space_in_use() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0);
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages.saturating_mul(u64::try_from(page).unwrap_or(4096))
}

fn write(page: *mut u8, state: u32, text: &str) {
    let len = text.len().min(PAGE - HEAD);
    // SAFETY: the page has `PAGE` bytes, and server and child take turns.
    unsafe {
        page.add(HEAD).copy_from_nonoverlapping(text.as_ptr(), len);
        page.cast::<[u32; 2]>().write_volatile([state, len as u32]);
    }
}

fn state(page: *mut u8) -> u32 {
    // SAFETY: the page is mapped, shared and aligned for these words.
    unsafe { page.cast::<[u32; 2]>().read_volatile()[0] }
}

fn text(page: *mut u8) -> String {
    // SAFETY: the page is mapped, shared and aligned for these words.
    let bytes = unsafe {
        let len = page.cast::<[u32; 2]>().read_volatile()[1] as usize;
        std::slice::from_raw_parts(page.add(HEAD), len.min(PAGE - HEAD))
    };
    String::from_utf8_lossy(bytes).into_owned()
}
