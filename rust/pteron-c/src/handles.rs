//! The table of handles. A handle is a number that is never given twice, in the form of a pointer: nobody follows it, so
//! that what a caller passes by mistake is found out and not read.

use crate::abi::Opaque;
use crate::failure::{Outcome, misuse};
use crate::fork;
use crate::loaded_program::LoadedProgram;
use crate::session::Session;
use pteron_runtime::Runtime;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a handle stands for.
#[derive(Clone)]
pub(crate) enum Thing {
    /// `pteron_runtime`.
    Runtime(Arc<Runtime>),
    /// `pteron_program`.
    Program(Arc<LoadedProgram>),
    /// `pteron_method`.
    Method(Arc<Session>),
}

impl Thing {
    fn kind(&self) -> &'static str {
        match self {
            Thing::Runtime(_) => "runtime",
            Thing::Program(_) => "program",
            Thing::Method(_) => "method",
        }
    }
}

/// What kind of thing a function takes.
pub(crate) trait Handled: Sized {
    /// The parameter, and the kind in words.
    const KIND: &'static str;
    /// The thing, if it is of this kind.
    fn of(thing: &Thing) -> Option<Arc<Self>>;
    /// The thing for the table.
    fn thing(this: Arc<Self>) -> Thing;
}

macro_rules! handled {
    ($($type:ty, $variant:ident, $kind:literal;)*) => { $(
        impl Handled for $type {
            const KIND: &'static str = $kind;
            fn of(thing: &Thing) -> Option<Arc<Self>> {
                match thing {
                    Thing::$variant(found) => Some(found.clone()),
                    _ => None,
                }
            }
            fn thing(this: Arc<Self>) -> Thing {
                Thing::$variant(this)
            }
        }
    )* };
}
handled! {
    Runtime, Runtime, "runtime";
    LoadedProgram, Program, "program";
    Session, Method, "method";
}

/// The things, and the number of the last handle.
struct Table {
    things: Option<HashMap<usize, Thing>>,
    last: usize,
}

/// Numbers begin well above what a caller might pass for a small integer, and are no addresses of memory.
static TABLE: Mutex<Table> = Mutex::new(Table { things: None, last: 0x1000 });
/// Distance of two handles: odd, so that most are not aligned as an object would be.
const STEP: usize = 7;

/// The table, for short work that calls nobody.
fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static HELD: RefCell<Option<MutexGuard<'static, Table>>> = const { RefCell::new(None) };
}

/// Takes the table before a fork: no other thread is half way through a change then, and no child finds it taken.
extern "C" fn hold() {
    let table = table();
    let _ = HELD.try_with(|held| held.replace(Some(table)));
}

/// Lets go of it, in the parent and in the child: the thread that forked goes on in both.
extern "C" fn let_go() {
    let _ = HELD.try_with(|held| held.take());
}

/// A handle for `thing`.
pub(crate) fn insert<T: Handled>(thing: Arc<T>) -> *mut Opaque {
    fork::watch(hold, let_go);
    let mut table = table();
    let mut next = table.last;
    let things = loop {
        next = next.wrapping_add(STEP).max(0x1000);
        let things = table.things.get_or_insert_default();
        // Only where numbers have come round, with 32 bits.
        if !things.contains_key(&next) {
            break things;
        }
    };
    things.insert(next, T::thing(thing));
    table.last = next;
    std::ptr::without_provenance_mut(next)
}

fn find(handle: *mut Opaque) -> Option<Thing> {
    table().things.as_ref()?.get(&handle.addr()).cloned()
}

/// What `handle` stands for.
pub(crate) fn get<T: Handled>(handle: *mut Opaque) -> Outcome<Arc<T>> {
    if handle.is_null() {
        return Err(misuse(T::KIND, format!("the handle of a {} is NULL", T::KIND))
            .hint("look at what the function that makes it has returned"));
    }
    let Some(thing) = find(handle) else {
        return Err(misuse(T::KIND, "the handle stands for nothing")
            .instead(format!("a {}", T::KIND), "one that was freed, or never set")
            .hint("use a handle between the call that makes it and the one that frees it"));
    };
    T::of(&thing).ok_or_else(|| {
        misuse(T::KIND, "the handle stands for another kind of thing")
            .instead(format!("a {}", T::KIND), format!("a {}", thing.kind()))
    })
}

/// Ends `handle`; null is nothing to end.
pub(crate) fn remove<T: Handled>(handle: *mut Opaque) -> Outcome<()> {
    if handle.is_null() {
        return Ok(());
    }
    get::<T>(handle)?;
    let removed = table().things.as_mut().and_then(|things| things.remove(&handle.addr()));
    // What goes with it (delegates, mapped files) goes outside of the lock.
    match removed {
        Some(_) => Ok(()),
        None => Err(misuse(T::KIND, "two threads free one handle")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes;

    #[test]
    fn only_live_handles_of_the_kind_are_found() {
        let runtime = Runtime::shared().unwrap();
        let handle = insert(runtime.clone());
        assert!(Arc::ptr_eq(&get::<Runtime>(handle).unwrap(), &runtime));
        let text = |f: crate::failure::Failure| {
            assert_eq!(f.code, codes::MISUSE);
            f.error.to_string()
        };
        assert!(text(get::<Session>(handle).err().unwrap()).contains("expected a method; got a runtime"));
        assert!(text(remove::<Session>(handle).err().unwrap()).contains("got a runtime"));
        remove::<Runtime>(handle).unwrap();
        assert!(text(get::<Runtime>(handle).err().unwrap()).contains("was freed"));
        assert!(text(remove::<Runtime>(handle).err().unwrap()).contains("was freed"));
        assert!(text(get::<Runtime>(std::ptr::null_mut()).err().unwrap()).contains("is NULL"));
        remove::<Runtime>(std::ptr::null_mut()).unwrap();
        assert_ne!(insert(runtime), handle);
    }
}
